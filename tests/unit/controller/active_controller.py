"""A controller on a log whose commits the test makes, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

from strandline.controller.controller import Controller
from strandline.controller.settings import ControllerSettings
from strandline.metadata.features import SUPPORTED_FEATURES, bootstrap_records
from strandline.metadata.image import Image
from strandline.metadata.values import BrokerInfo
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid
from strandline.protocol.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from strandline.protocol.messages.cluster import UpdateFeaturesResponse
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from strandline.protocol.types import Message
from strandline.runtime.metrics import Metrics
from strandline.runtime.watermark import Watermark
from strandline.runtime.world import World
from strandline.simulation.world import Simulation

SETTINGS = ControllerSettings(node_id=100, cluster_id="cluster")


class ManualLog:
    """A metadata log whose commits the test makes."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self.is_leader = True
        self.former_leader: tuple[int, int] | None = None
        self.epoch = 1
        self.kraft_version = 1
        self.end_offset = 0
        self.committed = Watermark(0)
        self.batches: list[Sequence[Message]] = []
        self.reserved = False
        self.rejects_upgrades = False

    def reserve(self) -> int:
        assert not self.reserved
        self.reserved = True
        return self.end_offset

    def release(self) -> None:
        self.reserved = False

    def append(self, records: Sequence[Message]) -> int:
        assert self.reserved
        self.reserved = False
        self.batches.append(records)
        self.end_offset += len(records)
        return self.end_offset - 1

    async def upgrade_kraft_version(self, level: int) -> UpdateFeaturesResponse:
        assert not self.reserved, "the quorum appends a record of its own"
        if self.rejects_upgrades:
            return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message="not now")
        self.kraft_version = level
        return UpdateFeaturesResponse()

    def commit(self, offset: int | None = None) -> None:
        upto = self.end_offset if offset is None else offset
        self._image.commit(upto)
        self.committed.advance(upto)

    def lose(self) -> None:
        """Loses the leadership: uncommitted records are truncated and reverted in the image."""
        self._image.revert_to_committed(max(self.committed.value, self._image.timeline.committed))
        self.is_leader = False
        self.epoch += 1
        self.end_offset = self.committed.value
        self.committed.lose(KafkaError(ErrorCode.NOT_CONTROLLER))

    def win(self) -> None:
        self.is_leader = True
        self.epoch += 1
        self.committed = Watermark(self.end_offset)


class ActiveController:
    def __init__(self, world: World, settings: ControllerSettings = SETTINGS, **parts: Any) -> None:
        self.clock = world.clock
        self.image = Image()
        self.log = ManualLog(self.image)
        self.metrics = Metrics()
        self.controller = Controller(
            self.image, self.log, world.clock, Random(1), settings, bootstrap_records(), metrics=self.metrics, **parts
        )

    async def activate(self) -> None:
        await self.committing(self.controller.activate())

    def lose(self) -> None:
        self.log.lose()
        self.controller.renounce()

    async def win(self) -> None:
        self.log.win()
        await self.activate()

    async def with_broker(self, broker_id: int = 1) -> ActiveController:
        if not self.controller.is_active:
            await self.activate()
        response = await self.committing(self.controller.register_broker(self.registration(broker_id)))
        await self.committing(self.heartbeat(response.broker_epoch, broker_id))
        return self

    def registration(self, broker_id: int = 1, incarnation: int = 8, **fields: Any) -> BrokerRegistrationRequest:
        given: dict[str, Any] = {
            "broker_id": broker_id,
            "cluster_id": "cluster",
            "incarnation_id": Uuid.of(broker_id, incarnation),
            "rack": None,
            "listeners": [Listener(name="PLAINTEXT", host="h", port=9000 + broker_id)],
            "log_dirs": [Uuid.of(7, 777 + broker_id)],
            "features": [
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
        }
        return BrokerRegistrationRequest(**{**given, **fields})

    def heartbeat(self, epoch: int | None = None, broker_id: int = 1, **fields: Any) -> Awaitable[Any]:
        return self.controller.broker_heartbeat(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=self.broker(broker_id).epoch if epoch is None else epoch,
                current_metadata_offset=self.log.end_offset,
                **fields,
            )
        )

    def broker(self, broker_id: int = 1) -> BrokerInfo:
        broker = self.image.latest.broker(broker_id)
        assert broker is not None
        return broker

    async def committing(self, call: Awaitable[Any]) -> Any:
        """The response of the call; commits whatever it appends."""
        task = asyncio.ensure_future(call)
        while not task.done():
            await asyncio.sleep(0)
            self.log.commit()
        return task.result()

    def create(self, name: str, partitions: int = 1, **options: Any) -> asyncio.Task[CreateTopicsResponse]:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        return asyncio.create_task(self.controller.create_topics(CreateTopicsRequest(topics=[topic], **options)))

    def measured(self, name: str) -> float:
        return self.metrics.snapshot(self.clock.now_ms())[name]


def simulate(cluster: Callable[[World], Awaitable[None]]) -> None:
    with Simulation(seed=1) as simulation:

        async def scenario() -> None:
            async def program(world: World) -> None:
                await cluster(world)

            await simulation.machine("node").boot(program)

        simulation.run(scenario(), max_virtual_s=1000)
