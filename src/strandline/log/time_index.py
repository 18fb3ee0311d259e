"""`.timeindex`: sparse map from timestamp to offset, 12-byte entries (timestamp, offset - base offset), both ascending.

Owned by one segment. An entry says: up to this offset, no batch of the segment has a larger timestamp. It is added
together with an offset index entry if the largest timestamp has grown, and once more when the segment is sealed.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

from strandline.log.index_file import IndexFile

ENTRY = struct.Struct(">qi")
ENTRY_SIZE = ENTRY.size

_unpack = ENTRY.unpack_from
_pack = ENTRY.pack


class TimeIndex(IndexFile):
    __slots__ = ("base_offset", "last_offset", "last_timestamp")

    def __init__(self, base_offset: int, count: int = 0) -> None:
        super().__init__(ENTRY_SIZE, count)
        self.base_offset = base_offset
        self.last_timestamp = -1
        self.last_offset = base_offset

    def add(self, timestamp: int, offset: int) -> None:
        """Ignored unless both are larger than in the last entry: Kafka's sanity check requires that."""
        if timestamp > self.last_timestamp and (offset > self.last_offset or self.count == 0):
            self.append(_pack(timestamp, offset - self.base_offset))
            self.last_timestamp = timestamp
            self.last_offset = offset

    def floor(self, timestamp: int) -> tuple[int, int]:
        """(timestamp, offset) of the largest entry not above `timestamp`, or (-1, base offset); may raise NotLoaded."""
        _, entries = self.in_memory()
        if not entries or _unpack(entries, 0)[0] > timestamp:
            entries = self.older()
        at = bisect_right(range(len(entries) // 12), timestamp, key=lambda i: _unpack(entries, i * 12)[0])
        if at == 0:
            return -1, self.base_offset
        found, relative = _unpack(entries, (at - 1) * 12)
        return found, self.base_offset + relative

    def count_before(self, offset: int) -> int:
        """How many entries are below `offset`; the index must be loaded."""
        entries = self.older() + self.in_memory()[1]
        relative = offset - self.base_offset
        return bisect_right(range(len(entries) // 12), relative - 1, key=lambda i: _unpack(entries, i * 12)[1])

    def keep_before(self, offset: int) -> None:
        """Drops entries at or above `offset`; the index must be loaded."""
        older = self.older()
        entries = older + self.in_memory()[1]
        kept = self.count_before(offset)
        self.keep(kept, older)
        self.set_last(entries[: kept * ENTRY_SIZE])

    def set_last(self, entries: bytes | bytearray) -> None:
        """Takes the last timestamp and offset from `entries`, which are all entries."""
        if not entries:
            self.last_timestamp, self.last_offset = -1, self.base_offset
        else:
            timestamp, relative = _unpack(entries, len(entries) - ENTRY_SIZE)
            self.last_timestamp, self.last_offset = timestamp, self.base_offset + relative


def sane_prefix(data: bytes, span: int) -> bytes:
    """The entries up to the first impossible one; `span` is how many offsets the segment covers."""
    last_timestamp = last_relative = -1
    kept = 0
    for timestamp, relative in ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_SIZE]):
        if timestamp <= last_timestamp or relative <= last_relative or relative >= span:
            break
        if timestamp == 0 and relative == 0:
            # Padding of a preallocated file.
            break
        last_timestamp, last_relative = timestamp, relative
        kept += ENTRY_SIZE
    return data[:kept]
