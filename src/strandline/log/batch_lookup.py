"""From an offset to the batch that holds it: the newest batches from memory, others by the offset index and a walk.

Used by reads and truncation. The walk trusts nothing: an index entry only says where to start, and every header on the
way must be plausible at its place. The checksum of the batch found still has to be verified before it is served.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable

from strandline.log.index_file import NotLoaded
from strandline.log.segment import BatchLocation, Segment
from strandline.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC
from strandline.runtime.disk import Buffer

# Base offset, length, leader epoch, magic, checksum, attributes, last offset delta.
_HEADER_START = struct.Struct(">qiibIhi")
_WALK_BYTES = 8192
_MAX_HINTS = 64

ReadBytes = Callable[[int, int], Buffer | None]


class Damaged(Exception):
    """There is no valid batch where one must be."""

    def __init__(self, position: int, why: str, offset: int = -1) -> None:
        super().__init__(f"at position {position}: {why}")
        self.position = position
        self.why = why
        self.offset = offset
        """The smallest offset that the batch may have had."""


class BadIndex(Exception):
    """The offset index points to where no batch starts: it must be rebuilt."""


def recent(segment: Segment, offset: int) -> BatchLocation | None:
    """The batch that `locate` would find, if it is among the newest appended; costs no IO."""
    newest = segment.recent
    if newest is None or offset < newest[0]:
        return None
    count = len(newest) // 3
    at = bisect_left(range(count), offset, key=lambda i: newest[3 * i + 1])
    if at == count:
        return None
    position = newest[3 * at + 2]
    end = newest[3 * at + 5] if at + 1 < count else segment.size
    return BatchLocation(position, end - position, newest[3 * at])


def known(segment: Segment, offset: int) -> BatchLocation | None:
    """The location that `recent` returns, or that an earlier read has found."""
    found = recent(segment, offset)
    if found is None and segment.hints is not None:
        return segment.hints.get(offset)
    return found


def remember(segment: Segment, offset: int, location: BatchLocation) -> None:
    """Any thread: replaces the hints, never changes them in place."""
    hints = segment.hints or {}
    if len(hints) >= _MAX_HINTS:
        hints = dict(list(hints.items())[_MAX_HINTS // 2 :])
    segment.hints = {**hints, offset: location}


def locate(segment: Segment, offset: int, read: ReadBytes) -> BatchLocation | None:
    """The first batch whose last offset is not below `offset`; None when the segment ends before it.

    `read` returns bytes of the segment's file, or None when they are not in memory; then NotLoaded is raised, as when
    the index is not in memory.
    """
    offsets = segment.offsets
    if offsets is None:
        raise NotLoaded
    _, start = offsets.floor(offset)
    try:
        return walk(segment, start, offset, read)
    except Damaged as damage:
        if start and damage.position == start:
            raise BadIndex(str(damage)) from None
        raise


def walk(segment: Segment, position: int, offset: int, read: ReadBytes) -> BatchLocation | None:
    """The first batch from `position` on whose last offset is not below `offset`."""
    size = segment.size
    least = segment.base_offset
    started_at = position
    chunk: Buffer = b""
    chunk_start = position
    while position < size:
        at = position - chunk_start
        if at + _HEADER_START.size > len(chunk):
            if size - position < HEADER_SIZE:
                raise Damaged(position, f"{size - position} bytes are less than a batch header", least)
            data = read(position, min(_WALK_BYTES, size - position))
            if data is None:
                raise NotLoaded
            chunk, chunk_start, at = data, position, 0
            if len(chunk) < _HEADER_START.size:
                raise Damaged(position, "the file is shorter than it was", least)
        base_offset, length, _, magic, _, _, delta = _HEADER_START.unpack_from(chunk, at)
        length += LOG_OVERHEAD
        if magic != MAGIC or length < HEADER_SIZE or length > size - position or base_offset < least or delta < 0:
            raise Damaged(position, f"no batch header (offset {base_offset}, length {length}, magic {magic})", least)
        if base_offset > offset and position == started_at and started_at > 0:
            raise BadIndex(f"the index points to offset {base_offset} for offset {offset}")
        if base_offset + delta >= offset:
            return BatchLocation(position, length, base_offset)
        least = base_offset + delta + 1
        position += length
    return None
