"""Appending the controller's records while this node leads: the append queue, and what else belongs to one leadership.

A `LeaderTerm` lasts from the moment everything committed is replayed until the leadership is lost; records that it has
not written by then are dropped with it. The controller reserves an offset, decides, and appends. `LeaderTerm.run`
encodes in slices what was appended and has it written: at once when no sync is running, otherwise together with what
is appended until the sync ends (but waits no longer than `append_linger_ms`). Small appends share a batch, so that a
thousand of them cost one write and one sync.

Invariant: offsets are assigned without gaps, in the order of the log. While an offset is reserved, nothing else is
appended; control records of the quorum are written after everything that was appended before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

import msgspec

from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.types import Message
from strandline.raft.disk.batches import RECORDS_PER_SLICE, encode_in_slices
from strandline.runtime.tasks import yield_to_loop
from strandline.runtime.watermark import Watermark

# The bytes of one write to the log: a few milliseconds of checking and copying.
WRITE_BYTES: Final = 1 << 20
# A few milliseconds of committing the image and notifying the node.
_RECORDS_PER_COMMIT: Final = 2_000


class _Appended(msgspec.Struct, frozen=True):
    """An atomic append that is not encoded yet."""

    base_offset: int
    timestamp: int
    metadata_version: int
    records: Sequence[Message]


class Accumulator:
    def __init__(self, epoch: int, end_offset: int) -> None:
        self.epoch = epoch
        self.end_offset = end_offset
        """The offset of the next append."""
        self.is_reserved = False
        self._waiting: deque[_Appended] = deque()
        self._encoding: Generator[None, None, bytearray] | None = None
        self._encoded: deque[bytearray] = deque()

    @property
    def is_encoded(self) -> bool:
        return bool(self._encoded)

    def reserve(self) -> int:
        if self.is_reserved:
            raise AssertionError(f"offset {self.end_offset} of the metadata log is already reserved")
        self.is_reserved = True
        return self.end_offset

    def release(self) -> None:
        self.is_reserved = False

    def append(self, records: Sequence[Message], timestamp: int, metadata_version: int) -> int:
        """Returns the offset of the last record. Ends the reservation."""
        if not records:
            raise ValueError("an append needs records")
        self._waiting.append(_Appended(self.end_offset, timestamp, metadata_version, records))
        self.end_offset += len(records)
        self.is_reserved = False
        return self.end_offset - 1

    def encode_slice(self) -> bool:
        """Encodes a few hundred records; False when nothing is left to encode."""
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
        """Encoded batches, in order: at least one if there is any."""
        data = self._encoded.popleft() if self._encoded else bytearray()
        while self._encoded and len(data) + len(self._encoded[0]) <= max_bytes:
            data += self._encoded.popleft()
        return data

    def _begin_batch(self) -> Generator[None, None, bytearray]:
        """The next append, and the following ones that fit into the same slice: they share a batch."""
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
        # An append may raise metadata.version; the records after it are written in their newer versions.
        same_level = first.metadata_version == following.metadata_version
        return same_level and count + len(following.records) <= RECORDS_PER_SLICE


class LeaderTerm:
    def __init__(self, epoch: int, end_offset: int, high_watermark: int) -> None:
        self.epoch = epoch
        self.accumulator = Accumulator(epoch, end_offset)
        self.committed = Watermark(high_watermark)
        self.task: asyncio.Task[None] | None = None
        """The task of `run`."""
        self._appended = asyncio.Event()
        self._ends: deque[int] = deque()
        """The end offset of each append that is not committed yet."""

    def append(self, records: Sequence[Message], timestamp: int, metadata_version: int) -> int:
        last_offset = self.accumulator.append(records, timestamp, metadata_version)
        self._ends.append(last_offset + 1)
        self._appended.set()
        return last_offset

    def commit_steps(self, high_watermark: int) -> Iterator[int]:
        """The offsets to commit one after the other, up to the high watermark: many small appends in one step, never a
        part of one, so that no step of the event loop takes long."""
        begin = committed = self.committed.value
        while self._ends and self._ends[0] <= high_watermark:
            end = self._ends.popleft()
            if end - begin > _RECORDS_PER_COMMIT and committed > begin:
                yield committed
                begin = committed
            committed = end
        yield high_watermark

    def lose(self) -> None:
        if self.task is not None:
            self.task.cancel()
        self.committed.lose(KafkaError(ErrorCode.NOT_CONTROLLER, "this node no longer leads the metadata quorum"))

    async def run(self, flush_idle: asyncio.Event, append_linger_ms: int, write: Callable[[], None]) -> None:
        """Encodes appended records until cancelled, and calls `write` when batches are encoded."""
        while True:
            await self._appended.wait()
            if not flush_idle.is_set():
                await _wait_at_most(append_linger_ms, flush_idle)
            self._appended.clear()
            while self.accumulator.encode_slice():
                await yield_to_loop()
            write()


async def _wait_at_most(timeout_ms: int, event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await event.wait()
    except TimeoutError:
        return
