"""Requests of this replica to other nodes: each is one task, and its outcome is an input of the machine.

A failure comes with its evidence. When a connection could not be made or was lost, the endpoint is probed: if that is
refused, no process listens there any more. A timeout is never such evidence.
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
from strandline.protocol.errors import response_error
from strandline.protocol.types import Message
from strandline.raft.machine.effects import Send
from strandline.runtime.tasks import TaskGroup

logger = logging.getLogger(__name__)

# Logged reasons that are remembered. Endpoints and reasons come from other nodes: their number is unbounded.
MAX_REPORTED: Final = 100

OnCompleted = Callable[[Send, Message | None, bool], None]


class OutboundRequests:
    def __init__(self, peers: Peers, timeout_ms: int, on_completed: OnCompleted) -> None:
        """`on_completed(send, response or None, refused)`."""
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._on_completed = on_completed
        self._reported: dict[tuple[Endpoint, str], None] = {}
        self._running: dict[asyncio.Task[None], None] = {}

    def start(self, send: Send, tasks: TaskGroup) -> None:
        task = tasks.start(self._send(send), f"{type(send.request).__name__} to {send.endpoint}")
        self._running[task] = None
        task.add_done_callback(self._running.pop)

    async def wait(self) -> None:
        """Waits until all requests that are in flight now have completed."""
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        response: Message | None = None
        refused = False
        try:
            response = await self._peers.call(send.endpoint, send.request, timeout_ms=self._timeout_ms)
            if response_error(response) is ErrorCode.INCONSISTENT_CLUSTER_ID:
                ours = getattr(send.request, "cluster_id", None)
                self._report(send, f"it belongs to another cluster; this node was formatted for cluster {ours}")
        except (OSError, KafkaError) as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
                self._report(send, error.why)
                response = _unsupported(send.request)
            elif not _is_timeout(error):
                refused = await self._peers.refuses_connections(send.endpoint)
            logger.debug("%s to %s failed: %s", type(send.request).__name__, send.endpoint, error)
        self._on_completed(send, response, refused)

    def _report(self, send: Send, why: str) -> None:
        """Logs once per endpoint and reason, since the request is retried forever."""
        report = (send.endpoint, why)
        if report not in self._reported:
            if len(self._reported) >= MAX_REPORTED:
                del self._reported[next(iter(self._reported))]
            self._reported[report] = None
            logger.warning("the quorum cannot communicate with %s: %s", send.endpoint, why)


def _is_timeout(error: Exception) -> bool:
    return isinstance(error, TimeoutError) or (
        isinstance(error, KafkaError) and error.code is ErrorCode.REQUEST_TIMED_OUT
    )


def _unsupported(request: Message) -> Message:
    """The response that the peer would send if it knew the request."""
    assert request.api_key is not None
    response: Any = API[request.api_key].response
    return cast(Message, response(error_code=int(ErrorCode.UNSUPPORTED_VERSION)))
