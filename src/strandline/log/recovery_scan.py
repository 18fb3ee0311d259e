"""Recovering one segment: where its scan may start, and the scan itself.

Called by `recovery`. The indexes of a segment are trusted as far as the batches they point to agree with them; they are
truncated there, and the scan adds the entries behind.
"""

from __future__ import annotations

import msgspec

from strandline.log import index_loading, names
from strandline.log.offset_index import OffsetIndex
from strandline.log.segment import MAX_SPAN, Segment
from strandline.log.segment_scan import VerifyingScan
from strandline.log.time_index import TimeIndex
from strandline.records.batch import CONTROL, HEADER_SIZE, BatchHeader, CorruptBatch, read_header

_END = 1 << 62


class ScanStart(msgspec.Struct, frozen=True):
    """Where a scan starts, and the offset expected there."""

    position: int
    offset: int


class Scanned(msgspec.Struct, frozen=True):
    first_offset: int
    """The offset of the first batch scanned."""
    next_offset: int
    """The offset after the last intact batch."""
    position: int
    """Where that batch ends."""
    damage: str | None
    """Why the scan ended before the end of the file."""
    saw_markers: bool
    """Whether a transaction ended in the scanned part."""


def scan_segment(
    segment: Segment,
    start: ScanStart,
    interval: int,
    epochs_seen: list[tuple[int, int]],
    *,
    end_offset: int | None,
    gaps_expected: bool,
) -> Scanned:
    """Blocking. Adds intact batches from `start` on to the indexes, and new leader epochs to `epochs_seen`."""
    scan = VerifyingScan(
        segment.log_file(),
        start.position,
        segment.size,
        start.offset,
        end_offset=end_offset,
        gaps_expected=gaps_expected,
        leader_epoch=epochs_seen[-1][0] if epochs_seen else -1,
    )
    first_offset = start.offset
    saw_markers = False
    for at, header, _ in scan:
        if at == start.position:
            first_offset = header.base_offset
        if header.last_offset - segment.base_offset > MAX_SPAN:
            why = f"offset {header.last_offset} is too far from the segment's base"
            return Scanned(first_offset, header.base_offset, at, why, saw_markers)
        segment.on_append(header.base_offset, header.last_offset, header.max_timestamp, at, header.size_bytes, interval)
        if header.attributes & CONTROL:
            saw_markers = True
        epoch = header.partition_leader_epoch
        if epoch >= 0 and (not epochs_seen or epoch > epochs_seen[-1][0]):
            epochs_seen.append((epoch, header.base_offset))
    segment.trusted_from = start.position
    return Scanned(first_offset, scan.next_offset, scan.position, scan.damage, saw_markers)


def scan_start(segment: Segment, limit: int | None, wall_ms: int) -> ScanStart:
    """Blocking. Where to start the scan of a segment. `limit` is the recovery point, None after a clean shutdown.

    The segment's indexes then hold the entries before the start; the scan adds the others."""
    aborted = segment.aborted
    segment.start_indexes(wall_ms)
    segment.aborted = aborted
    from_the_start = ScanStart(0, segment.base_offset)
    first = _header_at(segment, 0)
    if first is None or (limit is not None and limit <= segment.base_offset):
        return from_the_start
    offsets = index_loading.read_offsets(segment.disk, segment)
    times = index_loading.read_times(segment.disk, segment, MAX_SPAN + 1)
    offset, position = offsets.floor(_END if limit is None else limit - 1)
    if limit is not None:
        # A time index does not show whether entries are missing at its end, so start no later than its last one.
        times.keep_before(limit)
        offset, position = min((offset, position), offsets.floor(times.last_offset) if times.count else (0, 0))
    header = _header_at(segment, position) if position else None
    if header is None or header.last_offset != offset:
        return from_the_start
    offsets.keep_before(offset + 1)
    if limit is not None:
        times.keep_before(offset + 1)
    segment.offsets = offsets
    segment.times = times
    segment.first_timestamp = first.max_timestamp
    segment.largest_timestamp = times.last_timestamp
    segment.largest_timestamp_offset = times.last_offset
    return ScanStart(position, header.base_offset)


def _header_at(segment: Segment, position: int) -> BatchHeader | None:
    raw = segment.log_file().read_at(position, HEADER_SIZE)
    try:
        return read_header(raw)
    except CorruptBatch:
        return None


def trim_indexes(segment: Segment) -> None:
    """Blocking. The index files hold exactly the entries in memory."""
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
