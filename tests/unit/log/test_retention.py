"""Retention: by time, by size, and below the log start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from strandline.log.partition_log import PartitionLog
from strandline.model.errors import ErrorCode, KafkaError
from unit.log.logs import SMALL, WALL_MS, append, batch, delete_expired, files, open_log, read_all


def log_of_segments(path: Path, count: int, **changes: int) -> PartitionLog:
    """Segments of two records each, one second apart; the last is active."""
    log = open_log(path, replace(SMALL, **changes))
    for number in range(count):
        if number:
            log.roll(WALL_MS)
        append(log, batch(2, timestamp=WALL_MS + 1000 * number))
    return log


def test_segments_are_deleted_when_their_newest_record_is_too_old(tmp_path: Path) -> None:
    log = log_of_segments(tmp_path, 5, retention_ms=2500)
    deleted = delete_expired(log, WALL_MS + 4001)
    assert [segment.base_offset for segment in deleted] == [0, 2]
    assert (log.log_start_offset, log.log_end_offset) == (4, 10)
    assert log.size_bytes == sum(segment.size for segment in log.segments)
    assert files(tmp_path, ".deleted") == [
        f"{offset:020d}{suffix}.deleted" for offset in (0, 2) for suffix in (".index", ".log", ".timeindex")
    ]
    for segment in deleted:
        segment.remove()
    assert not files(tmp_path, ".deleted")
    assert len(read_all(log)) == 3


def test_a_record_from_the_future_keeps_its_segment_and_those_behind(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(SMALL, retention_ms=1000, message_timestamp_after_max_ms=10**12))
    append(log, batch(1, timestamp=WALL_MS + 10**9))
    log.roll(WALL_MS)
    append(log, batch(1, timestamp=WALL_MS))
    assert log.expired_segments(WALL_MS + 10**6) == 0


def test_a_segment_without_timestamps_is_as_old_as_its_file(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(SMALL, retention_ms=1000))
    log.append_as_follower(batch(1, timestamp=-1, leader_epoch=0))
    log.roll(WALL_MS)
    log.advance_high_watermark(1)
    os.utime(tmp_path / "orders-0" / f"{0:020d}.log", (WALL_MS // 1000, WALL_MS // 1000))
    assert log.expired_segments(WALL_MS + 500) == 0
    assert log.expired_segments(WALL_MS + 1500) == 1


def test_segments_are_deleted_while_retention_bytes_remain(tmp_path: Path) -> None:
    log = log_of_segments(tmp_path, 5)
    size = log.segments[0].size
    for limit, remaining in ((5 * size, 5), (5 * size - 1, 5), (4 * size, 4), (2 * size + 1, 3), (2 * size, 2)):
        log.update_settings(replace(SMALL, retention_bytes=limit))
        delete_expired(log, WALL_MS)
        assert len(log.segments) == remaining


def test_no_segment_above_the_high_watermark_is_deleted(tmp_path: Path) -> None:
    log_of_segments(tmp_path, 4, retention_ms=10).close()
    log = open_log(tmp_path, replace(SMALL, retention_ms=10), clean=True)
    log.advance_high_watermark(5)
    assert log.expired_segments(WALL_MS + 10**9) == 2


def test_when_everything_is_too_old_an_empty_segment_remains(tmp_path: Path) -> None:
    log = log_of_segments(tmp_path, 3, retention_ms=10)
    assert len(delete_expired(log, WALL_MS + 10**9)) == 3
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (6, 6, 0)
    assert log.expired_segments(WALL_MS + 10**9) == 0
    log.close()
    again = open_log(tmp_path, clean=True, recovery_point=6)
    assert (again.log_start_offset, again.log_end_offset) == (6, 6)
    assert append(again, batch(1)) == 6


def test_a_compacted_log_is_not_subject_to_retention_but_to_its_log_start(tmp_path: Path) -> None:
    log = log_of_segments(tmp_path, 3, retention_ms=10)
    log.update_settings(replace(log.settings, cleanup_delete=False, cleanup_compact=True, retention_bytes=1))
    assert log.expired_segments(WALL_MS + 10**9) == 0
    log.delete_records_before(3)
    assert log.expired_segments(WALL_MS + 10**9) == 1


def test_deleted_records_are_not_served_and_their_segments_are_deleted_later(tmp_path: Path) -> None:
    log = log_of_segments(tmp_path, 4)
    assert log.delete_records_before(5) == 5
    assert log.log_start_offset == 5
    assert log.delete_records_before(3) == 5
    assert len(delete_expired(log, WALL_MS)) == 2
    assert (log.log_start_offset, log.segments[0].base_offset) == (5, 4)


@pytest.mark.parametrize("offset", [-1, 9])
def test_records_above_the_high_watermark_cannot_be_deleted(tmp_path: Path, offset: int) -> None:
    log = log_of_segments(tmp_path, 4)
    with pytest.raises(KafkaError) as raised:
        log.delete_records_before(offset)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_producer_snapshots_are_deleted_with_their_segment(tmp_path: Path) -> None:
    log = log_of_segments(tmp_path, 4)
    append(log, batch(1, producer_id=1, sequence=0))
    log.flush()
    assert files(tmp_path, ".snapshot") == [f"{offset:020d}.snapshot" for offset in (2, 4, 6)]
    log.delete_records_before(6)
    for segment in delete_expired(log, WALL_MS):
        segment.remove()
    assert files(tmp_path, ".snapshot") == [f"{6:020d}.snapshot"]
