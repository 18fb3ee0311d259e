"""Damaged replicas: another replica leads, and they fetch the damaged records again."""

from __future__ import annotations

import asyncio
from typing import cast

from strandline.handlers.fetch import handle_fetch
from strandline.log.cold_reads import ColdRead
from strandline.log.partition_log import PartitionLog
from strandline.metadata.values import PartitionInfo
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from strandline.replication.partition import Partition
from unit.handlers.metadata_broker import FakeCall
from unit.replication.one_broker import NODE, Rig
from unit.replication.one_broker import on_virtual_time as on_one_broker
from unit.replication.three_brokers import TOPIC_ID, Cluster, ReplicatingBroker, on_virtual_time


def damage(log: PartitionLog, at: float = 0.5) -> None:
    """Flips a bit in the file, and forgets that its batches were verified."""
    segment = log.segments[0]
    position = int(segment.size * at)
    file = segment.log_file()
    file.write_at(position, bytes([file.read_at(position, 1)[0] ^ 0x10]))
    segment.trusted_from, segment.verified, segment.recent, segment.hints = segment.size, (), None, None


def find_damage(log: PartitionLog) -> None:
    """Reads as a consumer does."""
    read = log.read(log.log_start_offset, max_bytes=1 << 20)
    assert isinstance(read, ColdRead)
    read.load()
    assert not log.is_intact


def elect_on_hand_over(cluster: Cluster, to: int) -> None:
    """Elects another leader when a leader reports its replica as damaged, as the controller does."""

    def elect(partition: Partition) -> None:
        if cluster.leader != to:
            cluster.elect(to, [member for member in cluster.isr if member != cluster.leader])

    for broker in cluster.brokers.values():
        broker.on_hand_over = elect


async def consume(broker: ReplicatingBroker, offset: int) -> PartitionData:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[wanted])])
    response = await handle_fetch(broker.context, FakeCall(ApiKey.FETCH, 17), request)
    return response.responses[0].partitions[0]


VALUES = [f"value-{number}" for number in range(20)]


def test_a_leader_with_damaged_records_hands_over_leadership_and_fetches_them_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        for value in VALUES:
            assert await cluster.brokers[1].produce(value) == ErrorCode.NONE
        elect_on_hand_over(cluster, to=2)
        log = await cluster.brokers[1].partition.ready()
        damage(log)
        assert (await consume(cluster.brokers[1], 10)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (cluster.leader, cluster.isr) == (2, (2, 3))
        await asyncio.sleep(2)
        assert (cluster.leader, cluster.isr) == (2, (2, 3, 1))
        for broker in cluster.brokers.values():
            assert await broker.values() == VALUES
        assert log.is_intact and log.high_watermark == len(VALUES)
        cluster.elect(1)
        response = await consume(cluster.brokers[1], 0)
        assert response.error_code == ErrorCode.NONE and await cluster.brokers[1].produce("more") == ErrorCode.NONE

    on_virtual_time(scenario)


def test_damage_found_by_a_read_ahead_is_handled_by_the_next_lag_check() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        for value in VALUES:
            await cluster.brokers[1].produce(value)
        elect_on_hand_over(cluster, to=3)
        damage(await cluster.brokers[1].partition.ready())
        assert (await consume(cluster.brokers[1], 0)).error_code == ErrorCode.NONE
        assert cluster.leader == 1
        await asyncio.sleep(6)
        assert cluster.leader == 3
        assert await cluster.brokers[1].values() == VALUES

    on_virtual_time(scenario)


def test_a_damaged_leader_without_a_replacement_serves_its_undamaged_records() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create(isr=[1])
        cluster.unreachable |= {2, 3}
        for value in VALUES:
            await cluster.brokers[1].produce(value, acks=1)
        cluster.brokers[1].on_hand_over = lambda partition: (_ for _ in ()).throw(AssertionError(partition))
        damage(await cluster.brokers[1].partition.ready())
        read = await consume(cluster.brokers[1], 10)
        assert read.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE)
        assert cluster.leader == 1 and await cluster.brokers[1].produce("more", acks=1) == ErrorCode.NONE

    on_virtual_time(scenario)


def test_a_follower_with_damaged_records_leaves_the_isr_until_it_has_fetched_them_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        for value in VALUES:
            await cluster.brokers[1].produce(value)
        await asyncio.sleep(1)
        log = await cluster.brokers[3].partition.ready()
        damage(log)
        seen: list[tuple[int, ...]] = []
        cluster.image.commit_listeners.append(lambda touched: seen.append(cluster.isr))
        find_damage(log)
        await cluster.brokers[1].produce("more")
        await asyncio.sleep(2)
        assert seen == [(1, 2), (1, 2, 3)]
        assert await cluster.brokers[3].values() == [*VALUES, "more"]

    on_virtual_time(scenario)


def test_a_replica_that_truncated_damaged_records_does_not_lead_before_it_has_fetched_them_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        for value in VALUES:
            await cluster.brokers[1].produce(value)
        await asyncio.sleep(1)
        broker, handed_over = cluster.brokers[3], cast(list[Partition], [])
        log = await broker.partition.ready()
        broker.on_hand_over = handed_over.append
        damage(log)
        find_damage(log)
        damaged_at = log.damaged_at
        cluster.unreachable.add(1)
        cluster.elect(1)
        await asyncio.sleep(3)
        assert log.log_end_offset == damaged_at
        cluster.elect(3)
        assert handed_over and await broker.produce("lost") == ErrorCode.KAFKA_STORAGE_ERROR

    on_virtual_time(scenario)


def test_a_replica_without_committed_records_does_not_lead_while_another_is_in_the_elr() -> None:
    async def scenario(rig: Rig) -> None:
        rig.store.directories[0].missing[TopicPartition("t", 0)] = 10
        rig.create("t")
        partition = rig.partition("t")
        partition.on_metadata(
            PartitionInfo((NODE, 2), (NODE,), leader=NODE, leader_epoch=1, partition_epoch=5, elr=(2,))
        )
        await partition.ready()
        assert rig.handed_over == [partition]
        try:
            partition.leading()
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        else:
            raise AssertionError("it leads")

    on_one_broker(scenario)
