"""Requests of this replica to the others: each is one task, and how it ended is the machine's next input.

A failure is told with its evidence. When a connection could not be made or was lost, the other end is dialled again: if
that is refused, no process listens there any more. A timeout is no such evidence, whatever it came from.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, cast

from strandline.client.peers import Peers
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint
from strandline.protocol.apis import API
from strandline.protocol.types import Message
from strandline.raft.machine.effects import Send
from strandline.runtime.tasks import TaskGroup

logger = logging.getLogger(__name__)

# Of nodes that cannot be talked to: addresses and reasons come from others, and there is no end of them.
MAX_REPORTED: Final = 100

OnEnded = Callable[[Send, Message | None, bool], None]


class OutboundRequests:
    def __init__(self, peers: Peers, timeout_ms: int, on_ended: OnEnded) -> None:
        """`on_ended(send, response or None, refused)`."""
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._on_ended = on_ended
        self._complaints: dict[tuple[Endpoint, str], None] = {}
        self._under_way: dict[asyncio.Task[None], None] = {}

    def begin(self, send: Send, tasks: TaskGroup) -> None:
        task = tasks.start(self._exchange(send), f"{type(send.request).__name__} to {send.endpoint}")
        self._under_way[task] = None
        task.add_done_callback(self._under_way.pop)

    async def ended(self) -> None:
        """Returns when everything that is under way now has ended."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _exchange(self, send: Send) -> None:
        response: Message | None = None
        refused = False
        try:
            response = await self._peers.call(send.endpoint, send.request, timeout_ms=self._timeout_ms)
            if getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.INCONSISTENT_CLUSTER_ID:
                ours = getattr(send.request, "cluster_id", None)
                self._complain(send, f"it belongs to another cluster; this node was formatted for cluster {ours}")
        except (OSError, KafkaError) as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
                self._complain(send, error.why)
                response = _unsupported(send.request)
            elif not _is_timeout(error):
                refused = await self._peers.refuses_connections(send.endpoint)
            logger.debug("%s to %s failed: %s", type(send.request).__name__, send.endpoint, error)
        self._on_ended(send, response, refused)

    def _complain(self, send: Send, why: str) -> None:
        """Once for each node and reason: it will be asked again and again."""
        complaint = (send.endpoint, why)
        if complaint not in self._complaints:
            if len(self._complaints) >= MAX_REPORTED:
                del self._complaints[next(iter(self._complaints))]
            self._complaints[complaint] = None
            logger.warning("the quorum cannot talk to %s: %s", send.endpoint, why)


def _is_timeout(error: Exception) -> bool:
    return isinstance(error, TimeoutError) or (
        isinstance(error, KafkaError) and error.code is ErrorCode.REQUEST_TIMED_OUT
    )


def _unsupported(request: Message) -> Message:
    """What the other would answer if it understood the question."""
    assert request.api_key is not None
    response: Any = API[request.api_key].response
    return cast(Message, response(error_code=int(ErrorCode.UNSUPPORTED_VERSION)))
