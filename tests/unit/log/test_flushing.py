"""Flushes: what is durable after one, when one is due, and failing syncs."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from strandline.log.directory_health import Condition
from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.runtime.disk import SystemFile
from unit.log.failing_disk import FailingDisk
from unit.log.logs import SMALL, append, batch, delete_expired, files, fill, open_log, read_all


def test_a_flush_makes_durable_what_was_appended_before_it(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    fill(log, 30)
    disk.synced_paths.clear()
    assert log.flush() == log.flushed_offset == 60
    directory = str(tmp_path / "orders-0")
    for segment in log.segments:
        assert segment.path(".log") in disk.synced_paths
    assert log.segments[0].path(".index") in disk.synced_paths
    assert log.segments[0].path(".timeindex") in disk.synced_paths
    # New files are durable only with their directory entries.
    assert disk.synced_paths.index(directory) > disk.synced_paths.index(log.segments[-1].path(".log"))
    assert str(tmp_path) in disk.synced_paths


def test_a_second_flush_syncs_nothing(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    fill(log, 30)
    log.flush()
    disk.synced_paths.clear()
    log.flush()
    assert disk.synced_paths == []
    append(log, batch(1))
    log.flush()
    assert disk.synced_paths == [log.segments[-1].path(".log")]


def test_a_flush_of_sealed_segments_does_not_sync_the_active_one(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    fill(log, 30)
    disk.synced_paths.clear()
    assert log.flush(sealed_only=True) == log.segments[-1].base_offset == log.flushed_offset
    assert log.segments[-1].path(".log") not in disk.synced_paths


def test_a_failed_sync_is_never_retried(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    append(log, batch(1))
    # Even ENOSPC: the kernel may have dropped what it could not write.
    disk.fail("sync", ".log", errno.ENOSPC, times=1)
    with pytest.raises(KafkaError, match="offline"):
        log.flush()
    assert log.health.condition is Condition.OFFLINE
    assert log.flushed_offset == 0
    with pytest.raises(KafkaError) as raised:
        log.flush()
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.flushed_offset == 0


def test_a_failed_sync_of_the_directory_takes_it_offline_too(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, replace(SMALL, segment_bytes=300), disk=disk)
    fill(log, 4)
    disk.fail("sync_dir", "orders-0")
    with pytest.raises(KafkaError, match="offline"):
        log.flush()
    assert log.flushed_offset == 0


def test_a_flush_is_due_by_flush_messages_by_flush_ms_and_after_a_roll(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogSettings(flush_messages=5, flush_ms=1000))
    assert not log.flush_needed(0)
    append(log, batch(4))
    assert not log.flush_needed(100)
    assert not log.flush_needed(1099)
    assert log.flush_needed(1100)
    append(log, batch(1))
    assert log.flush_needed(101)
    log.flush()
    assert not log.flush_needed(5000)
    log.update_settings(LogSettings())
    append(log, batch(50))
    assert not log.flush_needed(10**9)
    log.roll()
    assert log.flush_needed(10**9)
    log.flush(sealed_only=True)
    assert not log.flush_needed(10**9)


def test_appends_continue_while_a_thread_flushes(tmp_path: Path) -> None:
    """At every moment, what counts as flushed was appended before the flush began."""
    log = open_log(tmp_path, replace(SMALL, segment_bytes=2000))
    done = threading.Event()
    failures: list[str] = []

    def flush_repeatedly() -> None:
        while not done.is_set():
            before = log.log_end_offset
            flushed = log.flush()
            if not before <= flushed <= log.log_end_offset:
                failures.append(f"{before} {flushed}")

    thread = threading.Thread(target=flush_repeatedly)
    thread.start()
    try:
        for _ in range(300):
            append(log, batch(1, 150, producer_id=1, sequence=log.log_end_offset))
    finally:
        done.set()
        thread.join()
    assert failures == []
    log.flush()
    assert len(files(tmp_path, ".snapshot")) == len(log.segments) - 1
    assert len(read_all(open_log(tmp_path, recovery_point=log.flushed_offset))) == 300


def test_a_segment_deleted_during_a_flush_does_not_take_the_directory_offline(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(SMALL, segment_bytes=300))
    fill(log, 10)
    disk = DeletingDisk(log)
    for segment in log.segments:
        segment.disk = disk
    assert log.flush() == 20
    assert disk.deleted == 4
    assert log.health.condition is Condition.ONLINE


class DeletingDisk(FailingDisk):
    """Deletes the oldest segments just before a flush opens the first of them."""

    def __init__(self, log: PartitionLog) -> None:
        super().__init__()
        self._log = log
        self.deleted = 0

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        if not self.deleted:
            self._log.delete_records_before(8)
            deleted = delete_expired(self._log, 0)
            self.deleted = len(deleted)
            for segment in deleted:
                segment.remove()
        return super().open(path, create=create)


def test_the_recovery_point_waits_for_the_leader_epochs(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(1), 3)
    log.flush()
    assert (tmp_path / "orders-0" / "leader-epoch-checkpoint").read_text() == "0\n0\n"
    assert log.checkpoint() == 1
    assert (tmp_path / "orders-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"


def test_closing_an_unchanged_log_writes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 5)
    log.close()
    disk = FailingDisk()
    again = open_log(tmp_path, clean=True, recovery_point=10, disk=disk)
    disk.synced_paths.clear()
    disk.fail("write")
    again.close()
    assert disk.synced_paths == []


def test_a_log_that_only_changed_its_epochs_keeps_its_producer_snapshot_when_it_is_closed_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(5, producer_id=7, sequence=0))
    log.close()
    again = open_log(tmp_path, clean=True, recovery_point=5)
    again.epochs.assign(3, 5)
    again.close()
    assert files(tmp_path, ".snapshot") == [f"{5:020d}.snapshot"]


def test_closing_a_log_with_only_a_new_leader_epoch_writes_its_epochs_and_nothing_else(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 5)
    log.close()
    disk = FailingDisk()
    again = open_log(tmp_path, clean=True, recovery_point=10, disk=disk)
    again.epochs.assign(3, 10)
    disk.synced_paths.clear()
    again.close()
    directory = str(tmp_path / "orders-0")
    assert disk.synced_paths == [f"{directory}/leader-epoch-checkpoint.tmp", directory]
    assert (tmp_path / "orders-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n3 10\n"


def test_closing_a_new_log_with_only_a_new_leader_epoch_syncs_its_directory(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    log.epochs.assign(3, 0)
    disk.synced_paths.clear()
    log.close()
    assert str(tmp_path) in disk.synced_paths and log.epochs.written == log.epochs.entries
    assert files(tmp_path, "index") == [f"{0:020d}.index", f"{0:020d}.timeindex"], "Kafka misses them otherwise"


def test_index_files_and_the_epoch_checkpoint_exist_while_the_log_is_open(tmp_path: Path) -> None:
    """As in Kafka, whose tools and people's backup scripts expect them."""
    log = open_log(tmp_path)
    assert files(tmp_path, "index") == [f"{0:020d}.index", f"{0:020d}.timeindex"]
    assert (tmp_path / "orders-0" / "leader-epoch-checkpoint").read_text() == "0\n0\n"
    append(log, batch(1), 3)
    log.roll()
    assert files(tmp_path, "index") == [
        f"{offset:020d}{suffix}" for offset in (0, 1) for suffix in (".index", ".timeindex")
    ]
