"""The broker's lifecycle with the controller: registration, unfencing, heartbeats, controlled shutdown.

Called by `node/broker_role`. A registration carries the previous broker epoch if this broker has kept every record
since then: the controller learns whether its replicas are still eligible (KIP-966, `node/previous_broker_epoch`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol, TypeVar

import msgspec

from strandline.metadata.features import SUPPORTED_FEATURES
from strandline.metadata.image import Image
from strandline.metadata.record_versions import CORDONED_DIRECTORIES_SINCE, DIRECTORIES_SINCE
from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.model.ids import Endpoint, Uuid
from strandline.protocol.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from strandline.protocol.types import Message
from strandline.runtime.clock import Clock

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Message)

SECURITY_PROTOCOLS: Mapping[str, int] = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

_REGISTRATION_RETRY_MS: Final = 100
"""The retry interval while a previous incarnation of this broker may still be alive."""
_FENCED_RETRY_MS: Final = 20
_SHUTDOWN_RETRY_MS: Final = 50
_SHUTDOWN_HEARTBEAT_TIMEOUT_MS: Final = 1_200
"""Longer than the failover from a controller that resigns or is killed."""

# Another process uses this broker's id, or this is another cluster: registering again cannot succeed.
_FATAL_CODES: Final = frozenset({ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.INCONSISTENT_CLUSTER_ID})

Listeners = tuple[tuple[str, Endpoint, str], ...]
"""(name, advertised address, security protocol)"""


class Registration(msgspec.Struct, frozen=True):
    broker_id: int
    cluster_id: str
    incarnation_id: Uuid
    listeners: Listeners
    rack: str | None
    directories: tuple[Uuid, ...]
    previous_broker_epoch: int


class Send(Protocol):
    """Sends a request to the active controller (`node/controller_channel`), retrying until the timeout."""

    def __call__(self, request: Message, response: type[R], *, timeout_ms: int | None = None) -> Awaitable[R]: ...


class BrokerLifecycle:
    def __init__(
        self,
        registration: Registration,
        image: Image,
        send: Send,
        clock: Clock,
        *,
        heartbeat_interval_ms: int,
        session_timeout_ms: int,
        registration_timeout_ms: int,
        offline_directories: Callable[[], list[Uuid]],
        cordoned_directories: Callable[[], list[Uuid]],
    ) -> None:
        self._registration = registration
        self._image = image
        self._send = send
        self._clock = clock
        self._interval_ms = heartbeat_interval_ms
        self._session_ms = session_timeout_ms
        self._registration_ms = registration_timeout_ms
        self._offline_directories = offline_directories
        self._cordoned_directories = cordoned_directories
        self.broker_epoch = -1
        self._is_shutting_down = False
        self._heartbeat_wanted = asyncio.Event()

    def send_heartbeat_soon(self) -> None:
        """Sends a heartbeat without waiting for the interval: the state that heartbeats report may have changed."""
        self._heartbeat_wanted.set()

    async def register(self) -> None:
        """Registers a starting broker. Raises NodeFault if the registration is rejected or times out."""
        try:
            await self._register(self._registration_ms)
        except KafkaError as error:
            raise _registration_fault(error) from error

    async def _register_again(self) -> None:
        """Registers a running broker. If no controller responds it continues to serve, and retries with a heartbeat."""
        try:
            await self._register(self._session_ms)
        except KafkaError as error:
            if error.code in _FATAL_CODES:
                raise _registration_fault(error) from error
            logger.warning("registering again failed: %s. %s", error, _hint(error))

    async def _register(self, response_timeout_ms: int) -> None:
        """Waits up to the registration timeout until the controller has fenced a previous incarnation."""
        mine = self._registration
        request = BrokerRegistrationRequest(
            broker_id=mine.broker_id,
            cluster_id=mine.cluster_id,
            incarnation_id=mine.incarnation_id,
            listeners=registration_listeners(mine.listeners),
            features=registration_features(),
            rack=mine.rack,
            log_dirs=sorted(mine.directories),
            previous_broker_epoch=mine.previous_broker_epoch,
        )
        deadline_ms = self._clock.now_ms() + self._registration_ms
        is_logged = False
        while True:
            left_ms = max(1, min(response_timeout_ms, deadline_ms - self._clock.now_ms()))
            try:
                response = await self._send(request, BrokerRegistrationResponse, timeout_ms=left_ms)
                break
            except KafkaError as error:
                may_retry = error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION and self._clock.now_ms() < deadline_ms
                if not may_retry:
                    raise
                if not is_logged:
                    logger.warning("waiting to register as broker %d: %s. %s", mine.broker_id, error, _hint(error))
                    is_logged = True
            await asyncio.sleep(_REGISTRATION_RETRY_MS / 1000)
        self.broker_epoch = response.broker_epoch
        logger.info("registered as broker %d with epoch %d", mine.broker_id, self.broker_epoch)

    async def unfence(self) -> None:
        """Returns when the controller has unfenced this broker."""
        while await self._is_fenced():
            await asyncio.sleep(_FENCED_RETRY_MS / 1000)

    async def run(self) -> None:
        """Sends heartbeats. Ends by cancellation."""
        pause_ms, retry_ms = self._interval_ms, _FENCED_RETRY_MS
        while True:
            await self._pause(pause_ms)
            if self._directories_are_unregistered():
                await self._register_again()
            if await self._is_fenced(if_no_response=False):
                # Fenced although it runs, or not caught up: the first heartbeats follow quickly, then at the interval.
                pause_ms, retry_ms = min(self._interval_ms, retry_ms), retry_ms * 2
            else:
                pause_ms, retry_ms = self._interval_ms, _FENCED_RETRY_MS

    async def _pause(self, length_ms: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(length_ms / 1000):
                await self._heartbeat_wanted.wait()
        self._heartbeat_wanted.clear()

    def _directories_are_unregistered(self) -> bool:
        """True after an upgrade to a metadata version that records them. Registering again keeps the broker epoch."""
        view = self._image.committed
        mine = view.broker(self._registration.broker_id)
        if mine is None or mine.incarnation_id != self._registration.incarnation_id:
            return False
        return not mine.directories and view.metadata_version >= DIRECTORIES_SINCE

    async def _is_fenced(self, *, if_no_response: bool = True) -> bool:
        """Sends one heartbeat."""
        try:
            return (await self._heartbeat()).is_fenced
        except KafkaError as error:
            if error.code is ErrorCode.STALE_BROKER_EPOCH:
                await self._on_stale_epoch(error)
                return True
            logger.warning("a heartbeat failed: %s", error)
            return if_no_response

    async def _on_stale_epoch(self, error: KafkaError) -> None:
        mine = self._registration
        known = self._image.committed.broker(mine.broker_id)
        is_other = known is not None and known.incarnation_id != mine.incarnation_id
        # The registration of a killed previous process may arrive after this process has registered. That is harmless:
        # the previous process used these directories, and this one holds the lock on them.
        if known is not None and is_other and not set(known.directories) & set(mine.directories):
            raise NodeFault("another process has registered under this broker's id") from error
        why = "a previous process was registered late" if is_other else "this broker was unregistered while it runs"
        logger.warning("%s; registering again", why)
        await self._register_again()

    async def controlled_shutdown(self, timeout_ms: int) -> None:
        """Waits until the controller has moved this broker's leaderships and allows it to shut down.

        Does not wait for a controller that does not respond: if all nodes stop together, the quorum may be gone.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        # Set for the heartbeats of `run` as well: a late one without it would unfence the broker again.
        self._is_shutting_down = True
        try:
            while self._clock.now_ms() < deadline_ms:
                if (await self._heartbeat(timeout_ms=_SHUTDOWN_HEARTBEAT_TIMEOUT_MS)).should_shut_down:
                    return
                await asyncio.sleep(_SHUTDOWN_RETRY_MS / 1000)
            logger.warning("controlled shutdown timed out after %d ms; stopping anyway", timeout_ms)
        except KafkaError as error:
            logger.warning("controlled shutdown failed; stopping anyway: %s", error)

    async def _heartbeat(self, *, timeout_ms: int | None = None) -> BrokerHeartbeatResponse:
        return await self._send(
            BrokerHeartbeatRequest(
                broker_id=self._registration.broker_id,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=self._image.committed.offset - 1,
                want_fence=False,
                want_shut_down=self._is_shutting_down,
                offline_log_dirs=self._offline_directories(),
                cordoned_log_dirs=self._cordoned(),
            ),
            BrokerHeartbeatResponse,
            timeout_ms=timeout_ms or self._session_ms,
        )

    def _cordoned(self) -> list[Uuid] | None:
        """The cordoned directories; None below the metadata version that records them: controllers before Kafka 4.3
        cannot read it."""
        if self._image.committed.metadata_version < CORDONED_DIRECTORIES_SINCE:
            return None
        return self._cordoned_directories()


def _registration_fault(error: KafkaError) -> NodeFault:
    return NodeFault(f"the controller rejected the registration of this broker: {error}. {_hint(error)}")


def _hint(error: KafkaError) -> str:
    if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
        return "Give this node a node.id of its own, or stop the other process"
    if error.code is ErrorCode.INCONSISTENT_CLUSTER_ID:
        return "Point controller.quorum.bootstrap.servers at this node's own cluster, or format it for that cluster"
    if error.code is ErrorCode.REQUEST_TIMED_OUT:
        return "Check that a majority of the controllers runs and is reachable from this node"
    return "See the controller's log"


def registration_listeners(listeners: Listeners) -> list[Listener]:
    return [
        Listener(name=name, host=address.host, port=address.port, security_protocol=SECURITY_PROTOCOLS[protocol])
        for name, address, protocol in listeners
    ]


def registration_features() -> list[Feature]:
    return [
        Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in SUPPORTED_FEATURES.items()
    ]
