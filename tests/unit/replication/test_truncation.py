"""Truncations of a follower's log, and leader changes while one waits for its lock or runs."""

from __future__ import annotations

import asyncio

import pytest

from strandline.log.partition_log import PartitionLog
from strandline.metadata.values import PartitionInfo
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.fetch import FetchRequest
from strandline.protocol.types import Message
from strandline.records.batch import Record, encode_batch
from strandline.replication.partition import Partition
from unit.replication import three_brokers
from unit.replication.one_broker import NODE, Rig, on_virtual_time
from unit.replication.three_brokers import Cluster

OTHER = 2


def info(leader: int, epoch: int) -> PartitionInfo:
    return PartitionInfo((NODE, OTHER), (NODE,), leader=leader, leader_epoch=epoch, partition_epoch=epoch)


async def follower(rig: Rig) -> tuple[Partition, PartitionLog]:
    """With three records, in leader epoch 1."""
    rig.create("t")
    partition = rig.partition("t")
    log = await partition.ready()
    rig.append(partition, b"a")
    rig.append(partition, b"b")
    rig.append(partition, b"c")
    partition.on_metadata(info(OTHER, 1))
    return partition, log


def truncate(rig: Rig, partition: Partition, offset: int) -> asyncio.Future[object]:
    return asyncio.ensure_future(
        partition.truncate(lambda log: log.begin_truncation(offset), rig.world.offload, partition.info.leader_epoch)
    )


def record(offset: int) -> memoryview:
    return memoryview(encode_batch([Record(0, 0, None, b"x", ())], base_offset=offset, leader_epoch=1))


@pytest.mark.parametrize("leader", [NODE, OTHER])
def test_a_truncation_that_gets_its_lock_in_another_leader_epoch_is_cancelled(leader: int) -> None:
    async def scenario(rig: Rig) -> None:
        partition, log = await follower(rig)
        async with partition.changing:
            waiting = truncate(rig, partition, 1)
            await asyncio.sleep(0.01)
            partition.on_metadata(info(leader, 2))
        with pytest.raises(KafkaError) as raised:
            await waiting
        assert raised.value.code == ErrorCode.FENCED_LEADER_EPOCH
        assert log.log_end_offset == 3
        assert not partition.is_truncating
        assert (partition.leader is not None) is (leader == NODE)
        if leader == NODE:
            rig.append(partition, b"d")
            assert log.epochs.entries[-1] == (2, 3)

    on_virtual_time(scenario)


def test_a_broker_elected_during_a_truncation_leads_when_the_truncation_is_done() -> None:
    async def scenario(rig: Rig) -> None:
        partition, log = await follower(rig)
        truncation = truncate(rig, partition, 1)
        while log.truncating_to is None:
            await asyncio.sleep(0)
        partition.on_metadata(info(NODE, 2))
        assert partition.leader is None
        await truncation
        assert log.log_end_offset == 1
        assert partition.leading().epoch_start_offset == 1

    on_virtual_time(scenario)


def test_a_follower_appends_only_at_its_log_end_and_in_its_leader_epoch() -> None:
    async def scenario(rig: Rig) -> None:
        partition, log = await follower(rig)

        def append(offset: int, leader_epoch: int, fetched: int) -> None:
            partition.append_as_follower(record(offset), leader_epoch=leader_epoch, offset=fetched, wall_ms=0, now_ms=0)

        with pytest.raises(KafkaError):
            append(4, 1, 4)  # a record would be missing
        with pytest.raises(KafkaError):
            append(3, 0, 3)  # of an earlier leader epoch
        truncation = truncate(rig, partition, 1)
        await asyncio.sleep(0)
        with pytest.raises(KafkaError):
            append(3, 1, 3)  # about to be truncated
        await truncation
        with pytest.raises(KafkaError):
            append(3, 1, 3)
        assert log.log_end_offset == 1
        append(7, 1, 1)  # the leader has compacted what was in between
        assert log.log_end_offset == 8
        partition.on_metadata(info(NODE, 2))
        with pytest.raises(KafkaError):
            append(8, 1, 8)

    on_virtual_time(scenario)


def test_a_follower_in_a_new_epoch_does_not_fetch_during_a_truncation_of_the_last_one() -> None:
    """Broker 1 has to truncate a record that no other replica has, and gets the lock only in the next leader epoch."""

    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        fetched: list[int] = []
        call = cluster.call

        async def noted(endpoint: object, request: Message, *, timeout_ms: int) -> Message:
            if isinstance(request, FetchRequest) and request.replica_state.replica_id == 1:
                fetched.extend(each.fetch_offset for topic in request.topics for each in topic.partitions)
            return await call(endpoint, request, timeout_ms=timeout_ms)  # type: ignore[arg-type]

        cluster.call = noted  # type: ignore[method-assign, assignment]
        old = cluster.brokers[1]
        await old.produce("a")
        cluster.unreachable.add(1)
        await old.produce("lost", acks=1)
        cluster.elect(2, isr=[2, 3])
        await cluster.brokers[2].produce("b")
        async with old.partition.changing:
            cluster.unreachable.clear()
            while not old.partition.is_truncating:
                await asyncio.sleep(0.01)
            fetched.clear()
            cluster.elect(3)
            await asyncio.sleep(3)
            assert fetched == []
        await asyncio.sleep(3)
        assert await cluster.brokers[3].produce("c") == ErrorCode.NONE
        assert await old.values() == ["a", "b", "c"]
        assert 1 in cluster.isr

    three_brokers.on_virtual_time(scenario)
