"""The cleaner's offset map: for each key the largest offset in the dirty part of a log.

Owned by one pass of the cleaner, filled from the dirty part of the log and then queried for all of it. Keys are stored
as 128-bit hashes in sorted arrays, 24 bytes each; the memory that sorting needs is part of the budget too.

Two keys with the same hash would lose a record, so the hash must not be one for which a producer can find collisions:
it is multilinear (a sum of 32-bit words times secret random numbers, the upper half of 64 bits kept, four times over),
so two given keys collide with a probability of one in 2^128 whatever they are.
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import TYPE_CHECKING

from strandline.records.varint import Buffer

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Integers = NDArray[numpy.int64]
    Words = NDArray[numpy.uint64]

# Stored, copied while merging, and the two index arrays of the sort.
BYTES_PER_KEY = 96
# With fewer keys per pass the cleaner would make hardly any progress.
_LEAST_KEYS = 1000
_MERGE_FROM = 1 << 16

_LANES = 4
_WORD = 8
# Longer keys are rare; a digest of each replaces many array steps.
_LONGEST_IN_WORDS = 64
_ABSENT = -1


class KeyHash:
    """128 bits of every key, as two arrays of 64."""

    __slots__ = ("_numbers", "_secret")

    def __init__(self, random: Random) -> None:
        width = 2 * _LONGEST_IN_WORDS // _WORD + 2
        self._numbers = [[random.getrandbits(64) for _ in range(width)] for _ in range(_LANES)]
        self._secret = random.randbytes(32)

    def of(self, data: Buffer, start: Integers, length: Integers) -> tuple[Words, Words]:
        """Hashes of the keys at these positions; lengths are not negative."""
        import numpy as np

        lanes = [np.full(len(start), numbers[0], np.uint64) for numbers in self._numbers]
        for lane, numbers in zip(lanes, self._numbers, strict=True):
            lane += length.astype(np.uint64) * np.uint64(numbers[1])
        words = _words_everywhere(data)
        longest = int(length.max()) if len(length) else 0
        for at in range(0, min(longest, _LONGEST_IN_WORDS), _WORD):
            rows = np.flatnonzero(length > at)
            word = words[start[rows] + at] & _mask(length[rows] - at)
            low, high = word & np.uint64(0xFFFF_FFFF), word >> np.uint64(32)
            place = 2 + at // 4
            for lane, numbers in zip(lanes, self._numbers, strict=True):
                lane[rows] += low * np.uint64(numbers[place]) + high * np.uint64(numbers[place + 1])
        upper = np.uint64(0xFFFF_FFFF_0000_0000)
        half = np.uint64(32)
        first = lanes[0] & upper | lanes[1] >> half
        second = lanes[2] & upper | lanes[3] >> half
        for row in np.flatnonzero(length > _LONGEST_IN_WORDS).tolist():
            key = data[int(start[row]) : int(start[row]) + int(length[row])]
            digest = hashlib.blake2b(key, digest_size=16, key=self._secret).digest()
            first[row] = int.from_bytes(digest[:8], "big")
            second[row] = int.from_bytes(digest[8:], "big")
        return first, second


class OffsetMap:
    """`latest_offset` is the last offset that the map covers: records above it are kept."""

    __slots__ = ("_first", "_offset", "_pending", "_pending_rows", "_second", "capacity", "latest_offset")

    def __init__(self, budget_bytes: int) -> None:
        import numpy as np

        self.capacity = max(_LEAST_KEYS, budget_bytes // BYTES_PER_KEY)
        self.latest_offset = -1
        self._first: Words = np.empty(0, np.uint64)
        self._second: Words = np.empty(0, np.uint64)
        self._offset: Integers = np.empty(0, np.int64)
        self._pending: list[tuple[Words, Words, Integers]] = []
        self._pending_rows = 0

    def __len__(self) -> int:
        self._merge()
        return len(self._offset)

    def has_room_for(self, keys: int) -> bool:
        """Whether this many more keys would fit even if all of them are new."""
        if len(self._offset) + self._pending_rows + keys <= self.capacity:
            return True
        self._merge()
        return len(self._offset) + keys <= self.capacity

    def add(self, first: Words, second: Words, offset: Integers) -> None:
        """Keys with their offsets, which ascend from call to call and within one."""
        self._pending.append((first, second, offset))
        self._pending_rows += len(offset)
        if self._pending_rows > max(_MERGE_FROM, len(self._offset)):
            self._merge()

    def offsets_of(self, first: Words, second: Words) -> Integers:
        """The largest offset of each key, -1 for keys that are not in the map."""
        import numpy as np

        self._merge()
        found: Integers = np.full(len(first), _ABSENT, np.int64)
        size = len(self._offset)
        if not size:
            return found
        at = np.searchsorted(self._first, first, side="left")
        rows = np.arange(len(first))
        # One iteration, unless the first halves of two keys in the map are equal.
        while rows.size:
            rows = rows[at[rows] < size]
            rows = rows[self._first[at[rows]] == first[rows]]
            hit = self._second[at[rows]] == second[rows]
            found[rows[hit]] = self._offset[at[rows[hit]]]
            rows = rows[~hit]
            at[rows] += 1
        return found

    def _merge(self) -> None:
        """Merge the pending keys; of equal keys the last, which has the largest offset, is kept."""
        import numpy as np

        if not self._pending:
            return
        first = np.concatenate([self._first, *(entry[0] for entry in self._pending)])
        second = np.concatenate([self._second, *(entry[1] for entry in self._pending)])
        offset = np.concatenate([self._offset, *(entry[2] for entry in self._pending)])
        self._pending = []
        self._pending_rows = 0
        order = np.lexsort((second, first))
        first, second, offset = first[order], second[order], offset[order]
        last_of_key = np.ones(len(first), np.bool_)
        last_of_key[:-1] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        self._first, self._second, self._offset = first[last_of_key], second[last_of_key], offset[last_of_key]


def _words_everywhere(data: Buffer) -> Words:
    """The eight bytes that start at every position, as a view of one padded copy."""
    import numpy as np

    size = len(data)
    padded = np.zeros(size + _WORD, np.uint8)
    padded[:size] = np.frombuffer(data, np.uint8)
    return np.ndarray((size + 1,), "<u8", buffer=padded.data, strides=(1,))


def _mask(left: Integers) -> Words:
    """A mask of the bytes that belong to the key, of which `left` remain."""
    import numpy as np

    bits = np.minimum(left, _WORD).astype(np.uint64) * np.uint64(8)
    return np.uint64(0xFFFF_FFFF_FFFF_FFFF) >> (np.uint64(64) - bits)
