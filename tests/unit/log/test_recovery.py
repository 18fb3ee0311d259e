"""Opening a log: after a clean shutdown, after a crash, with files of interrupted work in its directory."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from strandline.log import names
from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.records.batch import read_header
from strandline.runtime.disk import SystemFile
from unit.log.failing_disk import FailingDisk, FailingFile
from unit.log.logs import (
    SMALL,
    WALL_MS,
    append,
    append_as_leader,
    batch,
    files,
    fill,
    marker,
    open_log,
    read_all,
    truncate,
)


class CountingDisk(FailingDisk):
    """Counts the bytes read from .log files."""

    def __init__(self) -> None:
        super().__init__()
        self.log_bytes = 0

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        file = super().open(path, create=create)
        file.__class__ = CountedFile
        return file


class CountedFile(FailingFile):
    __slots__ = ()

    def read_at(self, position: int, size: int) -> bytes:
        data = super().read_at(position, size)
        if self.path.endswith(".log"):
            self._failing.log_bytes += len(data)  # type: ignore[attr-defined]
        return data


def state(log: PartitionLog) -> dict[str, object]:
    return {
        "offsets": (log.log_start_offset, log.log_end_offset, log.size_bytes),
        "epochs": log.epochs.entries,
        "producers": {
            producer.producer_id: (producer.producer_epoch, producer.batches, producer.transaction_first_offset)
            for producer in log.producers.all()
        },
        "aborted": log.aborted_transactions(0, log.log_end_offset),
        "indexes": [segment.largest_timestamp for segment in log.segments[-1:]],
    }


def busy_log(path: Path, settings: LogSettings = SMALL) -> PartitionLog:
    """Several segments and epochs, producers, an aborted, a committed and an open transaction."""
    log = open_log(path, settings)
    for number in range(40):
        append(log, batch(1 + number % 3, timestamp=WALL_MS + number), number // 11)
        append(log, batch(1, producer_id=7, sequence=number), number // 11)
    append(log, batch(1, producer_id=8, sequence=0, transactional=True), 4)
    append(log, batch(1, producer_id=9, sequence=0, transactional=True), 4)
    marker(log, 8, commit=False)
    marker(log, 9, commit=True)
    append(log, batch(1, producer_id=8, sequence=1, transactional=True), 4)
    log.advance_high_watermark(log.log_end_offset)
    return log


def test_a_log_is_the_same_after_a_clean_shutdown(tmp_path: Path) -> None:
    log = busy_log(tmp_path)
    before, content = state(log), read_all(log)
    log.close()
    again = open_log(tmp_path, clean=True, recovery_point=log.log_end_offset)
    assert state(again) == before
    assert again.flushed_offset == again.log_end_offset
    assert read_all(again) == content
    assert append(again, batch(1, producer_id=7, sequence=40), 4) == log.log_end_offset


def test_a_log_is_the_same_after_a_crash(tmp_path: Path) -> None:
    log = busy_log(tmp_path)
    before, content = state(log), read_all(log)
    again = open_log(tmp_path, recovery_point=0)
    assert state(again) == before
    assert read_all(again) == content
    assert again.flushed_offset == 0


@pytest.mark.parametrize("flushed", [0, 30, 60, 97])
def test_a_crash_after_any_checkpoint_loses_nothing(tmp_path: Path, flushed: int) -> None:
    log = busy_log(tmp_path)
    log.flush(sealed_only=flushed == 60)
    log.checkpoint()
    before, content = state(log), read_all(log)
    again = open_log(tmp_path, recovery_point=flushed)
    assert state(again) == before
    assert read_all(again) == content


def test_duplicates_of_the_last_five_batches_are_recognised_after_every_kind_of_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(30):
        append(log, batch(1, 200, producer_id=7, sequence=sequence))
    assert len(log.segments) > 1
    shutil.copytree(tmp_path, tmp_path / "crashed")
    log.close()
    clean = open_log(tmp_path, clean=True, recovery_point=30)
    crashed = open_log(tmp_path / "crashed", recovery_point=log.segments[1].base_offset)
    for again in (clean, crashed):
        for sequence in range(25, 30):
            appended = append_as_leader(
                again, batch(1, 200, producer_id=7, sequence=sequence), leader_epoch=0, wall_ms=WALL_MS
            )
            assert (appended.duplicate, appended.base_offset) == (True, sequence)
        with pytest.raises(KafkaError) as raised:
            append(again, batch(1, 200, producer_id=7, sequence=24))
        assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_replay_after_a_snapshot_within_a_segment_starts_at_the_snapshot(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogSettings())
    for sequence in range(10):
        append(log, batch(1, producer_id=7, sequence=sequence))
    log.close()
    log = open_log(tmp_path, LogSettings(), clean=True, recovery_point=10)
    for sequence in range(10, 13):
        append(log, batch(1, producer_id=7, sequence=sequence))
    again = open_log(tmp_path, LogSettings(), recovery_point=10)
    state = again.producers.get(7)
    assert state is not None
    assert [sent.last_sequence for sent in state.batches] == [8, 9, 10, 11, 12]


def test_only_records_past_the_recovery_point_are_read(tmp_path: Path) -> None:
    settings = LogSettings(index_interval_bytes=256)
    log = open_log(tmp_path, settings)
    for number in range(2000):
        append(log, batch(2, timestamp=WALL_MS + number))
    log.segments[-1].spill()
    log.close()
    disk = CountingDisk()
    again = open_log(tmp_path, settings, recovery_point=log.log_end_offset - 10, disk=disk)
    assert again.log_end_offset == log.log_end_offset
    assert disk.log_bytes < 10_000 < log.size_bytes // 10


def test_an_incomplete_end_is_truncated_and_appends_continue(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 5)
    with (tmp_path / "orders-0" / f"{0:020d}.log").open("ab") as file:
        file.write(batch(3, base_offset=10)[:-7])
    again = open_log(tmp_path)
    assert again.log_end_offset == 10
    assert append(again, batch(1)) == 10
    assert len(read_all(open_log(tmp_path))) == 6


def test_an_incomplete_end_is_no_loss_but_damage_before_intact_records_is(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 10)
    file = Path(log.segments[-1].path(names.LOG))
    whole = file.read_bytes()
    torn = bytearray(whole)
    torn[-5] ^= 1
    file.write_bytes(torn)
    again = open_log(tmp_path)
    assert (again.log_end_offset, again.is_intact) == (18, True)
    hurt = bytearray(whole)
    hurt[len(hurt) // 2] ^= 1
    file.write_bytes(hurt)
    again = open_log(tmp_path)
    assert 0 < again.log_end_offset < 18 and not again.is_intact
    assert again.lost_up_to == 20


def test_an_incomplete_end_is_recovered_in_spite_of_a_clean_shutdown(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 5)
    log.close()
    with (tmp_path / "orders-0" / f"{0:020d}.log").open("ab") as file:
        file.write(bytes(100))
    again = open_log(tmp_path, clean=True, recovery_point=10)
    assert (again.log_end_offset, len(read_all(again))) == (10, 5)


def test_records_below_the_checkpointed_log_start_are_not_served(tmp_path: Path) -> None:
    log = busy_log(tmp_path)
    log.close()
    again = open_log(tmp_path, clean=True, recovery_point=log.log_end_offset, log_start_offset=30)
    assert again.log_start_offset == 30
    assert again.epochs.entries[0][1] == 30


def test_a_log_that_ends_below_its_start_is_truncated_fully(tmp_path: Path) -> None:
    log = busy_log(tmp_path)
    log.close()
    again = open_log(tmp_path, log_start_offset=1000)
    assert (again.log_start_offset, again.log_end_offset, again.size_bytes) == (1000, 1000, 0)
    assert files(tmp_path, ".log") == [f"{1000:020d}.log"]
    assert append(again, batch(1), 9) == 1000


def test_a_missing_segment_ends_the_log_before_it(tmp_path: Path) -> None:
    log = busy_log(tmp_path)
    second = log.segments[1]
    Path(second.path(names.LOG)).unlink()
    last = log.segments[-1].base_offset
    again = open_log(tmp_path)
    assert (again.log_end_offset, again.lost_up_to) == (second.base_offset, last)


def test_the_truncated_end_of_a_log_does_not_reappear(tmp_path: Path) -> None:
    """A power loss may restore removed files; their epoch is older than that of the records written instead."""
    log = open_log(tmp_path)
    fill(log, 20, leader_epoch=1)
    log.roll()
    fill(log, 5, leader_epoch=1)
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "orders-0", kept)
    truncate(log, 30)
    fill(log, 5, leader_epoch=2)
    log.roll()
    assert log.log_end_offset == 40
    shutil.copy(kept / f"{40:020d}.log", tmp_path / "orders-0")
    again = open_log(tmp_path)
    assert again.log_end_offset == 40
    assert again.epochs.entries == ((1, 0), (2, 30))


class TestCleanup:
    def test_deleted_cleaned_and_temporary_files_are_removed(self, tmp_path: Path) -> None:
        log = busy_log(tmp_path)
        expected = read_all(log)
        for name in (
            f"{0:020d}.log.deleted",
            f"{5:020d}.snapshot.deleted",
            f"{0:020d}.index.cleaned",
            f"{0:020d}.log.cleaned",
            "leader-epoch-checkpoint.tmp",
        ):
            (tmp_path / "orders-0" / name).write_bytes(b"leftover")
        again = open_log(tmp_path)
        assert read_all(again) == expected
        assert not files(tmp_path, ".deleted", ".cleaned", ".tmp")

    def test_a_finished_compaction_replaces_the_segments_it_covers(self, tmp_path: Path) -> None:
        settings = LogSettings(cleanup_compact=True)
        log = open_log(tmp_path, settings)
        for _ in range(3):
            fill(log, 2)
            log.roll()
        fill(log, 1)
        directory = tmp_path / "orders-0"
        (directory / f"{0:020d}.log.swap").write_bytes(batch(1, 3, base_offset=6, leader_epoch=0))
        (directory / f"{0:020d}.index.swap").write_bytes(b"")
        again = open_log(tmp_path, settings)
        assert [segment.base_offset for segment in again.segments] == [0, 8, 12]
        assert [read_header(data).base_offset for data in read_all(again)] == [6, 8, 10, 12]
        assert not files(tmp_path, ".swap")

    def test_swap_files_of_an_unfinished_compaction_are_removed(self, tmp_path: Path) -> None:
        log = busy_log(tmp_path)
        expected = read_all(log)
        directory = tmp_path / "orders-0"
        (directory / f"{0:020d}.log.swap").write_bytes(batch(1, 3, base_offset=6, leader_epoch=0))
        (directory / f"{0:020d}.index.cleaned").write_bytes(b"")
        again = open_log(tmp_path)
        assert read_all(again) == expected

    def test_an_index_without_its_log_is_removed(self, tmp_path: Path) -> None:
        log = busy_log(tmp_path)
        log.close()
        orphan = tmp_path / "orders-0" / f"{999:020d}.timeindex"
        orphan.write_bytes(bytes(12))
        open_log(tmp_path, clean=True, recovery_point=log.log_end_offset)
        assert not orphan.exists()

    def test_snapshots_beyond_the_end_and_stray_ones_are_removed(self, tmp_path: Path) -> None:
        log = busy_log(tmp_path)
        log.close()
        directory = tmp_path / "orders-0"
        for offset in (3, 1000):
            shutil.copy(directory / f"{log.log_end_offset:020d}.snapshot", directory / f"{offset:020d}.snapshot")
        again = open_log(tmp_path, clean=True, recovery_point=log.log_end_offset)
        kept = {int(name[:20]) for name in files(tmp_path, ".snapshot")}
        assert kept == {segment.base_offset for segment in again.segments[1:]} | {log.log_end_offset}


def test_preallocated_indexes_of_a_killed_kafka_can_be_read(tmp_path: Path) -> None:
    log = busy_log(tmp_path)
    expected, before = read_all(log), state(log)
    log.close()
    for name in files(tmp_path, ".index", ".timeindex"):
        with (tmp_path / "orders-0" / name).open("ab") as file:
            file.write(bytes(10 << 10))
    for clean in (True, False):
        again = open_log(tmp_path, clean=clean, recovery_point=log.log_end_offset)
        assert read_all(again) == expected
        assert state(again) == before


def test_opening_a_log_leaves_no_file_open(tmp_path: Path) -> None:
    busy_log(tmp_path).close()
    again = open_log(tmp_path)
    assert all(segment.file is None for segment in again.segments)


def test_with_flush_messages_1_the_records_found_after_a_crash_are_flushed(tmp_path: Path) -> None:
    fill(open_log(tmp_path), 10)
    disk = FailingDisk()
    again = open_log(tmp_path, LogSettings(flush_messages=1), disk=disk)
    assert again.flushed_offset == again.log_end_offset == 20
    assert again.segments[-1].path(".log") in disk.synced_paths


@pytest.mark.parametrize("clean", [True, False])
def test_on_a_full_disk_a_log_can_still_be_opened_and_read(tmp_path: Path, clean: bool) -> None:
    log = busy_log(tmp_path)
    expected = read_all(log)
    if clean:
        log.close()
    disk = FailingDisk()
    disk.fail("write", code=errno.ENOSPC)
    again = open_log(tmp_path, clean=clean, recovery_point=log.log_end_offset if clean else 0, disk=disk)
    assert read_all(again) == expected
    assert again.health.is_online
    disk.mend()
    assert append(again, batch(1), 4) == log.log_end_offset
    again.close()
    assert len(read_all(open_log(tmp_path))) == len(expected) + 1


def test_an_index_entry_of_a_transaction_lost_in_a_power_loss_is_removed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(1))
    append(log, batch(1, producer_id=8, sequence=0, transactional=True))
    marker(log, 8, commit=False)
    index = tmp_path / "orders-0" / f"{0:020d}.txnindex"
    stale = index.read_bytes()
    size = len(batch(1))
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:size])
    log = open_log(tmp_path)
    assert log.log_end_offset == 1
    fill(log, 5)
    index.write_bytes(stale)
    again = open_log(tmp_path)
    assert again.log_end_offset == 11
    assert again.aborted_transactions(0, 11) == []
    assert not index.exists()
