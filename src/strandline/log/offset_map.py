"""For each key, the largest offset that compaction has seen: what tells a record that is still current from an old one.

Owned by one run of the cleaner, filled from the dirty part of a log and then asked for the whole of it. Keys are kept
as 128-bit hashes in sorted arrays, 24 bytes each; what sorting needs beside them is part of the budget too.

Two keys with the same hash would cost a record its life, so the hash must not be one that a producer can aim at: it is
multilinear (a sum of 32-bit words times secret random numbers, the upper half of 64 bits kept, four times over), which
two given keys share with a probability of one in 2^128 whatever they are.
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

# Stored, copied while merging, and the two orders that sorting makes.
BYTES_PER_KEY = 96
# A cleaner that may keep fewer would hardly get on.
_LEAST_KEYS = 1000
_MERGE_FROM = 1 << 16

_LANES = 4
_WORD = 8
# Longer keys are rare; a digest of each replaces so many array steps.
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
        """Hashes of the keys at these places; lengths are not negative."""
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
    """`latest_offset` is the last offset the map accounts for: records above it are not judged by it."""

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
        """Whether so many more would fit even if all of them are new."""
        if len(self._offset) + self._pending_rows + keys <= self.capacity:
            return True
        self._merge()
        return len(self._offset) + keys <= self.capacity

    def add(self, first: Words, second: Words, offset: Integers) -> None:
        """Keys with their offsets, which rise from call to call and within one."""
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
        # One turn, unless the first halves of two keys in the map are equal.
        while rows.size:
            rows = rows[at[rows] < size]
            rows = rows[self._first[at[rows]] == first[rows]]
            hit = self._second[at[rows]] == second[rows]
            found[rows[hit]] = self._offset[at[rows[hit]]]
            rows = rows[~hit]
            at[rows] += 1
        return found

    def _merge(self) -> None:
        """Sort what has come since into the rest; of equal keys the last, which has the largest offset, stays."""
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
    """The eight bytes that begin at every position, as a view of one padded copy."""
    import numpy as np

    size = len(data)
    padded = np.zeros(size + _WORD, np.uint8)
    padded[:size] = np.frombuffer(data, np.uint8)
    return np.ndarray((size + 1,), "<u8", buffer=padded.data, strides=(1,))


def _mask(left: Integers) -> Words:
    """Bits of the bytes that still belong to the key, of which `left` are left."""
    import numpy as np

    bits = np.minimum(left, _WORD).astype(np.uint64) * np.uint64(8)
    return np.uint64(0xFFFF_FFFF_FFFF_FFFF) >> (np.uint64(64) - bits)
