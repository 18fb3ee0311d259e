"""Loading the indexes of a segment into memory, and rebuilding them from the log when they are not plausible.

Called while a log is opened, and by readers in a thread when they meet a sealed segment for the first time. Indexes are
disposable: entries that are missing, incomplete, padding or impossible are found again in the `.log` file.
"""

from __future__ import annotations

import logging

from strandline.log import names, offset_index, time_index, transaction_index
from strandline.log.local_log import LocalLog
from strandline.log.offset_index import OffsetIndex
from strandline.log.segment import Segment
from strandline.log.segment_scan import Scan
from strandline.log.time_index import TimeIndex
from strandline.runtime.disk import Disk

logger = logging.getLogger(__name__)

# A sealed segment whose index ends further than this before its end has lost entries.
_UNINDEXED_LIMIT = 16 << 20


def load_indexes(local: LocalLog, segment: Segment) -> None:
    """Blocking, any thread. Loads the offset and time indexes of the segment, unless they are in memory."""
    if segment is local.active:
        # Its counts are right since it was opened; only the older part may have to be loaded.
        assert segment.offsets is not None and segment.times is not None
        segment.offsets.load(segment.disk, segment.path(names.OFFSET_INDEX))
        segment.times.load(segment.disk, segment.path(names.TIME_INDEX))
        return
    if segment.offsets is not None and segment.offsets.is_loaded():
        return
    offsets = read_offsets(segment.disk, segment)
    times = read_times(segment.disk, segment, local.end_of(segment) - segment.base_offset)
    covered = offsets.floor_position(segment.size)[1]
    if (segment.size and times.count == 0) or segment.size - covered > _UNINDEXED_LIMIT:
        logger.warning("%s: rebuilding the indexes of %r, which are incomplete", local.topic_partition, segment)
        rebuild_indexes(local, segment)
        return
    segment.install_indexes(offsets, times)


def read_offsets(disk: Disk, segment: Segment) -> OffsetIndex:
    index = OffsetIndex(segment.base_offset)
    index.adopt(offset_index.sane_prefix(_read(disk, segment.path(names.OFFSET_INDEX)), segment.size))
    return index


def read_times(disk: Disk, segment: Segment, span: int) -> TimeIndex:
    index = TimeIndex(segment.base_offset)
    entries = time_index.sane_prefix(_read(disk, segment.path(names.TIME_INDEX)), span)
    index.adopt(entries)
    index.set_last(entries)
    return index


def read_last_time(local: LocalLog, segment: Segment) -> bool:
    """Blocking, any thread. The largest timestamp of a sealed segment, from the last entry of its time index; False
    when that cannot be the last entry of a sealed segment."""
    path = segment.path(names.TIME_INDEX)
    if segment is local.active or not segment.disk.exists(path):
        return False
    file = segment.disk.open(path)
    try:
        size = file.size()
        entry = file.read_at(max(0, size - time_index.ENTRY_SIZE), time_index.ENTRY_SIZE)
    finally:
        file.close()
    span = local.end_of(segment) - segment.base_offset
    if size % time_index.ENTRY_SIZE or not time_index.sane_prefix(entry, span):
        return False
    timestamp, relative = time_index.ENTRY.unpack(entry)
    segment.largest_timestamp_offset = segment.base_offset + relative
    segment.largest_timestamp = timestamp
    return True


def rebuild_indexes(local: LocalLog, segment: Segment) -> None:
    """Blocking. Rebuilds offset and time index of a sealed segment from the headers of its batches."""
    file = segment.disk.open(segment.path(names.LOG))
    try:
        built = Segment(segment.disk, segment.directory, segment.base_offset, extra=segment.extra)
        built.start_indexes(segment.created_ms)
        scan = Scan(file, 0, segment.size, segment.base_offset, checksums=False)
        end_offset = local.end_of(segment)
        for position, header, _ in scan:
            if header.next_offset > end_offset:
                # Damage, which is found again when the batch is to be served.
                break
            built.on_append(
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                position,
                header.size_bytes,
                local.settings.index_interval_bytes,
            )
    finally:
        file.close()
    built.seal()
    assert built.offsets is not None and built.times is not None
    segment.largest_timestamp = None
    segment.install_indexes(built.offsets, built.times)


def load_aborted(local: LocalLog, segment: Segment) -> None:
    """Blocking, any thread. Loads the aborted transactions of the segment, unless they are in memory."""
    if segment.aborted is not None:
        return
    path = segment.path(names.TRANSACTION_INDEX)
    entries, sane = transaction_index.load(segment.disk, path, segment.base_offset, local.end_of(segment))
    if not sane:
        logger.error(
            "%s: the transaction index of %r is damaged; %d of its entries are used",
            local.topic_partition,
            segment,
            len(entries),
        )
    segment.aborted = entries


def _read(disk: Disk, path: str) -> bytes:
    return disk.read(path) if disk.exists(path) else b""
