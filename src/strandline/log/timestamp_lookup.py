"""Finding offsets by timestamp, for ListOffsets and for retention.

Called by PartitionLog; blocking. `bounds` are the log start and the upper offset of the lookup. The checksum of every
batch whose records are decoded is verified.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from strandline.log import names
from strandline.log.cold_reads import note_damage
from strandline.log.index_file import NotLoaded
from strandline.log.index_loading import load_indexes, read_last_time
from strandline.log.local_log import LocalLog
from strandline.log.segment import Segment
from strandline.log.segment_scan import OldFormat, Scan
from strandline.records.batch import BatchHeader, CorruptBatch, Record, crc_ok, decode_batch
from strandline.runtime.disk import File

Bounds = tuple[int, int]


class FoundOffset(msgspec.Struct, frozen=True):
    offset: int
    timestamp: int
    leader_epoch: int


def largest_timestamp(local: LocalLog, segment: Segment) -> int:
    """The largest timestamp of a segment; -1 when none of its batches has one."""
    if segment.largest_timestamp is None and not read_last_time(local, segment):
        load_indexes(local, segment)
    return -1 if segment.largest_timestamp is None else segment.largest_timestamp


def offset_for_timestamp(local: LocalLog, timestamp: int, bounds: Bounds) -> FoundOffset | None:
    try:
        for segment in local.segments:
            if segment.base_offset >= bounds[1]:
                return None
            if segment.size == 0 or largest_timestamp(local, segment) < timestamp:
                continue
            found = _first_at_or_after(local, segment, timestamp, bounds)
            if found is not None:
                return found
    except OSError as error:
        raise local.health.report_error(error, f"looking up a timestamp in {local.path}") from error
    return None


def max_timestamp_offset(local: LocalLog, bounds: Bounds) -> FoundOffset | None:
    try:
        segments = [segment for segment in local.segments if segment.size and segment.base_offset < bounds[1]]
        best: FoundOffset | None = None
        for segment in sorted(segments, key=lambda segment: largest_timestamp(local, segment), reverse=True):
            largest = largest_timestamp(local, segment)
            if best is not None and best.timestamp >= largest:
                return best
            found = _largest_in(local, segment, bounds)
            if found is not None and (best is None or found.timestamp > best.timestamp):
                best = found
    except OSError as error:
        raise local.health.report_error(error, f"looking up a timestamp in {local.path}") from error
    return best


def _first_at_or_after(local: LocalLog, segment: Segment, timestamp: int, bounds: Bounds) -> FoundOffset | None:
    start, upper = bounds
    file = segment.disk.open(segment.path(names.LOG))
    try:
        position = _position_before(local, segment, timestamp)
        for header, records in _decoded_batches(local, segment, file, position, timestamp, upper):
            for record in records:
                if record.timestamp >= timestamp and start <= record.offset < upper:
                    return FoundOffset(record.offset, record.timestamp, header.partition_leader_epoch)
    finally:
        file.close()
    return None


def _largest_in(local: LocalLog, segment: Segment, bounds: Bounds) -> FoundOffset | None:
    """Finds the largest timestamp: known if all of the segment is within bounds, else by a search of its batches."""
    start, upper = bounds
    best: FoundOffset | None = None
    file = segment.disk.open(segment.path(names.LOG))
    try:
        is_within = start <= segment.base_offset and local.end_of(segment) <= upper
        least = largest_timestamp(local, segment) if is_within else -1
        position = _position_before(local, segment, least)
        for header, records in _decoded_batches(local, segment, file, position, least, upper):
            if best is not None and header.max_timestamp <= best.timestamp:
                continue
            for record in records:
                if start <= record.offset < upper and (best is None or record.timestamp > best.timestamp):
                    best = FoundOffset(record.offset, record.timestamp, header.partition_leader_epoch)
            if is_within and best is not None and best.timestamp >= least:
                return best
    finally:
        file.close()
    return best


def _position_before(local: LocalLog, segment: Segment, timestamp: int) -> int:
    """A batch boundary such that no batch before it has this timestamp or a later one."""
    try:
        if segment.times is None or segment.offsets is None:
            load_indexes(local, segment)
        assert segment.times is not None and segment.offsets is not None
        # An entry with exactly this timestamp names the last offset of its batch, which may hold the record: go below.
        _, offset = segment.times.floor(timestamp - 1)
        return segment.offsets.floor(offset)[1]
    except NotLoaded:
        load_indexes(local, segment)
        return 0


def _decoded_batches(
    local: LocalLog, segment: Segment, file: File, position: int, timestamp: int, upper: int
) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """The batches below `upper` whose largest timestamp is at least `timestamp`, verified and decoded."""
    scan = Scan(file, position, segment.size, segment.base_offset, checksums=False)
    try:
        for at, header, _ in scan:
            if header.base_offset >= upper:
                return
            if header.max_timestamp < timestamp:
                continue
            batch = file.read_at(at, header.size_bytes)
            if not crc_ok(batch, 0, header.size_bytes):
                note_damage(local, segment, at, f"wrong checksum of the batch at offset {header.base_offset}")
                continue
            yield header, decode_batch(batch)
    except (OldFormat, CorruptBatch) as error:
        scan.damage = str(error)
    if scan.damage is None:
        return
    if scan.position == position and position > 0:
        # The index pointed to a wrong position.
        yield from _decoded_batches(local, segment, file, 0, timestamp, upper)
    else:
        note_damage(local, segment, scan.position, scan.damage)
