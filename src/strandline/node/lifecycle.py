"""The broker's life as the controller sees it: registered, unfenced once it has caught up, heard of every two seconds,
and gone in good order.

Registration carries the broker epoch of the last clean shutdown, if there was one: it tells the controller whether
this broker's replicas may still be trusted (KIP-966).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from strandline.metadata.features import SUPPORTED_FEATURES
from strandline.metadata.image import Image
from strandline.metadata.record_versions import CONTROLLERS_SINCE
from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.model.ids import Endpoint, Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from strandline.protocol.types import Message

logger = logging.getLogger(__name__)

SECURITY_PROTOCOLS: Mapping[str, int] = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


# (name, advertised address, security protocol)
Listeners = tuple[tuple[str, Endpoint, str], ...]


@dataclass(frozen=True, slots=True)
class Registration:
    """What a broker says of itself when it registers."""

    broker_id: int
    cluster_id: str
    incarnation_id: Uuid
    listeners: Listeners
    rack: str | None
    directories: tuple[Uuid, ...]
    previous_broker_epoch: int


class Lifecycle:
    def __init__(
        self,
        registration: Registration,
        image: Image,
        send: Callable[[ApiKey, Message], Awaitable[Any]],
        *,
        heartbeat_interval_ms: int,
        offline_directories: Callable[[], list[Uuid]],
    ) -> None:
        self._registration = registration
        self._image = image
        self._send = send
        self._interval_ms = heartbeat_interval_ms
        self._offline_directories = offline_directories
        self.broker_epoch = -1

    async def register(self) -> None:
        mine = self._registration
        response: BrokerRegistrationResponse = await self._send(
            ApiKey.BROKER_REGISTRATION,
            BrokerRegistrationRequest(
                broker_id=mine.broker_id,
                cluster_id=mine.cluster_id,
                incarnation_id=mine.incarnation_id,
                listeners=_listeners(mine.listeners),
                features=_features(),
                rack=mine.rack,
                log_dirs=sorted(mine.directories),
                previous_broker_epoch=mine.previous_broker_epoch,
            ),
        )
        self.broker_epoch = response.broker_epoch
        logger.info("registered as broker %d with epoch %d", mine.broker_id, self.broker_epoch)

    async def register_controller(self, listeners: Listeners) -> None:
        """A node that is also a controller says where, and what it supports: feature upgrades ask for that."""
        if self._image.committed.metadata_version < CONTROLLERS_SINCE:
            return
        await self._send(
            ApiKey.CONTROLLER_REGISTRATION,
            ControllerRegistrationRequest(
                controller_id=self._registration.broker_id,
                incarnation_id=self._registration.incarnation_id,
                listeners=_listeners(listeners),
                features=_features(),
            ),
        )

    async def unfence(self) -> None:
        """Returns when the controller lets this broker lead and clients see it."""
        while (await self._heartbeat()).is_fenced:
            await asyncio.sleep(0.01)

    async def run(self) -> None:
        """Heartbeats for as long as the broker lives. Ends by cancellation."""
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            try:
                await self._heartbeat()
            except KafkaError as error:
                if error.code is not ErrorCode.STALE_BROKER_EPOCH:
                    logger.warning("a heartbeat failed: %s", error)
                elif self._image.committed.broker(self._registration.broker_id) is not None:
                    raise NodeFault("another process has registered under this broker's id") from error
                else:
                    logger.warning("this broker was unregistered while it runs; it registers again")
                    await self.register()

    async def leave(self, timeout_ms: int) -> None:
        """Controlled shutdown: leaderships go first, then the controller says that it is time."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not (await self._heartbeat(leaving=True)).should_shut_down:
                    await asyncio.sleep(0.05)
        except (TimeoutError, KafkaError) as error:
            logger.warning("leaving without the controller's consent: %s", error or "it did not come in time")

    async def _heartbeat(self, *, leaving: bool = False) -> BrokerHeartbeatResponse:
        response: BrokerHeartbeatResponse = await self._send(
            ApiKey.BROKER_HEARTBEAT,
            BrokerHeartbeatRequest(
                broker_id=self._registration.broker_id,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=self._image.committed.offset - 1,
                want_fence=False,
                want_shut_down=leaving,
                offline_log_dirs=self._offline_directories(),
            ),
        )
        return response


def _listeners(listeners: Listeners) -> list[Listener]:
    return [
        Listener(name=name, host=address.host, port=address.port, security_protocol=SECURITY_PROTOCOLS[protocol])
        for name, address, protocol in listeners
    ]


def _features() -> list[Feature]:
    return [
        Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in SUPPORTED_FEATURES.items()
    ]
