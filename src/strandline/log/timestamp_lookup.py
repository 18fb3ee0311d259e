"""Finding offsets by timestamp, and the aborted transactions of a range of offsets.

Called by PartitionLog for ListOffsets and for read_committed fetches. Timestamp lookups read batches and are blocking;
they verify the checksum of every batch whose records they look into.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from strandline.log import names
from strandline.log.cold_reads import ColdRead, ColdTransactionIndexes, note_damage
from strandline.log.index_file import NotLoaded
from strandline.log.index_loading import load_indexes, read_last_time
from strandline.log.scan import OldFormat, Scan
from strandline.log.segment import Segment
from strandline.log.transaction_index import AbortedTransaction
from strandline.records.batch import BatchHeader, CorruptBatch, Record, crc_ok, decode_batch
from strandline.runtime.disk import File

if TYPE_CHECKING:
    from strandline.log.partition_log import PartitionLog


class FoundOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


def largest_timestamp(log: PartitionLog, segment: Segment) -> int:
    """Blocking, any thread. -1 when no batch of the segment has one."""
    if segment.largest_timestamp is None and not read_last_time(log, segment):
        load_indexes(log, segment)
    return -1 if segment.largest_timestamp is None else segment.largest_timestamp


def offset_for_timestamp(log: PartitionLog, timestamp: int, upper: int) -> FoundOffset | None:
    try:
        for segment in log.segments:
            if segment.base_offset >= upper:
                return None
            if segment.size == 0 or largest_timestamp(log, segment) < timestamp:
                continue
            found = _first_at_or_after(log, segment, timestamp, upper)
            if found is not None:
                return found
    except OSError as error:
        raise log.health.explain(error, f"looking for a timestamp in {log.path}") from error
    return None


def max_timestamp_offset(log: PartitionLog, upper: int) -> FoundOffset | None:
    try:
        segments = [segment for segment in log.segments if segment.size and segment.base_offset < upper]
        best: FoundOffset | None = None
        for segment in sorted(segments, key=lambda segment: largest_timestamp(log, segment), reverse=True):
            largest = largest_timestamp(log, segment)
            if best is not None and best.timestamp >= largest:
                return best
            found = _largest_in(log, segment, upper)
            if found is not None and (best is None or found.timestamp > best.timestamp):
                best = found
    except OSError as error:
        raise log.health.explain(error, f"looking for a timestamp in {log.path}") from error
    return best


def aborted_transactions(log: PartitionLog, start: int, upper: int) -> list[AbortedTransaction] | ColdRead:
    found: list[AbortedTransaction] = []
    segments = log.segments
    for index in range(log.segment_index(start), len(segments)):
        entries = segments[index].aborted
        if entries is None:
            return ColdTransactionIndexes(log)
        for entry in entries:
            if entry.last_offset >= start and entry.first_offset < upper:
                found.append(entry)
            if entry.last_stable_offset >= upper:
                # Whatever was aborted later began at or above this offset.
                return found
    return found


def _first_at_or_after(log: PartitionLog, segment: Segment, timestamp: int, upper: int) -> FoundOffset | None:
    file = segment.disk.open(segment.path(names.LOG))
    try:
        position = _position_before(log, segment, timestamp)
        for header, records in _opened_batches(log, segment, file, position, timestamp, upper):
            for record in records:
                if record.timestamp >= timestamp and log.log_start_offset <= record.offset < upper:
                    return FoundOffset(record.offset, record.timestamp, header.partition_leader_epoch)
    finally:
        file.close()
    return None


def _largest_in(log: PartitionLog, segment: Segment, upper: int) -> FoundOffset | None:
    """With all of the segment in sight, its largest timestamp is known; else the batches must be looked through."""
    best: FoundOffset | None = None
    file = segment.disk.open(segment.path(names.LOG))
    try:
        end = log.end_of(log.segment_index(segment.base_offset))
        in_sight = log.log_start_offset <= segment.base_offset and end <= upper
        least = largest_timestamp(log, segment) if in_sight else -1
        position = _position_before(log, segment, least)
        for header, records in _opened_batches(log, segment, file, position, least, upper):
            if best is not None and header.max_timestamp <= best.timestamp:
                continue
            for record in records:
                if log.log_start_offset <= record.offset < upper and (
                    best is None or record.timestamp > best.timestamp
                ):
                    best = FoundOffset(record.offset, record.timestamp, header.partition_leader_epoch)
            if in_sight and best is not None and best.timestamp >= least:
                return best
    finally:
        file.close()
    return best


def _position_before(log: PartitionLog, segment: Segment, timestamp: int) -> int:
    """A batch boundary with no batch of this timestamp, or a later one, before it."""
    try:
        if segment.times is None or segment.offsets is None:
            load_indexes(log, segment)
        assert segment.times is not None and segment.offsets is not None
        # An entry with exactly this timestamp names the last offset of its batch, which may hold the record: go below.
        _, offset = segment.times.floor(timestamp - 1)
        return segment.offsets.floor(offset)[1]
    except NotLoaded:
        load_indexes(log, segment)
        return 0


def _opened_batches(
    log: PartitionLog, segment: Segment, file: File, position: int, timestamp: int, upper: int
) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """The batches below `upper` with a timestamp not below the wanted one, decoded, their checksums seen."""
    scan = Scan(file, position, segment.size, segment.base_offset, checksums=False)
    try:
        for at, header, _ in scan:
            if header.base_offset >= upper:
                return
            if header.max_timestamp < timestamp:
                continue
            batch = file.read_at(at, header.size_bytes)
            if not crc_ok(batch, 0, header.size_bytes):
                note_damage(log, segment, at, f"checksum of the batch at offset {header.base_offset} does not fit")
                continue
            yield header, decode_batch(batch)
    except (OldFormat, CorruptBatch) as error:
        scan.damage = str(error)
    if scan.damage is None:
        return
    if scan.position == position and position > 0:
        # The index led astray.
        yield from _opened_batches(log, segment, file, 0, timestamp, upper)
    else:
        note_damage(log, segment, scan.position, scan.damage)
