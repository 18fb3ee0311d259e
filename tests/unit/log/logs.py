"""Logs on a real disk in a temporary directory, and the steps that most tests of them share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from strandline.log.appending import Appended
from strandline.log.cold_reads import ColdRead
from strandline.log.partition_log import PartitionLog
from strandline.log.segment import Segment
from strandline.log.settings import LogSettings
from strandline.log.truncation import BeforeTruncation, FullTruncation, Truncation
from strandline.log.validation import Origin, validate
from strandline.model.ids import TopicPartition
from strandline.records.batch import Record, batches, crc_ok, encode_batch, end_transaction_marker
from strandline.runtime.disk import Disk, SystemDisk

PARTITION = TopicPartition("orders", 0)
WALL_MS = 1_700_000_000_000
# Small, so that a few batches make several segments with several index entries each.
SMALL = LogSettings(segment_bytes=4096, index_interval_bytes=256, retention_ms=-1)


def open_log(
    path: Path,
    settings: LogSettings = SMALL,
    *,
    recovery_point: int = 0,
    log_start_offset: int | None = None,
    clean: bool = False,
    disk: Disk | None = None,
    before_truncation: BeforeTruncation | None = None,
) -> PartitionLog:
    return PartitionLog.open(
        disk or SystemDisk(),
        str(path / str(PARTITION)),
        PARTITION,
        settings,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean=clean,
        wall_ms=WALL_MS,
        before_truncation=before_truncation,
    )


def batch(
    count: int = 1,
    size: int = 100,
    *,
    timestamp: int = WALL_MS,
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = -1,
    transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    records = [Record(-1, timestamp + number, b"key", bytes([number % 256]) * size) for number in range(count)]
    return encode_batch(
        records,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
    )


def append_as_leader(
    log: PartitionLog,
    data: bytes | bytearray,
    *,
    leader_epoch: int = 0,
    wall_ms: int = WALL_MS,
    origin: Origin = Origin.CLIENT,
) -> Appended:
    """Validate and append, as a leader does for a produce request."""
    validated = validate(memoryview(data), log.settings, wall_ms=wall_ms, origin=origin)
    return log.append_as_leader(validated, leader_epoch=leader_epoch, wall_ms=wall_ms)


def append(log: PartitionLog, data: bytearray, leader_epoch: int = 0) -> int:
    """The base offset of the batch. The high watermark follows, as on a single replica."""
    appended = append_as_leader(log, data, leader_epoch=leader_epoch)
    log.advance_high_watermark(log.log_end_offset)
    return appended.base_offset


def truncate(log: PartitionLog, offset: int) -> None:
    _run(log.begin_truncation(offset))


def truncate_fully(log: PartitionLog, offset: int) -> None:
    """The log is then empty and starts at `offset`."""
    _run(log.begin_full_truncation(offset))


def _run(truncation: Truncation | FullTruncation) -> None:
    truncation.run()
    for segment in truncation.apply():
        segment.remove()


def delete_expired(log: PartitionLog, wall_ms: int) -> list[Segment]:
    return log.delete_oldest_segments(log.expired_segments(wall_ms), wall_ms)


def fill(log: PartitionLog, count: int, *, records: int = 2, size: int = 100, leader_epoch: int = 0) -> None:
    for number in range(count):
        append(log, batch(records, size, timestamp=WALL_MS + 10 * number), leader_epoch)


def marker(log: PartitionLog, producer_id: int, *, commit: bool, producer_epoch: int = 0) -> int:
    data = end_transaction_marker(
        commit=commit,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=0,
        timestamp=WALL_MS,
        base_offset=log.log_end_offset,
        leader_epoch=log.epochs.latest,
    )
    return log.append_as_follower(data).base_offset


def read(log: PartitionLog, offset: int, *, max_bytes: int = 1 << 20, before_offset: int | None = None) -> bytes:
    """What a consumer gets; at most two cold reads come before it."""
    for _ in range(3):
        result = log.read(offset, max_bytes=max_bytes, before_offset=before_offset)
        if not isinstance(result, ColdRead):
            return b"" if result.slice is None else result.slice.read()
        result.load()
    raise AssertionError(f"{log!r} stays cold at {offset}")


def read_all(log: PartitionLog, *, max_bytes: int = 1000) -> list[bytes]:
    """Every batch from the log start to the log end, its checksum verified."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = read(log, offset, max_bytes=max_bytes)
        assert data, f"nothing at {offset} of {log!r}"
        for position, header in batches(data):
            assert crc_ok(data, position, header.size_bytes)
            found.append(data[position : position + header.size_bytes])
            offset = header.next_offset
    return found


def files(path: Path, *suffixes: str) -> list[str]:
    names: Iterable[str] = (entry.name for entry in (path / str(PARTITION)).iterdir())
    return sorted(name for name in names if not suffixes or name.endswith(suffixes))
