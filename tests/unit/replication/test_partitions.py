"""Partitions, their leaders and their logs, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from strandline.log import maintenance
from strandline.log.settings import LogSettings
from strandline.metadata.values import PartitionInfo
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition, Uuid
from strandline.replication.partition import Partition
from unit.replication.one_broker import NODE, Rig, on_virtual_time


def info(leader: int = NODE, leader_epoch: int = 0, partition_epoch: int = 0) -> PartitionInfo:
    return PartitionInfo((NODE,), (NODE,), leader=leader, leader_epoch=leader_epoch, partition_epoch=partition_epoch)


def test_an_append_to_a_sole_replica_is_committed_at_once() -> None:
    async def scenario(rig: Rig) -> None:
        rig.create("t")
        partition = rig.partition("t")
        await partition.ready()
        assert rig.append(partition, b"a", b"b") == 0
        assert partition.leading().high_watermark.value == 2
        assert partition.leading().last_stable_offset.value == 2

    on_virtual_time(scenario)


def test_with_flush_messages_1_nothing_is_committed_before_it_is_flushed() -> None:
    async def scenario(rig: Rig) -> None:
        rig.settings["t"] = LogSettings(flush_messages=1)
        rig.create("t")
        partition = rig.partition("t")
        log = await partition.ready()
        rig.append(partition, b"a")
        watermark = partition.leading().high_watermark
        assert watermark.value == 0 and log.flushed_offset == 0
        await watermark.reached(1)
        assert log.flushed_offset == 1

    on_virtual_time(scenario)


def test_appends_during_a_flush_share_the_next_one() -> None:
    async def scenario(rig: Rig) -> None:
        rig.settings["t"] = LogSettings(flush_messages=1)
        rig.create("t")
        partition = rig.partition("t")
        log = await partition.ready()
        flushes = 0
        flush = type(log).flush

        async def counted(work, *arguments):  # type: ignore[no-untyped-def]
            nonlocal flushes
            flushes += getattr(work, "__func__", None) is flush
            return await offload(work, *arguments)

        offload, rig.world.offload.run = rig.world.offload.run, counted  # type: ignore[method-assign]
        for number in range(100):
            rig.append(partition, str(number).encode())
        await partition.leading().high_watermark.reached(100)
        assert flushes <= 2

    on_virtual_time(scenario)


def test_a_new_leader_epoch_fails_every_waiter_of_the_old_one() -> None:
    async def scenario(rig: Rig) -> None:
        rig.create("t")
        partition = rig.partition("t")
        await partition.ready()
        old = partition.leading()
        waiting = asyncio.ensure_future(old.high_watermark.reached(5))
        await asyncio.sleep(0)
        partition.on_metadata(info(leader_epoch=1, partition_epoch=1))
        with pytest.raises(KafkaError) as raised:
            await waiting
        assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.leading().leader_epoch == 1
        rig.append(partition, b"a")
        assert partition.log is not None and partition.log.epochs.latest == 1

    on_virtual_time(scenario)


def test_an_isr_change_keeps_the_leader_and_stale_metadata_is_ignored() -> None:
    async def scenario(rig: Rig) -> None:
        rig.create("t")
        partition = rig.partition("t")
        await partition.ready()
        leader = partition.leading()
        partition.on_metadata(info(partition_epoch=5))
        partition.on_metadata(info(leader=-1, leader_epoch=3, partition_epoch=4))
        assert partition.leading() is leader

    on_virtual_time(scenario)


def test_a_request_for_another_epoch_or_broker_gets_kafkas_errors() -> None:
    async def scenario(rig: Rig) -> None:
        rig.create("t", leader_epoch=4)
        partition = rig.partition("t")
        await partition.ready()
        for epoch, code in ((3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            with pytest.raises(KafkaError) as raised:
                partition.leading(epoch)
            assert raised.value.code == code
        assert partition.leading(4) is partition.leading(-1)
        partition.on_metadata(info(leader=2, leader_epoch=5, partition_epoch=1))
        with pytest.raises(KafkaError) as raised:
            partition.leading()
        assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    on_virtual_time(scenario)


def test_unknown_partitions_topics_and_ids_have_different_errors() -> None:
    async def scenario(rig: Rig) -> None:
        rig.create("t")
        cases = [
            (("t", Uuid.of(1, 1), 7, False), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (("u", Uuid.of(1, 1), 0, False), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (("", Uuid.of(8, 8), 0, True), ErrorCode.UNKNOWN_TOPIC_ID),
            (("", Uuid.of(1, 1), 7, True), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        for (topic, topic_id, partition, by_id), code in cases:
            with pytest.raises(KafkaError) as raised:
                rig.partitions.find(topic, topic_id, partition, by_id=by_id)
            assert raised.value.code == code
        assert rig.partitions.find("", Uuid.of(1, 1), 0, by_id=True) is rig.partition("t")

    on_virtual_time(scenario)


def test_a_topic_recreated_at_once_never_sees_the_records_of_the_old_one() -> None:
    async def scenario(rig: Rig) -> None:
        rig.create("t")
        old = rig.partition("t")
        await old.ready()
        rig.append(old, b"old")
        rig.delete("t")
        rig.create("t", Uuid.of(2, 2))
        new = rig.partition("t")
        log = await new.ready()
        assert log.log_end_offset == 0
        rig.append(new, b"new")
        # The task that carries out deletions, which runs later, must find nothing left to delete.
        rig.tasks.start(rig.logs.run())
        await asyncio.sleep(1)
        assert rig.store.log(TopicPartition("t", 0)) is log and log.log_end_offset == 1
        assert [name for name in rig.world.disk.list("/data") if name == "t-0"] == ["t-0"]

    on_virtual_time(scenario)


def test_a_partition_dropped_while_its_log_is_opened_is_never_led() -> None:
    async def scenario(rig: Rig) -> None:
        rig.create("t")
        partition = rig.partition("t")
        opening = asyncio.ensure_future(partition.ready())
        await asyncio.sleep(0)
        rig.delete("t")
        await opening
        with pytest.raises(KafkaError) as raised:
            partition.leading()
        assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    on_virtual_time(scenario)


def losing(leader: int = NODE, epoch: int = 0, isr: tuple[int, ...] = (NODE, 2)) -> PartitionInfo:
    return PartitionInfo((NODE, 2), isr, leader=leader, leader_epoch=epoch, partition_epoch=epoch + len(isr))


async def with_a_loss(rig: Rig) -> Partition:
    """A partition whose directory with ten committed records was lost."""
    rig.store.directories[0].missing[TopicPartition("t", 0)] = 10
    rig.create("t")
    partition = rig.partition("t")
    partition.on_metadata(losing(leader=2, epoch=1))
    log = await partition.ready()
    assert (log.log_end_offset, log.lost_up_to) == (0, 10)
    return partition


def test_a_log_that_lacks_committed_records_does_not_lead_while_others_have_them() -> None:
    async def scenario(rig: Rig) -> None:
        partition = await with_a_loss(rig)
        partition.on_metadata(losing(epoch=2))
        with pytest.raises(KafkaError) as raised:
            partition.leading()
        assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        partition.on_metadata(losing(leader=2, epoch=3, isr=(2,)))
        partition.on_metadata(losing(leader=2, epoch=4))  # it is in sync again
        partition.on_metadata(losing(epoch=5))
        assert partition.leading().leader_epoch == 5

    on_virtual_time(scenario)


def test_a_log_that_lacks_committed_records_leads_if_no_other_replica_is_in_sync() -> None:
    async def scenario(rig: Rig) -> None:
        partition = await with_a_loss(rig)
        partition.on_metadata(losing(epoch=2))
        assert partition.leader is None
        partition.on_metadata(PartitionInfo((NODE, 2), (NODE,), leader=NODE, leader_epoch=2, partition_epoch=9))
        assert partition.leading().leader_epoch == 2
        partition.on_metadata(losing(epoch=10))  # what is lost is lost: it has led without
        assert partition.leading().leader_epoch == 10

    on_virtual_time(scenario)


def test_concurrent_callers_open_a_log_once() -> None:
    async def scenario(rig: Rig) -> None:
        rig.create("t")
        partition = rig.partition("t")
        logs = [await task for task in [asyncio.ensure_future(partition.ready()) for _ in range(20)]]
        assert all(log is logs[0] for log in logs)

    on_virtual_time(scenario)


def test_no_checkpoint_of_a_deleted_topic_is_left_when_it_is_recreated() -> None:
    async def scenario(rig: Rig) -> None:
        rig.create("t")
        old = rig.partition("t")
        log = await old.ready()
        rig.append(old, b"a", b"b", b"c")
        log.delete_records_before(2)
        maintenance.checkpoint_log_starts(rig.store)
        maintenance.checkpoint_high_watermarks(rig.store)
        assert b"t 0 2" in rig.world.disk.read("/data/log-start-offset-checkpoint")
        rig.delete("t")
        rig.create("t", Uuid.of(2, 2))
        await rig.partition("t").ready()
        assert b"t 0" not in rig.world.disk.read("/data/log-start-offset-checkpoint")
        assert b"t 0" not in rig.world.disk.read("/data/replication-offset-checkpoint")

    on_virtual_time(scenario)
