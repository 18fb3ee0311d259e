"""Appends: offsets, duplicates, rolling, followers, and failing disks."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from msgspec.structs import replace

from strandline.log.appending import Appended
from strandline.log.directory_health import Condition
from strandline.log.settings import LogSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.records.batch import batches, read_header
from unit.log.failing_disk import FailingDisk
from unit.log.logs import SMALL, WALL_MS, append, append_as_leader, batch, files, fill, marker, open_log, read, read_all

LARGE = LogSettings()


def test_batches_get_the_next_offsets_and_the_leaders_epoch(tmp_path: Path) -> None:
    log = open_log(tmp_path, LARGE)
    assert [append(log, batch(3), 4), append(log, batch(1), 4), append(log, batch(2), 6)] == [0, 3, 4]
    headers = [read_header(data) for data in read_all(log)]
    assert [(header.base_offset, header.last_offset) for header in headers] == [(0, 2), (3, 3), (4, 5)]
    assert [header.partition_leader_epoch for header in headers] == [4, 4, 6]
    assert log.epochs.entries == ((4, 0), (6, 4))
    assert log.size_bytes == (tmp_path / "orders-0" / f"{0:020d}.log").stat().st_size


def test_a_duplicate_gets_the_result_of_the_original_and_is_not_written(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(LARGE, message_timestamp_type="LogAppendTime"))
    for sequence in range(6):
        appended = append_as_leader(
            log, batch(1, producer_id=5, sequence=sequence), leader_epoch=0, wall_ms=WALL_MS + sequence
        )
        assert (appended.base_offset, appended.log_append_time, appended.duplicate) == (
            sequence,
            WALL_MS + sequence,
            False,
        )
    size = log.size_bytes
    again = append_as_leader(log, batch(1, producer_id=5, sequence=2), leader_epoch=0, wall_ms=WALL_MS + 999)
    assert again == Appended(2, 2, WALL_MS + 2, True, 0)
    assert (log.size_bytes, log.log_end_offset) == (size, 6)


def test_a_corrupt_duplicate_is_rejected_as_corrupt(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(1, producer_id=5, sequence=0))
    damaged = batch(1, producer_id=5, sequence=0)
    damaged[-1] ^= 1
    with pytest.raises(KafkaError) as raised:
        append(log, damaged)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_an_append_with_an_old_leader_epoch_is_fenced(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(1), 5)
    with pytest.raises(KafkaError) as raised:
        append(log, batch(1), 4)
    assert raised.value.code is ErrorCode.FENCED_LEADER_EPOCH


class TestRolling:
    def test_a_segment_is_rolled_at_segment_bytes(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, replace(SMALL, segment_bytes=1000))
        fill(log, 10, records=1, size=300)
        assert all(segment.size <= 1000 for segment in log.segments)
        assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]
        assert len(read_all(log)) == 10

    def test_a_segment_is_rolled_when_a_record_is_segment_ms_later_than_the_first(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, replace(LARGE, segment_ms=1000))
        for timestamp in (0, 500, 1000, 1001, 1900, 2002):
            append(log, batch(1, timestamp=WALL_MS + timestamp))
        assert [segment.base_offset for segment in log.segments] == [0, 3, 5]

    def test_the_jitter_of_rolling_is_the_same_on_every_run(self, tmp_path: Path) -> None:
        bases = []
        for name in ("one", "two"):
            log = open_log(tmp_path / name, replace(LARGE, segment_ms=1000, segment_jitter_ms=900))
            for number in range(40):
                append(log, batch(1, timestamp=WALL_MS + 50 * number))
            bases.append([segment.base_offset for segment in log.segments])
        assert bases[0] == bases[1]
        assert len(bases[0]) > 2

    def test_a_segment_is_rolled_when_an_index_is_full(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, replace(LARGE, segment_index_bytes=48, index_interval_bytes=0))
        fill(log, 20, records=1)
        assert len(log.segments) > 3
        assert all(len((tmp_path / "orders-0" / name).read_bytes()) <= 48 for name in files(tmp_path, "index"))

    def test_a_segment_is_rolled_when_relative_offsets_would_exceed_31_bits(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        append(log, batch(1))
        log.append_as_follower(batch(1, base_offset=(1 << 31) + 5, leader_epoch=0))
        assert [segment.base_offset for segment in log.segments] == [0, (1 << 31) + 5]
        assert read_header(read(log, (1 << 31) + 5)).base_offset == (1 << 31) + 5

    def test_an_empty_segment_is_not_rolled(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.roll(WALL_MS)
        assert len(log.segments) == 1
        append(log, batch(1))
        log.roll(WALL_MS)
        log.roll(WALL_MS)
        assert [segment.base_offset for segment in log.segments] == [0, 1]

    def test_the_last_time_index_entry_of_a_sealed_segment_is_its_largest_timestamp(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, batch(1, timestamp=WALL_MS + 9))
        append(log, batch(1, timestamp=WALL_MS + 3))
        log.roll(WALL_MS)
        data = (tmp_path / "orders-0" / f"{0:020d}.timeindex").read_bytes()
        assert data == (WALL_MS + 9).to_bytes(8, "big") + bytes(4)


class TestFollower:
    def test_batches_keep_their_offsets_and_epochs(self, tmp_path: Path) -> None:
        leader = open_log(tmp_path / "leader")
        fill(leader, 30, leader_epoch=2)
        follower = open_log(tmp_path / "follower")
        while follower.log_end_offset < leader.log_end_offset:
            follower.append_as_follower(read(leader, follower.log_end_offset, max_bytes=5000))
        assert read_all(follower) == read_all(leader)
        assert follower.epochs.entries == leader.epochs.entries

    def test_a_fetch_larger_than_a_segment_fills_several(self, tmp_path: Path) -> None:
        leader = open_log(tmp_path / "leader", LARGE)
        fill(leader, 40)
        follower = open_log(tmp_path / "follower", replace(SMALL, segment_bytes=1000))
        appended = follower.append_as_follower(read(leader, 0))
        assert appended == Appended(0, 79, -1, False, leader.size_bytes)
        assert all(segment.size <= 1000 for segment in follower.segments)
        assert read_all(follower) == read_all(leader)

    def test_an_incomplete_batch_at_the_end_is_left_for_the_next_fetch(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        data = batch(2, leader_epoch=0) + batch(3, base_offset=2, leader_epoch=0)
        assert log.append_as_follower(data[:-1]).last_offset == 1
        assert log.log_end_offset == 2
        assert log.append_as_follower(data[:30]).size_bytes == 0

    @pytest.mark.parametrize("offset", [0, 1])
    def test_decreasing_offsets_are_rejected(self, tmp_path: Path, offset: int) -> None:
        log = open_log(tmp_path)
        log.append_as_follower(batch(2, leader_epoch=0))
        with pytest.raises(KafkaError, match="cannot follow"):
            log.append_as_follower(batch(1, base_offset=offset, leader_epoch=0))
        assert log.log_end_offset == 2

    def test_decreasing_epochs_are_rejected(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append_as_follower(batch(2, leader_epoch=3))
        with pytest.raises(KafkaError, match="leader epoch 2 cannot follow 3"):
            log.append_as_follower(batch(1, base_offset=2, leader_epoch=2))

    def test_a_damaged_batch_is_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        data = batch(2, leader_epoch=0)
        data[-1] ^= 1
        with pytest.raises(KafkaError) as raised:
            log.append_as_follower(data)
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE

    def test_producers_and_transactions_are_replayed_on_a_follower(self, tmp_path: Path) -> None:
        leader = open_log(tmp_path / "leader")
        append(leader, batch(1, producer_id=3, sequence=0))
        append(leader, batch(1, producer_id=4, sequence=0, transactional=True))
        marker(leader, 4, commit=False)
        follower = open_log(tmp_path / "follower")
        follower.append_as_follower(read(leader, 0))
        assert follower.producers.get(3).last_sequence == 0  # type: ignore[union-attr]
        assert follower.aborted_transactions(0, 3) == leader.aborted_transactions(0, 3) == [(4, 1, 2, 3)]


class TestFailingDisk:
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
    def test_a_full_disk_rejects_appends_serves_reads_and_recovers_when_space_is_freed(
        self, tmp_path: Path, code: int
    ) -> None:
        disk = FailingDisk()
        log = open_log(tmp_path, disk=disk)
        append(log, batch(1))
        size = log.size_bytes
        disk.fail("write", ".log", code)
        for _ in range(2):
            with pytest.raises(KafkaError, match=str(tmp_path)) as raised:
                append(log, batch(1))
            assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.health.condition is Condition.READ_ONLY
        assert (tmp_path / "orders-0" / f"{0:020d}.log").stat().st_size == size
        assert len(read_all(log)) == 1
        disk.mend()
        assert append(log, batch(1)) == 1
        assert log.health.condition is Condition.ONLINE
        assert len(read_all(log)) == 2

    def test_an_io_error_takes_the_directory_offline(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        log = open_log(tmp_path, disk=disk)
        append(log, batch(1))
        disk.fail("write", ".log", errno.EIO, times=1)
        with pytest.raises(KafkaError, match="offline"):
            append(log, batch(1))
        for use in (lambda: append(log, batch(1)), lambda: read(log, 0), log.flush):
            with pytest.raises(KafkaError) as raised:
                use()
            assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    def test_a_segment_that_could_not_be_created_is_created_by_a_later_append(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        log = open_log(tmp_path, replace(SMALL, segment_bytes=300), disk=disk)
        append(log, batch(1, 150))
        disk.fail("open", ".log", errno.ENOSPC)
        with pytest.raises(KafkaError):
            append(log, batch(1, 150))
        assert (log.log_end_offset, len(log.segments)) == (1, 1)
        disk.mend()
        assert append(log, batch(1, 150)) == 1
        assert len(log.segments) == 2

    def test_an_index_that_cannot_be_written_does_not_undo_the_append(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        log = open_log(tmp_path, replace(LARGE, index_interval_bytes=0), disk=disk)
        disk.fail("write", "index", errno.ENOSPC)
        fill(log, 600, records=1, size=1)
        assert log.log_end_offset == 600
        disk.mend()
        fill(log, 600, records=1, size=1)
        assert len(read_all(log, max_bytes=10_000)) == 1200
        log.close()
        again = open_log(tmp_path, replace(LARGE, index_interval_bytes=0), clean=True, recovery_point=1200)
        assert again.log_end_offset == 1200
        assert read_header(read(again, 700)).base_offset == 700


def test_an_append_makes_one_system_call(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, LARGE, disk=disk)
    append(log, batch(1))
    opened = len(disk.opened_paths)
    for _ in range(100):
        append(log, batch(5, 200))
    assert len(disk.opened_paths) == opened
    assert sum(1 for _ in batches(read(log, 0))) == 101


def test_a_preallocated_segment_reserves_space_without_zeros_and_releases_the_rest_when_sealed(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(SMALL, segment_bytes=1 << 20, preallocate=True))
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    if path.stat().st_blocks == 0:
        pytest.skip("this file system reserves nothing")
    append(log, batch(1))
    assert path.stat().st_size == log.size_bytes < 1000
    assert path.stat().st_blocks * 512 >= 1 << 20
    log.roll(WALL_MS)
    assert path.stat().st_blocks * 512 < 100_000
    assert (tmp_path / "orders-0" / f"{1:020d}.log").stat().st_blocks * 512 >= 1 << 20
    log.close()
    assert sum(file.stat().st_blocks for file in path.parent.iterdir()) * 512 < 100_000
    assert [read_header(data).base_offset for data in read_all(open_log(tmp_path, clean=True, recovery_point=1))] == [0]


def test_max_compaction_lag_limits_the_age_of_the_active_segment_of_a_compacted_topic(tmp_path: Path) -> None:
    compacted = LogSettings(cleanup_compact=True, cleanup_delete=False, max_compaction_lag_ms=1_000)
    log = open_log(tmp_path, compacted)
    for timestamp in (0, 1_000, 1_001):
        append(log, batch(1, timestamp=WALL_MS + timestamp))
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert LogSettings(max_compaction_lag_ms=1_000).roll_ms == LogSettings().segment_ms
