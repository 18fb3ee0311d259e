"""What a broker tells the controller about where its replicas are, and that one is damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from strandline.metadata.image import Image
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import DIRECTORY_LOST, Uuid
from strandline.node.directory_assignments import DirectoryAssignments
from strandline.protocol.messages.brokers import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from strandline.protocol.messages.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord
from strandline.protocol.types import Message
from strandline.runtime.tasks import TaskGroup
from strandline.runtime.world import World
from strandline.simulation.world import Simulation

NODE, EPOCH = 1, 7
HOME, TOPIC_ID = Uuid.of(9, 9), Uuid.of(1, 1)


class Desk:
    """A broker that leads partition 0 of one topic, and a controller that writes down what it is told."""

    def __init__(self) -> None:
        self.image = Image()
        partition = PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=[1, 2],
            isr=[1, 2],
            leader=NODE,
            directories=[HOME, Uuid.of(9, 8)],
        )
        self.write(TopicRecord(name="t", topic_id=TOPIC_ID), partition)
        self.told: list[Uuid] = []
        self.refusals: list[ErrorCode] = []
        self.assignments = DirectoryAssignments(NODE, lambda: EPOCH, self.image, self.send)

    def write(self, *records: Message) -> None:
        self.image.replay_batch(self.image.end_offset, records)
        self.image.commit(self.image.end_offset)

    async def send(self, request: Message, response: type[Any], *, timeout_ms: int | None = None) -> Any:
        await asyncio.sleep(0.001)
        assert isinstance(request, AssignReplicasToDirsRequest)
        assert (request.broker_id, request.broker_epoch) == (NODE, EPOCH)
        if self.refusals:
            raise KafkaError(self.refusals.pop(0))
        self.told += [directory.id for directory in request.directories]
        return AssignReplicasToDirsResponse(directories=[])


def at_a_desk(scenario: Callable[[Desk], Awaitable[None]]) -> None:
    async def program(world: World) -> None:
        desk = Desk()
        async with TaskGroup() as tasks:
            tasks.start(desk.assignments.run())
            await scenario(desk)
            tasks.cancel()

    with Simulation(1) as simulation:
        simulation.run(simulation.machine("node").boot(program), max_virtual_s=60)


def test_a_damaged_replica_is_lost_and_then_where_it_was() -> None:
    async def scenario(desk: Desk) -> None:
        desk.assignments.on_damaged_leader(TOPIC_ID, 0, HOME)
        desk.assignments.on_damaged_leader(TOPIC_ID, 0, HOME)
        await asyncio.sleep(1)
        assert desk.told == [DIRECTORY_LOST, HOME]

    at_a_desk(scenario)


def test_it_is_told_until_a_controller_hears_it() -> None:
    async def scenario(desk: Desk) -> None:
        desk.refusals = [ErrorCode.REQUEST_TIMED_OUT] * 2
        desk.assignments.on_damaged_leader(TOPIC_ID, 0, HOME)
        await asyncio.sleep(5)
        assert desk.told == [DIRECTORY_LOST, HOME]

    at_a_desk(scenario)


def test_who_does_not_lead_any_more_when_it_is_told_is_not_lost() -> None:
    async def scenario(desk: Desk) -> None:
        desk.refusals = [ErrorCode.REQUEST_TIMED_OUT]
        desk.assignments.on_damaged_leader(TOPIC_ID, 0, HOME)
        await asyncio.sleep(0.1)
        desk.write(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, leader=2))
        await asyncio.sleep(5)
        assert desk.told == [HOME]

    at_a_desk(scenario)


def test_metadata_that_knows_no_directories_is_not_asked_for_ever() -> None:
    async def scenario(desk: Desk) -> None:
        desk.refusals = [ErrorCode.UNSUPPORTED_VERSION]
        desk.assignments.on_damaged_leader(TOPIC_ID, 0, HOME)
        await asyncio.sleep(5)
        assert desk.told == []

    at_a_desk(scenario)
