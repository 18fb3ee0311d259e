"""The broker's life as the controller sees it: registered, unfenced once it has caught up, heard of every two seconds,
and gone in good order.

Registration carries the broker epoch since which this broker has kept everything, if it can say so: it tells the
controller whether its replicas may still be trusted (KIP-966, `node/previous_broker_epoch`).
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


# How soon to ask again: for a registration while a predecessor may be alive, fenced, leaving.
_REGISTRATION_RETRY_MS: Final = 100
_FENCED_RETRY_MS: Final = 20
_LEAVE_RETRY_MS: Final = 50
# Longer than a controller that resigns or is killed takes to be replaced.
_SILENCE_WHEN_LEAVING_MS: Final = 1_200

# Another process has this broker's id, or it speaks to another cluster: no later registration ends otherwise.
_INCURABLE: Final = frozenset({ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.INCONSISTENT_CLUSTER_ID})

# (name, advertised address, security protocol)
Listeners = tuple[tuple[str, Endpoint, str], ...]


class Registration(msgspec.Struct, frozen=True):
    """What a broker says of itself when it registers."""

    broker_id: int
    cluster_id: str
    incarnation_id: Uuid
    listeners: Listeners
    rack: str | None
    directories: tuple[Uuid, ...]
    previous_broker_epoch: int


class Send(Protocol):
    """To the active controller (`node/controller_channel`), which is looked for until the time is up."""

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
        self._is_leaving = False
        self._news = asyncio.Event()

    def send_heartbeat_soon(self) -> None:
        """There may be news for the controller, which should not have to wait for the next heartbeat."""
        self._news.set()

    async def register(self) -> None:
        """A broker that starts: returns when the controller knows it. It stops if that does not come to pass."""
        try:
            await self._register(self._registration_ms)
        except KafkaError as error:
            raise _unregistered(error) from error

    async def _register_again(self) -> None:
        """A broker that runs can serve what it has while no controller answers: the next heartbeat tries again."""
        try:
            await self._register(self._session_ms)
        except KafkaError as error:
            if error.code in _INCURABLE:
                raise _unregistered(error) from error
            logger.warning("not registered again yet: %s. %s", error, _hint(error))

    async def _register(self, answer_ms: int) -> None:
        """Waits so long for an answer; and longer for the controller to believe that a predecessor is dead."""
        mine = self._registration
        request = BrokerRegistrationRequest(
            broker_id=mine.broker_id,
            cluster_id=mine.cluster_id,
            incarnation_id=mine.incarnation_id,
            listeners=wire_listeners(mine.listeners),
            features=wire_features(),
            rack=mine.rack,
            log_dirs=sorted(mine.directories),
            previous_broker_epoch=mine.previous_broker_epoch,
        )
        deadline_ms = self._clock.now_ms() + self._registration_ms
        told = False
        while True:
            left_ms = max(1, min(answer_ms, deadline_ms - self._clock.now_ms()))
            try:
                response = await self._send(request, BrokerRegistrationResponse, timeout_ms=left_ms)
                break
            except KafkaError as error:
                waits = error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION and self._clock.now_ms() < deadline_ms
                if not waits:
                    raise
                if not told:
                    logger.warning("waiting to register as broker %d: %s. %s", mine.broker_id, error, _hint(error))
                    told = True
            await asyncio.sleep(_REGISTRATION_RETRY_MS / 1000)
        self.broker_epoch = response.broker_epoch
        logger.info("registered as broker %d with epoch %d", mine.broker_id, self.broker_epoch)

    async def unfence(self) -> None:
        """Returns when the controller lets this broker lead and clients see it."""
        while await self._is_fenced():
            await asyncio.sleep(_FENCED_RETRY_MS / 1000)

    async def run(self) -> None:
        """Heartbeats for as long as the broker lives. Ends by cancellation."""
        pause_ms, soon_ms = self._interval_ms, _FENCED_RETRY_MS
        while True:
            await self._pause(pause_ms)
            if self._directories_are_untold():
                await self._register_again()
            if await self._is_fenced(if_not_heard=False):
                # Taken for dead while it lives, or not caught up: the sooner it is heard again the better, at first.
                pause_ms, soon_ms = min(self._interval_ms, soon_ms), soon_ms * 2
            else:
                pause_ms, soon_ms = self._interval_ms, _FENCED_RETRY_MS

    async def _pause(self, length_ms: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(length_ms / 1000):
                await self._news.wait()
        self._news.clear()

    def _directories_are_untold(self) -> bool:
        """The cluster was upgraded to metadata that has a place for them: the same incarnation keeps its epoch."""
        view = self._image.committed
        mine = view.broker(self._registration.broker_id)
        if mine is None or mine.incarnation_id != self._registration.incarnation_id:
            return False
        return not mine.directories and view.metadata_version >= DIRECTORIES_SINCE

    async def _is_fenced(self, *, if_not_heard: bool = True) -> bool:
        """One heartbeat. A controller that does not answer may yet be replaced by one that does."""
        try:
            return (await self._heartbeat()).is_fenced
        except KafkaError as error:
            if error.code is ErrorCode.STALE_BROKER_EPOCH:
                await self._registered_anew(error)
                return True
            logger.warning("a heartbeat failed: %s", error)
            return if_not_heard

    async def _registered_anew(self, error: KafkaError) -> None:
        mine = self._registration
        known = self._image.committed.broker(mine.broker_id)
        is_other = known is not None and known.incarnation_id != mine.incarnation_id
        # What a killed predecessor had sent may arrive after its successor has registered: no danger,
        # for whoever was in these directories is gone since this process holds the lock on them.
        if known is not None and is_other and not set(known.directories) & set(mine.directories):
            raise NodeFault("another process has registered under this broker's id") from error
        who = "a predecessor was registered late" if is_other else "this broker was unregistered while it runs"
        logger.warning("%s; it registers again", who)
        await self._register_again()

    async def leave(self, timeout_ms: int) -> None:
        """Controlled shutdown: leaderships go first, then the controller says that it is time.

        Nobody is waited for who does not answer: when the controllers are stopped at the same time, there may soon be
        too few of them to say anything.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        # From here on every heartbeat says so: a late one of `run` must not bring a broker back that has been let go.
        self._is_leaving = True
        try:
            while self._clock.now_ms() < deadline_ms:
                if (await self._heartbeat(timeout_ms=_SILENCE_WHEN_LEAVING_MS)).should_shut_down:
                    return
                await asyncio.sleep(_LEAVE_RETRY_MS / 1000)
            logger.warning("leaving without the controller's consent: it did not come in time")
        except KafkaError as error:
            logger.warning("leaving without the controller's consent: %s", error)

    async def _heartbeat(self, *, timeout_ms: int | None = None) -> BrokerHeartbeatResponse:
        return await self._send(
            BrokerHeartbeatRequest(
                broker_id=self._registration.broker_id,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=self._image.committed.offset - 1,
                want_fence=False,
                want_shut_down=self._is_leaving,
                offline_log_dirs=self._offline_directories(),
                cordoned_log_dirs=self._cordoned(),
            ),
            BrokerHeartbeatResponse,
            timeout_ms=timeout_ms or self._session_ms,
        )

    def _cordoned(self) -> list[Uuid] | None:
        """None where metadata has no place for it yet, or a controller before Kafka 4.3 could not read it."""
        if self._image.committed.metadata_version < CORDONED_DIRECTORIES_SINCE:
            return None
        return self._cordoned_directories()


def _unregistered(error: KafkaError) -> NodeFault:
    return NodeFault(f"the controller does not register this broker: {error}. {_hint(error)}")


def _hint(error: KafkaError) -> str:
    if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
        return "Give this node a node.id of its own, or stop the other one"
    if error.code is ErrorCode.INCONSISTENT_CLUSTER_ID:
        return "Point controller.quorum.bootstrap.servers at this node's own cluster, or format it for that one"
    if error.code is ErrorCode.REQUEST_TIMED_OUT:
        return "See whether a majority of the controllers runs and can be reached from here"
    return "See the controller's log"


def wire_listeners(listeners: Listeners) -> list[Listener]:
    return [
        Listener(name=name, host=address.host, port=address.port, security_protocol=SECURITY_PROTOCOLS[protocol])
        for name, address, protocol in listeners
    ]


def wire_features() -> list[Feature]:
    return [
        Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in SUPPORTED_FEATURES.items()
    ]
