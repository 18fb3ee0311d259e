"""Background tasks on the logs of a broker."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from strandline.log.partition_log import PartitionLog
from strandline.log.segment import Segment
from strandline.log.settings import LogSettings
from strandline.metadata.values import PartitionInfo
from strandline.model.ids import TopicPartition, Uuid
from strandline.records.batch import BatchHeader, Record, batches, decode_batch, encode_batch
from strandline.replication.compaction_scheduler import CompactionScheduler
from strandline.replication.flush_scheduler import FlushScheduler
from strandline.replication.log_maintenance import LogMaintenance
from strandline.runtime.disk import SystemDisk
from unit.log.logs import append_as_leader
from unit.replication.one_broker import NODE, Rig, on_virtual_time

DEFAULTS: dict[str, Any] = {
    "log.cleaner.enable": True,
    "log.cleaner.backoff.ms": 15_000,
    "log.cleaner.dedupe.buffer.size": 1 << 20,
    "log.cleaner.io.max.bytes.per.second": 1.7976931348623157e308,
    "log.initial.task.delay.ms": 30_000,
    "log.retention.check.interval.ms": 300_000,
    "log.flush.scheduler.interval.ms": 2**63 - 1,
    "log.flush.offset.checkpoint.interval.ms": 60_000,
    "log.flush.start.offset.checkpoint.interval.ms": 60_000,
    "replica.high.watermark.checkpoint.interval.ms": 5_000,
    "producer.id.expiration.check.interval.ms": 600_000,
}


def headers_of(rig: Rig, segment: Segment) -> list[BatchHeader]:
    return [header for _, header in batches(rig.world.disk.read(segment.path(".log")))]


def log_maintenance(rig: Rig) -> LogMaintenance:
    flusher = FlushScheduler(rig.world.offload, rig.tasks)
    return LogMaintenance(
        rig.store,
        rig.partitions,
        flusher,
        rig.world,
        DEFAULTS.__getitem__,
        lambda topic: rig.settings.get(topic, LogSettings()),
    )


def test_retention_moves_the_log_start_and_removes_files_after_their_delay() -> None:
    async def scenario(rig: Rig) -> None:
        rig.settings["t"] = LogSettings(segment_bytes=300, retention_bytes=300, file_delete_delay_ms=60_000)
        rig.create("t")
        partition = rig.partition("t")
        log = await partition.ready()
        for _ in range(20):
            rig.append(partition, b"x" * 100)
        segments = len(log.segments)
        log_maintenance(rig).start(rig.tasks)
        await asyncio.sleep(31)
        assert len(log.segments) < segments and log.log_start_offset > 0
        assert partition.leading().low_watermark.value == log.log_start_offset
        assert any(name.endswith(".deleted") for name in rig.world.disk.list(log.path))
        await asyncio.sleep(70)
        assert [name for name in rig.world.disk.list(log.path) if name.endswith(".deleted")] == []

    on_virtual_time(scenario)


def test_flush_ms_takes_effect_without_further_appends() -> None:
    async def scenario(rig: Rig) -> None:
        rig.settings["t"] = LogSettings(flush_ms=2_000)
        rig.create("t")
        partition = rig.partition("t")
        log = await partition.ready()
        log_maintenance(rig).start(rig.tasks)
        rig.append(partition, b"a")
        assert log.flushed_offset == 0
        await asyncio.sleep(4)
        assert log.flushed_offset == 1

    on_virtual_time(scenario)


def test_checkpoints_are_written_periodically() -> None:
    async def scenario(rig: Rig) -> None:
        rig.create("t")
        partition = rig.partition("t")
        await partition.ready()
        rig.append(partition, b"a", b"b")
        log_maintenance(rig).start(rig.tasks)
        await asyncio.sleep(6)
        assert rig.world.disk.read("/data/replication-offset-checkpoint") == b"0\n1\nt 0 2\n"

    on_virtual_time(scenario)


def test_compaction_keeps_the_newest_record_of_each_key_and_stores_its_end_offset() -> None:
    async def scenario(rig: Rig) -> None:
        rig.settings["t"] = LogSettings(cleanup_compact=True, cleanup_delete=False, segment_bytes=200)
        rig.create("t")
        partition = rig.partition("t")
        log = await partition.ready()
        for number in range(40):
            rig.append(partition, f"value {number}".encode(), key=f"key {number % 3}".encode())
        compaction = CompactionScheduler(rig.store, rig.partitions, rig.world, DEFAULTS.__getitem__)
        assert await compaction.clean_one()
        found: dict[bytes | None, bytes | None] = {}
        count = 0
        for segment in log.segments:
            data = rig.world.disk.read(segment.path(".log"))
            for position, _ in batches(data):
                for record in decode_batch(data, position):
                    found[record.key] = record.value
                    count += 1
        assert found == {f"key {n % 3}".encode(): f"value {n}".encode() for n in range(37, 40)}
        assert count < 10
        assert rig.world.disk.read("/data/cleaner-offset-checkpoint").startswith(b"0\n1\nt 0 ")
        assert not await compaction.clean_one()

    on_virtual_time(scenario)


def test_retention_that_began_before_a_topic_was_recreated_does_not_touch_the_new_log() -> None:
    async def scenario(rig: Rig) -> None:
        rig.settings["t"] = LogSettings(segment_bytes=300, retention_bytes=300)
        rig.create("t")
        old = rig.partition("t")
        await old.ready()
        for _ in range(20):
            rig.append(old, b"x" * 100)
        async with old.changing:  # retention has found expired segments and waits for the lock
            retention = asyncio.ensure_future(log_maintenance(rig).retain())
            await asyncio.sleep(1)
            rig.delete("t")
            rig.create("t", Uuid.of(2, 2))
            new = rig.partition("t")
            log = await new.ready()
            rig.append(new, b"new")
        assert await retention == 0
        assert [name for name in rig.world.disk.list(log.path) if name.endswith(".deleted")] == []

    on_virtual_time(scenario)


def test_compaction_is_throttled_by_its_config() -> None:
    async def scenario(rig: Rig) -> None:
        rig.settings["t"] = LogSettings(cleanup_compact=True, cleanup_delete=False, segment_bytes=200)
        rig.create("t")
        partition = rig.partition("t")
        log = await partition.ready()
        for number in range(40):
            rig.append(partition, f"value {number}".encode(), key=f"key {number % 3}".encode())
        configs = {**DEFAULTS, "log.cleaner.io.max.bytes.per.second": 100.0}
        size, began_ms = log.size_bytes, rig.world.clock.now_ms()
        assert await CompactionScheduler(rig.store, rig.partitions, rig.world, configs.__getitem__).clean_one()
        # The compacted part is read twice, and the result is written.
        least_s = 2 * (size - 2 * log.segments[-1].size) / 100
        assert least_s <= (rig.world.clock.now_ms() - began_ms) / 1000 <= 2 * least_s

    on_virtual_time(scenario)


def test_a_truncation_during_a_compaction_ends_the_compaction() -> None:
    async def scenario(rig: Rig) -> None:
        rig.settings["t"] = LogSettings(cleanup_compact=True, cleanup_delete=False, segment_bytes=200)
        rig.create("t")
        partition = rig.partition("t")
        log = await partition.ready()
        for number in range(40):
            rig.append(partition, f"value {number}".encode(), key=f"key {number % 3}".encode())
        partition.on_metadata(PartitionInfo((NODE, 2), (2,), leader=2, leader_epoch=1, partition_epoch=1))
        compaction = CompactionScheduler(rig.store, rig.partitions, rig.world, DEFAULTS.__getitem__)
        cleaning = asyncio.ensure_future(compaction.clean_one())
        while not partition.changing.locked():
            await asyncio.sleep(1e-5)
        # In the middle of the last compacted segment: no segment is removed, one becomes shorter.
        segments = await partition.truncate(lambda log: log.begin_truncation(37), rig.world.offload, 1)
        assert len(segments) == 1 and not cleaning.done()
        await cleaning
        held = [header.base_offset for segment in log.segments for header in headers_of(rig, segment)]
        assert log.log_end_offset == 37 and held == list(range(37))
        assert [name for name in rig.world.disk.list(log.path) if name.endswith((".cleaned", ".swap"))] == []

    on_virtual_time(scenario)


def test_concurrent_flushes_of_one_log_exclude_each_other(tmp_path: Path) -> None:
    """With real threads: otherwise both would write the producer snapshots of sealed segments to the same files."""
    log = PartitionLog.open(
        SystemDisk(), str(tmp_path / "t-0"), TopicPartition("t", 0), LogSettings(segment_bytes=400), wall_ms=1
    )
    sequence = 0
    for _ in range(30):
        for _ in range(6):
            records = [Record(0, 1, None, b"x" * 150, ())]
            batch = encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)
            append_as_leader(log, batch, leader_epoch=0, wall_ms=1)
            sequence += 1
        threads = [threading.Thread(target=log.flush) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert log.health.is_online, log.health.reason
        assert log.flushed_offset == log.log_end_offset
