"""The shards of a broker follow the leadership of the partitions of their internal topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from strandline.coordinator.decision import Decision
from strandline.coordinator.groups import GroupMachine
from strandline.coordinator.offsets import CommittedOffset, offset_record
from strandline.coordinator.records import GROUP_RECORDS
from strandline.coordinator.settings import GroupSettings
from strandline.coordinator.shard import Shard, ShardSettings
from strandline.coordinator.shards import Shards
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.records.errors import CorruptBatch
from strandline.runtime.tasks import TaskGroup
from unit.coordinator.memory_log import MemoryLog
from unit.coordinator.virtual_time import LoopClock, run

TOPIC = "__consumer_offsets"


class DamagedLog(MemoryLog):
    async def read_all(self) -> AsyncIterator[memoryview]:
        raise CorruptBatch("as the test wants it")
        yield memoryview(b"")


class Broker:
    def __init__(self, tasks: TaskGroup, *logs: MemoryLog) -> None:
        self.logs = list(logs)
        self.partition_count: int | None = 4
        self.loaded: list[int] = []
        self.shards: Shards[GroupMachine] = Shards(
            TOPIC,
            GROUP_RECORDS,
            lambda partition, leader_epoch: GroupMachine(GroupSettings, Random(1)),
            self._open,
            lambda: self.partition_count,
            LoopClock(),
            ShardSettings(0, 5_000),
            tasks,
            self._on_loaded,
        )

    async def _open(self, topic_partition: TopicPartition, leader_epoch: int) -> MemoryLog:
        return self.logs.pop(0)

    async def _on_loaded(self, shard: Shard[GroupMachine]) -> None:
        self.loaded.append(shard.topic_partition.partition)

    def refusal(self, partition: int) -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            self.shards.for_partition(partition)
        return refused.value.code


def test_a_partition_is_served_from_when_it_is_loaded_until_the_leadership_ends() -> None:
    async def scene() -> None:
        async with TaskGroup() as tasks:
            broker = Broker(tasks, MemoryLog())
            assert broker.refusal(2) is ErrorCode.NOT_COORDINATOR
            broker.shards.on_elected(2, leader_epoch=5)
            assert broker.refusal(2) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and broker.shards.is_loading
            await asyncio.sleep(0.01)
            shard = broker.shards.for_partition(2)
            assert broker.shards.active() == [shard] and broker.loaded == [2]
            waiting = asyncio.ensure_future(shard.write(lambda machine, token, now: Decision(None)))
            await asyncio.sleep(0)
            broker.shards.on_resigned(2)
            with pytest.raises(KafkaError) as refused:
                await waiting
            assert refused.value.code is ErrorCode.NOT_COORDINATOR is broker.refusal(2)
            assert broker.shards.active() == []

    run(scene)


def test_a_new_leader_epoch_loads_the_partition_again_and_an_old_one_does_nothing() -> None:
    async def scene() -> None:
        async with TaskGroup() as tasks:
            first = MemoryLog()
            broker = Broker(tasks, first)
            broker.shards.on_elected(0, leader_epoch=5)
            await asyncio.sleep(0.01)
            record = offset_record("g", "t", 0, CommittedOffset(5, -1, "", 1))
            await broker.shards.for_partition(0).write(lambda machine, token, now: Decision(True, [record]))
            before = broker.shards.for_partition(0)
            broker.shards.on_elected(0, leader_epoch=5)
            assert broker.shards.for_partition(0) is before
            broker.logs.append(first.successor())
            broker.shards.on_elected(0, leader_epoch=6)
            await asyncio.sleep(0.01)
            after = broker.shards.for_partition(0)
            assert after is not before and after.machine.offsets.count() == 1
            broker.shards.unload_all()

    run(scene)


def test_leadership_that_ends_while_the_partition_is_loaded_leaves_nothing_behind() -> None:
    async def scene() -> None:
        async with TaskGroup() as tasks:
            broker = Broker(tasks, MemoryLog())
            broker.shards.on_elected(1, leader_epoch=5)
            broker.shards.on_resigned(1)
            await asyncio.sleep(0.01)
            assert broker.refusal(1) is ErrorCode.NOT_COORDINATOR and broker.loaded == [] and broker.shards.failed == 0

    run(scene)


def test_a_partition_that_cannot_be_loaded_is_not_served() -> None:
    async def scene() -> None:
        async with TaskGroup() as tasks:
            broker = Broker(tasks, DamagedLog())
            broker.shards.on_elected(1, leader_epoch=5)
            await asyncio.sleep(0.01)
            assert broker.refusal(1) is ErrorCode.NOT_COORDINATOR and broker.shards.failed == 1

    run(scene)


def test_without_the_internal_topic_no_coordinator_is_available() -> None:
    async def scene() -> None:
        async with TaskGroup() as tasks:
            broker = Broker(tasks)
            broker.partition_count = None
            with pytest.raises(KafkaError) as refused:
                broker.shards.for_key("g")
            assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(scene)
