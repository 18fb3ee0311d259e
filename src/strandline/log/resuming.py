"""Where in a segment recovery may begin to read, and the reading itself.

Called by recovery. A segment's indexes tell how far it was looked after; they are believed as far as the batches they
point to bear them out, cut there, and grown again by the scan.
"""

from __future__ import annotations

from strandline.log import indexing, names
from strandline.log.offset_index import OffsetIndex
from strandline.log.scan import Scan
from strandline.log.segment import MAX_SPAN, Segment
from strandline.log.time_index import TimeIndex
from strandline.records.batch import HEADER_SIZE, BatchHeader, CorruptBatch, read_header
from strandline.runtime.disk import File

_END = 1 << 62


class SegmentScan(Scan):
    """A scan that remembers where it began."""

    __slots__ = ("first_offset",)

    def __init__(self, file: File, position: int, segment: Segment, *, checksums: bool) -> None:
        super().__init__(file, position, segment.size, segment.base_offset, checksums=checksums)
        self.first_offset = segment.base_offset

    def stop(self, position: int, next_offset: int, why: str) -> None:
        self.position, self.next_offset, self.damage = position, next_offset, why


def scan_segment(
    segment: Segment, position: int, interval: int, epochs_seen: list[tuple[int, int]], *, checksums: bool
) -> SegmentScan:
    """Blocking. Every batch from `position` on is noted in the indexes, new leader epochs in `epochs_seen`."""
    size = segment.size
    scan = SegmentScan(segment.log(), position, segment, checksums=checksums)
    is_first = True
    for at, header, _ in scan:
        if is_first:
            scan.first_offset = header.base_offset
            is_first = False
        if header.last_offset - segment.base_offset > MAX_SPAN:
            scan.stop(at, header.base_offset, f"offset {header.last_offset} is too far from the segment's base")
            break
        epoch = header.partition_leader_epoch
        if checksums and epochs_seen and 0 <= epoch < epochs_seen[-1][0]:
            # The end of a log that had been cut, come back after a power loss.
            scan.stop(at, header.base_offset, f"leader epoch {epoch} after {epochs_seen[-1][0]}")
            break
        segment.note(header.base_offset, header.last_offset, header.max_timestamp, at, header.size_bytes, interval)
        if epoch >= 0 and (not epochs_seen or epoch > epochs_seen[-1][0]):
            epochs_seen.append((epoch, header.base_offset))
    # With checksums everything from there on was seen to be good.
    segment.trusted_from = position if checksums else size
    return scan


def resume_position(segment: Segment, limit: int | None, wall_ms: int) -> int:
    """Blocking. Where to begin: `limit` is the recovery point, None after a clean shutdown.

    The segment's indexes hold afterwards what lies before that place and are ready to take the rest.
    """
    aborted = segment.aborted
    segment.begin(wall_ms)
    segment.aborted = aborted
    first = _header_at(segment, 0)
    if first is None or (limit is not None and limit <= segment.base_offset):
        return 0
    segment.first_timestamp = first.max_timestamp
    offsets = indexing.read_offsets(segment.disk, segment)
    times = indexing.read_times(segment.disk, segment, MAX_SPAN + 1)
    offset, position = offsets.floor(_END if limit is None else limit - 1)
    if limit is not None:
        # A time index does not show whether entries are missing at its end, so begin no later than its last one.
        times.keep_before(limit)
        offset, position = min((offset, position), offsets.floor(times.last_offset) if times.count else (0, 0))
    if position == 0 or not _is_borne_out(segment, offset, position, times, limit):
        segment.first_timestamp = -1
        return 0
    offsets.keep_before(offset + 1)
    if limit is not None:
        times.keep_before(offset + 1)
    segment.offsets = offsets
    segment.times = times
    segment.largest_timestamp = times.last_timestamp
    segment.largest_timestamp_offset = times.last_offset
    return position


def _is_borne_out(segment: Segment, offset: int, position: int, times: TimeIndex, limit: int | None) -> bool:
    header = _header_at(segment, position)
    if header is None or not segment.base_offset <= header.base_offset <= offset:
        return False
    return limit is None or times.last_timestamp >= 0


def _header_at(segment: Segment, position: int) -> BatchHeader | None:
    raw = segment.log().read_at(position, HEADER_SIZE)
    try:
        return read_header(raw)
    except CorruptBatch:
        return None


def trim_indexes(segment: Segment) -> None:
    """Blocking. The index files hold nothing but what is known to be right."""
    offsets, times = segment.offsets, segment.times
    assert offsets is not None and times is not None
    _trim(segment, offsets, names.OFFSET_INDEX)
    _trim(segment, times, names.TIME_INDEX)


def _trim(segment: Segment, index: OffsetIndex | TimeIndex, suffix: str) -> None:
    path = segment.path(suffix)
    disk = segment.disk
    if not disk.exists(path):
        if index.count:
            index.trim(disk, path)
    elif index.unwritten or disk.size(path) != index.count * index.entry_size:
        index.trim(disk, path)
