"""Truncation of the end of a log, and of all of it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from strandline.log.reading import Read
from strandline.log.timestamp_lookup import FoundOffset
from strandline.model.ids import TopicPartition
from strandline.records.batch import read_header
from strandline.simulation.disk import SimDisk
from strandline.simulation.volume import Volume
from unit.log.failing_disk import FailingDisk
from unit.log.logs import (
    PARTITION,
    SMALL,
    WALL_MS,
    append,
    batch,
    files,
    fill,
    marker,
    open_log,
    read,
    read_all,
    truncate,
    truncate_fully,
)


@given(counts=st.lists(st.integers(1, 6), min_size=1, max_size=50), at=st.integers(0, 200), reopen=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_records_before_the_truncation_point_are_kept_and_appends_continue_there(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], at: int, reopen: bool
) -> None:
    path = tmp_path_factory.mktemp("log")
    log = open_log(path)
    for number, count in enumerate(counts):
        append(log, batch(count, 80, timestamp=WALL_MS + number), number // 10)
    before = read_all(log)
    at %= log.log_end_offset + 1
    kept = [data for data in before if read_header(data).last_offset < at]
    if reopen:
        log.close()
        log = open_log(path, clean=True, recovery_point=log.log_end_offset)

    truncate(log, at)

    assert read_all(log) == kept
    assert log.log_end_offset == (read_header(kept[-1]).next_offset if kept else 0)
    assert log.size_bytes == sum(map(len, kept))
    assert all(start < log.log_end_offset for _, start in log.epochs.entries)
    assert log.flushed_offset <= log.log_end_offset
    append(log, batch(2, timestamp=WALL_MS + 500), 99)
    assert log.max_timestamp_offset() == FoundOffset(log.log_end_offset - 1, WALL_MS + 501, 99)
    again = open_log(path)
    assert read_all(again) == read_all(log)
    assert again.epochs.entries == log.epochs.entries


def test_a_truncation_at_or_above_the_log_end_keeps_all_records(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    truncate(log, 6)
    truncate(log, 100)
    assert log.log_end_offset == 6
    assert log.truncating_to is None


@pytest.mark.parametrize("written", [False, True])
def test_a_truncation_at_the_log_end_removes_an_epoch_without_records(tmp_path: Path, written: bool) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    log.flush()
    log.epochs.assign(4, 6)
    if written:
        log.checkpoint()
    truncate(log, 6)
    assert log.epochs.entries == ((0, 0),)
    assert log.truncating_to is None
    log.checkpoint()
    assert open_log(tmp_path, recovery_point=6).epochs.entries == ((0, 0),)


def test_producers_are_restored_as_of_the_truncation_point(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(60):
        append(log, batch(1, 200, producer_id=7, sequence=sequence))
    append(log, batch(1, producer_id=8, sequence=0))
    log.flush()
    truncate(log, 40)
    state = log.producers.get(7)
    assert state is not None
    assert [sent.last_sequence for sent in state.batches] == [35, 36, 37, 38, 39]
    assert log.producers.get(8) is None
    assert all(int(name[:20]) <= 40 for name in files(tmp_path, ".snapshot"))
    assert append(log, batch(1, producer_id=7, sequence=40)) == 40


def test_a_truncated_marker_reopens_its_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(1, producer_id=8, sequence=0, transactional=True))
    append(log, batch(1, producer_id=9, sequence=0, transactional=True))
    aborted = marker(log, 8, commit=False)
    marker(log, 9, commit=False)
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset
    truncate(log, aborted + 1)
    assert log.aborted_transactions(0, 10) == [(8, 0, 2, 1)]
    assert log.last_stable_offset == 1
    truncate(log, aborted)
    assert log.aborted_transactions(0, 10) == []
    assert not files(tmp_path, ".txnindex")
    assert log.last_stable_offset == 0


def test_checkpoints_are_lowered_before_any_file_is_truncated(tmp_path: Path) -> None:
    calls: list[tuple[TopicPartition, int, int | None, int]] = []

    def before_truncation(partition: TopicPartition, end_offset: int, log_start: int | None) -> None:
        on_disk = sum((tmp_path / "orders-0" / name).stat().st_size for name in files(tmp_path, ".log"))
        calls.append((partition, end_offset, log_start, on_disk))

    log = open_log(tmp_path, before_truncation=before_truncation)
    fill(log, 60)
    log.flush()
    size = log.size_bytes
    step = log.begin_truncation(50)
    assert log.checkpoint() <= 50
    step.run()
    step.apply()
    assert calls == [(PARTITION, 50, None, size)]
    truncate_fully(log, 500)
    assert calls[-1][1:3] == (500, 500)


def test_while_a_truncation_runs_nothing_above_it_is_served_and_no_flush_publishes(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 60)
    count = len(log.segments)
    step = log.begin_truncation(20)
    step.run()
    assert read_header(read(log, 19)).last_offset == 19
    beyond = log.read(20, max_bytes=1000)
    assert isinstance(beyond, Read) and beyond.slice is None
    assert log.flush() == 120
    dropped = step.apply()
    assert log.flushed_offset == 20
    assert len(dropped) == len(files(tmp_path, ".log.deleted")) == count - 1 > 1
    for segment in dropped:
        segment.remove()
    assert not files(tmp_path, ".deleted")


def test_a_flush_that_began_before_a_truncation_does_not_publish_afterwards(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    fill(log, 10)
    step = log.begin_truncation(4)
    step.run()
    disk.on_sync = step.apply
    assert log.flush() == 20
    assert log.log_end_offset == 4
    assert log.flushed_offset <= 4


def test_no_producer_snapshot_above_the_end_appears_when_a_flush_runs_beside_a_truncation(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    fill(log, 60)
    step = log.begin_truncation(20)
    step.run()
    log.flush()
    disk.on_sync = step.apply
    log.flush()
    assert [int(name[:20]) for name in files(tmp_path, ".snapshot") if int(name[:20]) > 20] == []


@pytest.mark.parametrize("offset", [500, 120, 40, 0])
def test_a_fully_truncated_log_starts_at_any_offset(tmp_path: Path, offset: int) -> None:
    log = open_log(tmp_path)
    for number in range(60):
        append(log, batch(2, producer_id=7, sequence=2 * number), 3)
    truncate_fully(log, offset)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.size_bytes) == (offset, offset, offset, 0)
    assert len(log.producers) == 0
    assert log.epochs.entries == ()
    assert append(log, batch(1), 5) == offset
    again = open_log(tmp_path, log_start_offset=offset)
    assert (again.log_start_offset, again.log_end_offset) == (offset, offset + 1)
    assert again.epochs.entries == ((5, offset),)
    assert len(read_all(again)) == 1


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_no_power_loss_restores_index_entries_of_the_truncated_part(tmp_path: Path, suffix: str) -> None:
    volume = Volume()
    disk = SimDisk(volume)
    log = open_log(tmp_path, replace(SMALL, segment_bytes=1 << 20), disk=disk)
    for number in range(20):
        append(log, batch(2, timestamp=WALL_MS + number, producer_id=7, sequence=2 * number, transactional=True))
        marker(log, 7, commit=False)
    log.close()
    for directory in Path(log.segments[-1].path(suffix)).parents:
        disk.sync_dir(str(directory))
    before = volume.file(log.segments[-1].path(suffix)).size
    log = open_log(tmp_path, replace(SMALL, segment_bytes=1 << 20), clean=True, recovery_point=60, disk=SimDisk(volume))
    truncate(log, 20)
    kept = volume.file(log.segments[-1].path(suffix)).size
    assert 0 < kept < before
    for seed in range(10):
        found = volume.after_power_loss(Random(seed))
        assert found.file(log.segments[-1].path(suffix)).size <= kept


def test_producers_captured_before_a_full_truncation_are_not_written_after_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(1, producer_id=7, sequence=0))
    log.roll()
    truncate_fully(log, log.log_end_offset)
    log.flush()
    assert files(tmp_path, ".snapshot") == []
    assert len(open_log(tmp_path).producers) == 0
