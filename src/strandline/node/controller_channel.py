"""Sends requests to the active controller, in this process or on another node.

Handlers `forward` their clients' requests (wrapped in Envelopes with the client's principal if the controller is on
another node); the node `send`s its own. Callers need not know which node leads: a request that a controller rejects
with NOT_CONTROLLER, or does not respond to before another leader is elected, goes to the next leader, until its
timeout.

A request whose connection was lost may have taken effect. It is retried nevertheless, as in Kafka, since the client
waits for a response.
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
from strandline.raft.machine.values import KnownLeader
from strandline.runtime.clock import Clock
from strandline.runtime.tasks import cancel_when, yield_to_loop

R = TypeVar("R", bound=Message)

# A new leader becomes active within milliseconds if its node is alone: the first backoffs are short, each is twice the
# one before. `leader_other_than` reports a change of the leader at once.
_FIRST_BACKOFF_MS: Final = 2
_MAX_BACKOFF_MS: Final = 50
# Errors after which the request is retried, at the then active controller.
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)


class ObservedLeader(Protocol):
    """The leader of the quorum as this node knows it (`raft/shell/driver`)."""

    @property
    def leader(self) -> KnownLeader: ...
    def leader_other_than(self, known: KnownLeader) -> Coroutine[Any, Any, KnownLeader]: ...


class _ControllerRequest(msgspec.Struct, frozen=True):
    api: Api
    request: Message
    version: int
    call: Callable[[Endpoint, int], Coroutine[Any, Any, Message]]
    """Sends it to another node, with a timeout in milliseconds."""


class ControllerChannel:
    def __init__(
        self,
        node_id: int,
        quorum: ObservedLeader,
        peers: Peers,
        clock: Clock,
        local: Mapping[ApiKey, ControllerMethod],
        *,
        timeout_ms: int,
    ) -> None:
        """`local` are the methods of the controller in this process; empty on a node that is only a broker."""
        self._node_id = node_id
        self._quorum = quorum
        self._peers = peers
        self._clock = clock
        self._local = local
        self._timeout_ms = timeout_ms

    async def forward(self, call: Call, request: Message, response: type[R], *, version: int | None = None) -> R:
        """A client's request, in the client's version. The response, with its errors, is for the client."""
        api, used_version = _api(request), call.version if version is None else version

        async def send_to(endpoint: Endpoint, timeout_ms: int) -> Message:
            envelope = wrap(call, api, used_version, request)
            enveloped = await self._peers.call(endpoint, envelope, timeout_ms=timeout_ms)
            assert isinstance(enveloped, EnvelopeResponse)
            return unwrap(api, used_version, enveloped)

        return await self._send(_ControllerRequest(api, request, used_version, send_to), response, self._timeout_ms)

    async def send(self, request: Message, response: type[R], *, timeout_ms: int | None = None) -> R:
        """A request of this node, in the newest version. A top-level error of the response is raised."""

        async def send_to(endpoint: Endpoint, timeout_ms: int) -> Message:
            return await self._peers.call(endpoint, request, timeout_ms=timeout_ms)

        api = _api(request)
        outbound = _ControllerRequest(api, request, api.max_version, send_to)
        reply = await self._send(outbound, response, timeout_ms or self._timeout_ms)
        code = response_error(reply)
        if code is not ErrorCode.NONE:
            why = getattr(reply, "error_message", None)
            raise KafkaError(code, why or f"the controller rejected {api.name}")
        return reply

    async def _send(self, request: _ControllerRequest, response: type[R], timeout_ms: int) -> R:
        deadline_ms = self._clock.now_ms() + timeout_ms
        why: object = "the quorum has no known leader"
        backoff_ms = _FIRST_BACKOFF_MS
        while (left_ms := deadline_ms - self._clock.now_ms()) > 0:
            leader = self._quorum.leader
            try:
                reply = await self._attempt(leader, request, left_ms)
                if reply is not None and response_error(reply) not in _RETRIABLE:
                    assert isinstance(reply, response)
                    return reply
            except (OSError, KafkaError) as error:
                if isinstance(error, KafkaError) and error.code not in _RETRIABLE:
                    raise
                why = error
            await self._wait_for_new_leader(leader, min(backoff_ms, left_ms))
            backoff_ms = min(2 * backoff_ms, _MAX_BACKOFF_MS)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no active controller handled {request.api.name} in time: {why}")

    async def _attempt(self, leader: KnownLeader, request: _ControllerRequest, timeout_ms: int) -> Message | None:
        """Sends the request once; None if no leader is known, or if another leader was elected before the response."""
        if leader.id == self._node_id and self._local:
            await yield_to_loop()  # as in `_wait_for_new_leader`
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._local[request.api.key](request.request, request.version)
        if leader.endpoint is None:
            await self._wait_for_new_leader(leader, timeout_ms)
            return None
        await yield_to_loop()  # as in `_wait_for_new_leader`
        # A failed leader may never respond while its connection stays open.
        return await cancel_when(
            lambda: self._quorum.leader_other_than(leader), request.call(leader.endpoint, timeout_ms)
        )

    async def _wait_for_new_leader(self, leader: KnownLeader, wait_ms: int) -> None:
        """Waits until another node leads, or until it is time to retry."""
        # `asyncio.timeout` needs a task, which a handler that has not waited yet does not have.
        await yield_to_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._quorum.leader_other_than(leader)


def _api(request: Message) -> Api:
    assert request.api_key is not None
    return API[request.api_key]
