"""Reports of replica directories and of damaged leaders to the controller."""

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
DIRECTORY, TOPIC_ID = Uuid.of(9, 9), Uuid.of(1, 1)


class ReportingBroker:
    """A broker that leads partition 0 of one topic, and a controller that records the reported directories."""

    def __init__(self) -> None:
        self.image = Image()
        partition = PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=[1, 2],
            isr=[1, 2],
            leader=NODE,
            directories=[DIRECTORY, Uuid.of(9, 8)],
        )
        self.write(TopicRecord(name="t", topic_id=TOPIC_ID), partition)
        self.reported: list[Uuid] = []
        self.errors: list[ErrorCode] = []
        self.assignments = DirectoryAssignments(NODE, lambda: EPOCH, self.image, self.send)

    def write(self, *records: Message) -> None:
        self.image.replay_batch(self.image.end_offset, records)
        self.image.commit(self.image.end_offset)

    async def send(self, request: Message, response: type[Any], *, timeout_ms: int | None = None) -> Any:
        await asyncio.sleep(0.001)
        assert isinstance(request, AssignReplicasToDirsRequest)
        assert (request.broker_id, request.broker_epoch) == (NODE, EPOCH)
        if self.errors:
            raise KafkaError(self.errors.pop(0))
        self.reported += [directory.id for directory in request.directories]
        return AssignReplicasToDirsResponse(directories=[])


def run_scenario(scenario: Callable[[ReportingBroker], Awaitable[None]]) -> None:
    async def program(world: World) -> None:
        broker = ReportingBroker()
        async with TaskGroup() as tasks:
            tasks.start(broker.assignments.run())
            await scenario(broker)
            tasks.cancel()

    with Simulation(1) as simulation:
        simulation.run(simulation.machine("node").boot(program), max_virtual_s=60)


def test_a_damaged_leader_is_reported_as_lost_and_then_in_its_directory() -> None:
    async def scenario(broker: ReportingBroker) -> None:
        broker.assignments.on_damaged_leader(TOPIC_ID, 0, DIRECTORY)
        broker.assignments.on_damaged_leader(TOPIC_ID, 0, DIRECTORY)
        await asyncio.sleep(1)
        assert broker.reported == [DIRECTORY_LOST, DIRECTORY]

    run_scenario(scenario)


def test_a_report_is_retried_until_a_controller_responds() -> None:
    async def scenario(broker: ReportingBroker) -> None:
        broker.errors = [ErrorCode.REQUEST_TIMED_OUT] * 2
        broker.assignments.on_damaged_leader(TOPIC_ID, 0, DIRECTORY)
        await asyncio.sleep(5)
        assert broker.reported == [DIRECTORY_LOST, DIRECTORY]

    run_scenario(scenario)


def test_a_damaged_replica_that_no_longer_leads_is_not_reported_as_lost() -> None:
    async def scenario(broker: ReportingBroker) -> None:
        broker.errors = [ErrorCode.REQUEST_TIMED_OUT]
        broker.assignments.on_damaged_leader(TOPIC_ID, 0, DIRECTORY)
        await asyncio.sleep(0.1)
        broker.write(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, leader=2))
        await asyncio.sleep(5)
        assert broker.reported == [DIRECTORY]

    run_scenario(scenario)


def test_with_metadata_without_directories_the_hand_over_is_not_retried() -> None:
    async def scenario(broker: ReportingBroker) -> None:
        broker.errors = [ErrorCode.UNSUPPORTED_VERSION]
        broker.assignments.on_damaged_leader(TOPIC_ID, 0, DIRECTORY)
        await asyncio.sleep(5)
        assert broker.reported == []

    run_scenario(scenario)
