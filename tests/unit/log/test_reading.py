"""Reads: what is returned, which reads are cold, and which need no disk work."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.log.cold_reads import ColdRead
from strandline.log.partition_log import PartitionLog
from strandline.log.reading import Read
from strandline.log.settings import LogSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.records.batch import batches, read_header
from strandline.runtime.disk import SystemDisk, SystemFile
from unit.log.failing_disk import FailingDisk
from unit.log.logs import SMALL, append, batch, fill, open_log, read, read_all


class NothingCached(SystemDisk):
    """A file system that does not support reads of cached data only."""

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        file = super().open(path, create=create)
        file.__class__ = UncachedFile
        return file


class UncachedFile(SystemFile):
    __slots__ = ()

    def read_cached(self, position: int, size: int) -> bytes | None:
        return None


def headers(data: bytes) -> list[tuple[int, int]]:
    return [(header.base_offset, header.last_offset) for _, header in batches(data)]


def reopened(path: Path, log: PartitionLog, disk: SystemDisk | None = None) -> PartitionLog:
    log.close()
    return open_log(path, clean=True, recovery_point=log.log_end_offset, disk=disk)


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=40),
    asked=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400), st.integers(1, 3000)), min_size=1, max_size=8),
    reopen=st.booleans(),
    cached=st.booleans(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_read_starts_with_the_batch_that_holds_the_offset_and_ends_below_the_bound(
    tmp_path_factory: pytest.TempPathFactory,
    counts: list[int],
    asked: list[tuple[int, int, int]],
    reopen: bool,
    cached: bool,
) -> None:
    path = tmp_path_factory.mktemp("log")
    disk = SystemDisk() if cached else NothingCached()
    log = open_log(path, disk=disk)
    for count in counts:
        append(log, batch(count, 60))
    if reopen:
        log = reopened(path, log, disk)
    end = log.log_end_offset
    for offset, before, max_bytes in asked:
        offset, before = offset % (end + 1), before % (end + 1)
        data = read(log, offset, max_bytes=max_bytes, before_offset=before)
        found = headers(data)
        if found:
            assert found[0][0] <= offset <= found[0][1]
            assert found[-1][1] < before
            assert len(data) <= max_bytes or len(found) == 1
        else:
            # No whole batch is between offset and bound.
            whole = headers(read(log, offset)) if offset < end else []
            assert offset >= before or whole[0][1] >= before


def test_a_batch_larger_than_max_bytes_is_returned_only_with_at_least_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(1, 500))
    result = log.read(0, max_bytes=100, at_least_one=False)
    assert isinstance(result, Read)
    assert result.slice is None
    assert len(read(log, 0, max_bytes=100)) > 500


def test_a_read_at_the_log_end_is_empty_and_beyond_it_out_of_range(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    assert read(log, 6) == b""
    for offset in (-1, 7):
        with pytest.raises(KafkaError) as raised:
            log.read(offset, max_bytes=100)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.delete_records_before(2)
    with pytest.raises(KafkaError):
        log.read(1, max_bytes=100)


def test_records_appended_by_this_process_are_read_without_disk_work(tmp_path: Path) -> None:
    disk = NothingCached()
    log = open_log(tmp_path, LogSettings(), disk=disk)
    for _ in range(50):
        append(log, batch(3))
        result = log.read(log.log_end_offset - 2, max_bytes=1000)
        assert isinstance(result, Read)
        assert result.slice is not None
        assert headers(result.slice.read())[0][1] == log.log_end_offset - 1
    behind = log.read(log.log_end_offset - 9, max_bytes=1 << 20, before_offset=log.log_end_offset - 3)
    assert isinstance(behind, Read)


def test_other_records_are_cold_until_their_checksums_are_verified(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 60)
    log = reopened(tmp_path, log)
    result = log.read(0, max_bytes=500)
    assert isinstance(result, ColdRead)
    result.load()
    result = log.read(0, max_bytes=500)
    assert isinstance(result, Read)
    # One load verifies much of what follows.
    segment = log.segments[0]
    assert segment.verified_until(0) == segment.size


def test_a_slice_ends_at_a_batch_boundary_if_the_index_has_one(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogSettings(index_interval_bytes=0))
    fill(log, 30, records=1, size=300)
    data = read(log, 0, max_bytes=2000)
    assert sum(header.size_bytes for _, header in batches(data)) == len(data)


def test_a_read_continues_after_a_gap_that_compaction_left(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogSettings(cleanup_compact=True))
    log.append_as_follower(batch(2, leader_epoch=0))
    log.roll()
    log.append_as_follower(batch(1, base_offset=10, leader_epoch=0))
    assert log.segments[1].base_offset == 2
    assert headers(read(log, 5)) == [(10, 10)]
    assert headers(read(log, 0, before_offset=7)) == [(0, 1)]


def test_an_io_error_while_reading_takes_the_directory_offline(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    fill(log, 60)
    log = reopened(tmp_path, log, disk)
    disk.fail("read", ".log")
    with pytest.raises(KafkaError, match="offline") as raised:
        read(log, 0)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):
        append(log, batch(1))


def test_the_estimate_of_bytes_is_exact_near_the_end_and_close_elsewhere(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 100, records=1)
    size = len(batch(1))
    assert log.bytes_between(95, 100) == 5 * size
    assert log.bytes_between(100, 100) == 0
    assert abs(log.bytes_between(10, 60) - 50 * size) < 5 * size
    assert log.bytes_between(0, 100) == log.size_bytes


def test_an_idle_log_closes_its_files_and_reopens_them_for_a_read(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 60)
    expected = read_all(log)
    held = log.read(log.log_end_offset - 1, max_bytes=1000)
    log.release_if_idle()
    assert log.segments[-1].file is not None
    log.release_if_idle()
    assert all(segment.file is None and segment.recent is None for segment in log.segments)
    # A slice returned before can still be read, and nothing has to be verified again.
    assert isinstance(held, Read) and held.slice is not None
    assert read_header(held.slice.read()).last_offset == log.log_end_offset - 1
    assert read_all(log) == expected
    assert append(log, batch(1)) == 120


def test_the_memory_of_a_log_is_bounded_while_all_of_it_is_read(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    fill(log, 400)
    log = reopened(tmp_path, log)
    read_all(log)
    assert all(segment.hints is None or len(segment.hints) <= 64 for segment in log.segments)
    assert all(len(segment.verified) <= 1 for segment in log.segments)


def test_a_disk_that_fails_while_a_response_is_sent_takes_its_directory_offline(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    found = log.read(0, max_bytes=1000)
    assert isinstance(found, Read) and found.slice is not None
    found.slice.failed(FileNotFoundError(errno.ENOENT, "retention was faster"))
    assert log.health.is_online
    found.slice.failed(OSError(errno.EIO, "Input/output error"))
    assert not log.health.is_online and "Input/output error" in log.health.reason
