"""Getting the indexes of a segment into memory, and making them anew from the log when they cannot be right.

Called while a log is opened, and by readers in a thread when they meet a sealed segment for the first time. Indexes are
disposable: whatever is missing, cut off, padded or insane in them is found again in the `.log` file.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from strandline.log import names, offset_index, time_index, transaction_index
from strandline.log.offset_index import OffsetIndex
from strandline.log.scan import Scan
from strandline.log.segment import Segment
from strandline.log.time_index import TimeIndex
from strandline.runtime.disk import Disk

if TYPE_CHECKING:
    from strandline.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

# A sealed segment whose index ends earlier than this before its end has lost entries.
_UNINDEXED_LIMIT = 16 << 20


def load_indexes(log: PartitionLog, segment: Segment) -> None:
    """Blocking, any thread. After it the offset and time indexes of the segment are in memory."""
    if segment is log.active:
        # Its counts are right since it was opened; only the older part may have to be fetched.
        assert segment.offsets is not None and segment.times is not None
        segment.offsets.load(segment.disk, segment.path(names.OFFSET_INDEX))
        segment.times.load(segment.disk, segment.path(names.TIME_INDEX))
        return
    if segment.offsets is not None and segment.offsets.is_loaded():
        return
    span = log.end_of(log.segment_index(segment.base_offset)) - segment.base_offset
    offsets = read_offsets(segment.disk, segment)
    times = read_times(segment.disk, segment, span)
    covered = offsets.floor_position(segment.size)[1]
    if (segment.size and times.count == 0) or segment.size - covered > _UNINDEXED_LIMIT:
        logger.warning("%s: the indexes of %r are incomplete and are rebuilt", log.topic_partition, segment)
        rebuild_indexes(log, segment)
        return
    publish(segment, offsets, times)


def read_offsets(disk: Disk, segment: Segment) -> OffsetIndex:
    index = OffsetIndex(segment.base_offset)
    index.adopt(offset_index.sane_prefix(_read(disk, segment.path(names.OFFSET_INDEX)), segment.size))
    return index


def read_times(disk: Disk, segment: Segment, span: int) -> TimeIndex:
    index = TimeIndex(segment.base_offset)
    entries = time_index.sane_prefix(_read(disk, segment.path(names.TIME_INDEX)), span)
    index.adopt(entries)
    index.recall(entries)
    return index


def read_last_time(log: PartitionLog, segment: Segment) -> bool:
    """Blocking, any thread. The largest timestamp of a sealed segment, from the last entry of its time index; False
    when that cannot be the last entry of a sealed segment."""
    path = segment.path(names.TIME_INDEX)
    if segment is log.active or not segment.disk.exists(path):
        return False
    file = segment.disk.open(path)
    try:
        size = file.size()
        entry = file.read_at(max(0, size - time_index.ENTRY_SIZE), time_index.ENTRY_SIZE)
    finally:
        file.close()
    span = log.end_of(log.segment_index(segment.base_offset)) - segment.base_offset
    if size % time_index.ENTRY_SIZE or not time_index.sane_prefix(entry, span):
        return False
    timestamp, relative = time_index.ENTRY.unpack(entry)
    segment.largest_timestamp_offset = segment.base_offset + relative
    segment.largest_timestamp = timestamp
    return True


def publish(segment: Segment, offsets: OffsetIndex, times: TimeIndex) -> None:
    segment.times = times
    if segment.largest_timestamp is None:
        segment.largest_timestamp_offset = times.last_offset
        segment.largest_timestamp = times.last_timestamp
    # Last: whoever sees the offset index finds everything else in place.
    segment.offsets = offsets


def rebuild_indexes(log: PartitionLog, segment: Segment) -> None:
    """Blocking. Offset and time index of a sealed segment from the headers of its batches."""
    file = segment.disk.open(segment.path(names.LOG))
    try:
        built = Segment(segment.disk, segment.directory, segment.base_offset, extra=segment.extra)
        built.begin(segment.created_ms)
        scan = Scan(file, 0, segment.size, segment.base_offset, checksums=False)
        end_offset = log.end_of(log.segment_index(segment.base_offset))
        for position, header, _ in scan:
            if header.next_offset > end_offset:
                # Damage, which is met again when the batch is to be served.
                break
            built.note(
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                position,
                header.size_bytes,
                log.settings.index_interval_bytes,
            )
    finally:
        file.close()
    built.seal()
    assert built.offsets is not None and built.times is not None
    offsets, times = built.offsets, built.times
    segment.largest_timestamp = None
    publish(segment, offsets, times)


def load_aborted(log: PartitionLog, segment: Segment) -> None:
    """Blocking, any thread. After it the aborted transactions of the segment are in memory."""
    if segment.aborted is not None:
        return
    end = log.end_of(log.segment_index(segment.base_offset))
    entries, sane = transaction_index.load(
        segment.disk, segment.path(names.TRANSACTION_INDEX), segment.base_offset, end
    )
    if not sane:
        logger.error(
            "%s: the transaction index of %r is damaged; %d of its entries are kept",
            log.topic_partition,
            segment,
            len(entries),
        )
    segment.aborted = entries


def _read(disk: Disk, path: str) -> bytes:
    return disk.read(path) if disk.exists(path) else b""
