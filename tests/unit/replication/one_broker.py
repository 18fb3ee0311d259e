"""A broker's logs on a simulated machine: real store, real table, virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from strandline.log.settings import LogSettings
from strandline.log.store import LogStore
from strandline.log.validation import validate
from strandline.metadata.image import Image
from strandline.model.ids import TopicPartition, Uuid
from strandline.protocol.messages.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord
from strandline.records.batch import Record, encode_batch
from strandline.replication.flush_scheduler import FlushScheduler
from strandline.replication.hosted_logs import HostedLogs
from strandline.replication.partition import Partition
from strandline.replication.table import PartitionTable
from strandline.runtime.tasks import TaskGroup
from strandline.runtime.world import World
from strandline.simulation.world import Simulation

NODE = 1
DIRECTORY = Uuid.of(9, 9)
TOPIC_ID = Uuid.of(1, 1)


@dataclass
class Rig:
    world: World
    image: Image
    store: LogStore
    logs: HostedLogs
    partitions: PartitionTable
    tasks: TaskGroup
    settings: dict[str, LogSettings]
    handed_over: list[Partition]

    def create(self, topic: str, topic_id: Uuid = TOPIC_ID, leader_epoch: int = 0) -> None:
        offset = self.image.end_offset
        self.image.replay_batch(
            offset,
            [
                TopicRecord(name=topic, topic_id=topic_id),
                PartitionRecord(
                    partition_id=0,
                    topic_id=topic_id,
                    replicas=[NODE],
                    isr=[NODE],
                    leader=NODE,
                    leader_epoch=leader_epoch,
                    partition_epoch=0,
                    directories=[DIRECTORY],
                ),
            ],
        )
        self.image.commit(offset + 2)

    def delete(self, topic: str, topic_id: Uuid = TOPIC_ID) -> None:
        offset = self.image.end_offset
        self.image.replay_batch(offset, [RemoveTopicRecord(topic_id=topic_id)])
        self.image.commit(offset + 1)
        self.partitions.drop(topic_id, 0)
        self.logs.delete_soon(TopicPartition(topic, 0), 0)

    def partition(self, topic: str) -> Partition:
        return self.partitions.find(topic, TOPIC_ID, 0)

    def append(self, partition: Partition, *values: bytes | None, key: bytes | None = None) -> int:
        clock = self.world.clock
        records = [Record(index, clock.wall_ms(), key, value, ()) for index, value in enumerate(values)]
        batch = memoryview(encode_batch(records))
        assert partition.log is not None
        validated = validate(batch, partition.log.settings, wall_ms=clock.wall_ms(), api_version=13)
        return partition.append_as_leader(validated, wall_ms=clock.wall_ms(), now_ms=clock.now_ms()).base_offset


def on_virtual_time(scenario: Callable[[Rig], Awaitable[None]], seed: int = 1) -> None:
    with Simulation(seed) as simulation:
        task = simulation.machine("node").boot(lambda world: _program(world, scenario))
        simulation.run(task, max_virtual_s=600)


async def _program(world: World, scenario: Callable[[Rig], Awaitable[None]]) -> None:
    settings: dict[str, LogSettings] = {}
    world.disk.make_dirs("/data")
    store = LogStore.open(world.disk, {"/data": DIRECTORY}, world.random)
    async with TaskGroup() as tasks:
        image, logs = Image(), HostedLogs(store, world)
        flusher = FlushScheduler(world.offload, tasks)
        handed_over: list[Partition] = []
        partitions = PartitionTable(
            NODE,
            image,
            logs.open,
            lambda topic: settings.get(topic, LogSettings()),
            flusher,
            lambda partition, change: None,
            handed_over.append,
            30_000,
        )
        await scenario(Rig(world, image, store, logs, partitions, tasks, settings, handed_over))
        tasks.cancel()
