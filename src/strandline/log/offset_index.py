"""`.index`: sparse map from offset to position, 8-byte entries (offset - base offset, position), both ascending.

Owned by one segment. An entry names the last offset of a batch and the position where that batch starts. A lookup walks
the batches from the largest entry not above its offset. The file has no checksums, so an entry is trusted only if the
batch at its position agrees with it (see `batch_lookup`).
"""

from __future__ import annotations

import struct
from bisect import bisect_right

from strandline.log.index_file import IndexFile

ENTRY = struct.Struct(">ii")
ENTRY_SIZE = ENTRY.size

_unpack = ENTRY.unpack_from
_pack = ENTRY.pack


class OffsetIndex(IndexFile):
    __slots__ = ("base_offset",)

    def __init__(self, base_offset: int, count: int = 0) -> None:
        super().__init__(ENTRY_SIZE, count)
        self.base_offset = base_offset

    def add(self, last_offset: int, position: int) -> None:
        self.append(_pack(last_offset - self.base_offset, position))

    def floor(self, offset: int) -> tuple[int, int]:
        """(last offset, position) of the largest entry not above `offset`, or (base offset, 0); may raise NotLoaded."""
        return self._floor(0, offset - self.base_offset)

    def floor_position(self, position: int) -> tuple[int, int]:
        """(last offset, position) of the entry with the largest position not above `position`."""
        return self._floor(1, position)

    def after_position(self, position: int) -> int | None:
        """The last offset named by the first entry at or behind `position`; None when there is none."""
        entries = self.older() + self.in_memory()[1]
        at = bisect_right(range(len(entries) // 8), position - 1, key=lambda i: _unpack(entries, i * 8)[1])
        return None if at == len(entries) // 8 else int(self.base_offset + _unpack(entries, at * 8)[0])

    def _floor(self, field: int, target: int) -> tuple[int, int]:
        _, entries = self.in_memory()
        if not entries or _unpack(entries, 0)[field] > target:
            entries = self.older()
        at = bisect_right(range(len(entries) // 8), target, key=lambda i: _unpack(entries, i * 8)[field])
        if at == 0:
            return self.base_offset, 0
        relative, position = _unpack(entries, (at - 1) * 8)
        return self.base_offset + relative, position

    def count_before(self, offset: int) -> int:
        """How many entries are below `offset`; the index must be loaded."""
        entries = self.older() + self.in_memory()[1]
        relative = offset - self.base_offset
        return bisect_right(range(len(entries) // 8), relative - 1, key=lambda i: _unpack(entries, i * 8)[0])

    def keep_before(self, offset: int) -> None:
        """Drops entries at or above `offset`; the index must be loaded."""
        self.keep(self.count_before(offset), self.older())


def sane_prefix(data: bytes, log_size: int) -> bytes:
    """The entries up to the first impossible one: padding, garbage, an incomplete entry, a position behind the log."""
    # The first batch of a segment is never indexed, so neither number can be zero: zeros are padding.
    last_relative = last_position = 0
    kept = 0
    for relative, position in ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_SIZE]):
        if relative <= last_relative or position <= last_position or position >= log_size:
            break
        last_relative, last_position = relative, position
        kept += ENTRY_SIZE
    return data[:kept]
