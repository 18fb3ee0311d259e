"""The leader's append queue: records that have their offsets and wait to be written.

One for each leadership; whatever it still holds when that ends was never written, and is forgotten with it. The
controller reserves an offset, decides, and appends; what was appended meanwhile is encoded in slices and written at
once, small appends sharing a batch. So a thousand of them cost one write and one sync.

Invariant: offsets are handed out without gaps, in the order in which they will stand in the log. While one is reserved,
nobody else writes; control records of the quorum are written behind everything that was appended before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from strandline.protocol.types import Message
from strandline.raft.disk.batches import RECORDS_PER_SLICE, encode_in_slices

# The batches of one write to the log: a few milliseconds of checking and copying.
WRITE_BYTES: Final = 1 << 20


class _Appended(NamedTuple):
    """An atomic append that waits to be encoded."""

    base_offset: int
    timestamp: int
    metadata_version: int
    records: Sequence[Message]


class Accumulator:
    def __init__(self, epoch: int, end_offset: int) -> None:
        self.epoch = epoch
        self.end_offset = end_offset
        """Where the next append will stand."""
        self.is_reserved = False
        self._waiting: deque[_Appended] = deque()
        self._encoding: Generator[None, None, bytearray] | None = None
        self._encoded: deque[bytearray] = deque()

    @property
    def is_encoded(self) -> bool:
        """Whether something can be taken."""
        return bool(self._encoded)

    def reserve(self) -> int:
        if self.is_reserved:
            raise AssertionError(f"offset {self.end_offset} of the metadata log is reserved already")
        self.is_reserved = True
        return self.end_offset

    def release(self) -> None:
        self.is_reserved = False

    def append(self, records: Sequence[Message], timestamp: int, metadata_version: int) -> int:
        """The offset of the last record. It ends the reservation."""
        if not records:
            raise ValueError("an append needs records")
        self._waiting.append(_Appended(self.end_offset, timestamp, metadata_version, records))
        self.end_offset += len(records)
        self.is_reserved = False
        return self.end_offset - 1

    def encode_slice(self) -> bool:
        """A few hundred records; False when nothing is left to encode."""
        if self._encoding is None:
            if not self._waiting:
                return False
            self._encoding = self._begin_batch()
        try:
            next(self._encoding)
        except StopIteration as end:
            self._encoded.append(end.value)
            self._encoding = None
        return True

    def encode_all(self) -> None:
        while self.encode_slice():
            pass

    def take(self, max_bytes: int) -> bytearray:
        """Whole batches, in order: at least one if there is any."""
        data = self._encoded.popleft() if self._encoded else bytearray()
        while self._encoded and len(data) + len(self._encoded[0]) <= max_bytes:
            data += self._encoded.popleft()
        return data

    def _begin_batch(self) -> Generator[None, None, bytearray]:
        """The next append, and those behind it that fit into the same slice of work: they may well share a batch."""
        first = self._waiting.popleft()
        records, timestamp = list(first.records), first.timestamp
        while self._waiting and self._fits(first, self._waiting[0], len(records)):
            appended = self._waiting.popleft()
            records += appended.records
            timestamp = appended.timestamp
        return encode_in_slices(
            records,
            base_offset=first.base_offset,
            epoch=self.epoch,
            timestamp=timestamp,
            metadata_version=first.metadata_version,
        )

    def _fits(self, first: _Appended, following: _Appended, count: int) -> bool:
        # The level may be raised by an append itself; records behind it are written in their newer versions.
        same_level = first.metadata_version == following.metadata_version
        return same_level and count + len(following.records) <= RECORDS_PER_SLICE
