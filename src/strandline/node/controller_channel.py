"""The way to the active controller, wherever it is: in this very process, or at the other end of a connection.

Handlers `forward` their clients' requests (in Envelopes, with the client's principal, to a controller elsewhere); the
node itself `send`s its own. Nobody who calls notices who leads: a controller that has lost the lead, or that nobody
answers for, is asked about no more, and the request goes to the next one, until its time is up.

A request whose connection broke may have been carried out: it is sent again all the same, as Kafka does, since a
client that asked for a topic must hear whether it is there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from strandline.client.peers import Peers
from strandline.handlers.context import Call, ControllerMethod
from strandline.handlers.envelope import unwrap, wrap
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint
from strandline.protocol.apis import API, Api, ApiKey
from strandline.protocol.errors import response_error
from strandline.protocol.messages.brokers import EnvelopeResponse
from strandline.protocol.types import Message
from strandline.runtime.clock import Clock
from strandline.runtime.tasks import unless, yield_to_loop

R = TypeVar("R", bound=Message)

# Whoever leads may need a moment to become active, a very short one when a node starts alone: so the first pauses are
# short, and each is twice the one before. Another leader is told by `leader_other_than` at once.
_FIRST_RETRY_MS: Final = 2
_RETRY_MS: Final = 50
# What says that another controller should be asked, or the same one a little later.
_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)


class Leadership(Protocol):
    """Who leads the quorum, as far as this node knows."""

    @property
    def leader(self) -> Any: ...
    def leader_other_than(self, known: Any) -> Coroutine[Any, Any, Any]: ...


class _Question(msgspec.Struct, frozen=True):
    api: Api
    request: Message
    version: int
    ask: Callable[[Endpoint, int], Coroutine[Any, Any, Message]]
    """How it is asked at another node, and within how many milliseconds."""


class ControllerChannel:
    def __init__(
        self,
        node_id: int,
        leadership: Leadership,
        peers: Peers,
        clock: Clock,
        local: Mapping[ApiKey, ControllerMethod],
        *,
        timeout_ms: int,
    ) -> None:
        """`local` has the methods of this process's own controller; none on a node that is only a broker."""
        self._node_id = node_id
        self._leadership = leadership
        self._peers = peers
        self._clock = clock
        self._local = local
        self._timeout_ms = timeout_ms

    async def forward(self, call: Call, request: Message, response: type[R], *, version: int | None = None) -> R:
        """A client's request, in the client's version; whatever the controller answers is for the client to read."""
        api, spoken = _api(request), call.version if version is None else version

        async def ask(endpoint: Endpoint, timeout_ms: int) -> Message:
            envelope = wrap(call, api, spoken, request)
            enveloped = await self._peers.call(endpoint, envelope, timeout_ms=timeout_ms)
            assert isinstance(enveloped, EnvelopeResponse)
            return unwrap(api, spoken, enveloped)

        return await self._asked(_Question(api, request, spoken, ask), response, self._timeout_ms)

    async def send(self, request: Message, response: type[R], *, timeout_ms: int | None = None) -> R:
        """A request of this node's own, in the newest version; an error at the top of the answer is raised."""

        async def ask(endpoint: Endpoint, timeout_ms: int) -> Message:
            return await self._peers.call(endpoint, request, timeout_ms=timeout_ms)

        api = _api(request)
        question = _Question(api, request, api.max_version, ask)
        answer = await self._asked(question, response, timeout_ms or self._timeout_ms)
        code = response_error(answer)
        if code is not ErrorCode.NONE:
            why = getattr(answer, "error_message", None)
            raise KafkaError(code, why or f"the controller rejected {api.name}")
        return answer

    async def _asked(self, question: _Question, response: type[R], timeout_ms: int) -> R:
        deadline_ms = self._clock.now_ms() + timeout_ms
        why: object = "nobody is known to lead the quorum"
        pause_ms = _FIRST_RETRY_MS
        while (left_ms := deadline_ms - self._clock.now_ms()) > 0:
            leader = self._leadership.leader
            try:
                answer = await self._ask(leader, question, left_ms)
                if answer is not None and response_error(answer) not in _ELSEWHERE:
                    assert isinstance(answer, response)
                    return answer
            except (OSError, KafkaError) as error:
                if isinstance(error, KafkaError) and error.code not in _ELSEWHERE:
                    raise
                why = error
            await self._look_around(leader, min(pause_ms, left_ms))
            pause_ms = min(2 * pause_ms, _RETRY_MS)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no active controller took {question.api.name} in time: {why}")

    async def _ask(self, leader: Any, question: _Question, timeout_ms: int) -> Message | None:
        """None when it is not known whom to ask, or when another took the lead before there was an answer."""
        if leader.id == self._node_id and self._local:
            await yield_to_loop()  # as in `_look_around`
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._local[question.api.key](question.request, question.version)
        if leader.endpoint is None:
            await self._look_around(leader, timeout_ms)
            return None
        await yield_to_loop()  # as in `_look_around`
        # A leader that fell silent may never answer, and its connection may live on.
        return await unless(
            lambda: self._leadership.leader_other_than(leader), question.ask(leader.endpoint, timeout_ms)
        )

    async def _look_around(self, leader: Any, wait_ms: int) -> None:
        """Until somebody else leads, or it is time to try again."""
        # Handlers may have come here without a task of their own so far, which a time limit needs.
        await yield_to_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._leadership.leader_other_than(leader)


def _api(request: Message) -> Api:
    assert request.api_key is not None
    return API[request.api_key]
