"""Which records and batches compaction keeps, decided for one chunk of a segment at a time.

Used by `cleaner` alone. A chunk is a few hundred kilobytes of whole batches, decoded as columns: the keys of all its
records are hashed and looked up together, batches that lose no record are copied as they are, and only the others are
built again (`batch_rewriting`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from strandline.log import names
from strandline.log.compaction.batch_rewriting import batch_with, empty_batch, with_base_timestamp
from strandline.log.compaction.offset_map import KeyHash, OffsetMap
from strandline.log.compaction.transactions import CleanerTransactions
from strandline.log.segment import Segment
from strandline.records.batch import (
    DELETE_HORIZON,
    BatchHeader,
    CorruptBatch,
    DecompressionLimit,
    batches,
    control_record_type,
    crc_ok,
    decode_batch,
    read_header,
)
from strandline.records.columns import Columns, decode_columns
from strandline.records.compression import DEFAULT_LIMIT_BYTES
from strandline.runtime.disk import Buffer, File

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Mask = NDArray[numpy.bool_]
    Integers = NDArray[numpy.int64]

_READ_BYTES = 256 * 1024
# Decompressed size of the batches of a chunk together; a single batch may have the limit of any reader.
_CHUNK_BYTES = 4 << 20

Found = list[tuple[int, BatchHeader]]


class Uncleanable(Exception):
    """The log holds something that compaction must not rewrite; the log itself stays in use."""


class LastRecord(msgspec.Struct, frozen=True):
    """The epoch of a producer and the offset of its last record in that epoch (-1 when there is none)."""

    producer_epoch: int
    last_offset: int


class Stats(Protocol):
    records_read: int
    records_kept: int


class KeptBatch(msgspec.Struct, frozen=True):
    base_offset: int
    last_offset: int
    max_timestamp: int
    position: int
    size: int


class Filtered(msgspec.Struct):
    """What is kept of a chunk."""

    data: bytes
    batches: list[KeptBatch]
    unchanged: bool
    """Whether `data` is what was read."""


class Chunk:
    """Whole batches, in order, verified. `columns` are the records of the data batches among them; `rows_of` maps the
    index of a batch to its range of rows."""

    __slots__ = ("buffer", "columns", "found", "rows_of")

    def __init__(self, buffer: bytes, found: Found, columns: Columns) -> None:
        self.buffer = buffer
        self.found = found
        self.columns = columns
        self.rows_of: list[tuple[int, int]] = []
        row = 0
        for _, header in found:
            count = 0 if header.is_control else header.record_count
            self.rows_of.append((row, row + count))
            row += count

    @property
    def size(self) -> int:
        return sum(header.size_bytes for _, header in self.found)

    def control_kind(self, index: int) -> int | None:
        """The type of a control batch; None when its record was removed before."""
        position, _ = self.found[index]
        records = decode_batch(self.buffer, position)
        return control_record_type(records[0].key) if records else None

    def add_keys(self, map_: OffsetMap, key_hash: KeyHash, transactions: CleanerTransactions, start: int) -> bool:
        """Adds the keys from `start` on to the map; returns False when it was full before the end of the chunk."""
        import numpy as np

        columns = self.columns
        wanted = (columns.key_length >= 0) & (columns.offset >= start)
        ends: list[int] = []
        full = False
        for index, (_, header) in enumerate(self.found):
            first, last = self.rows_of[index]
            if header.is_control:
                transactions.on_control_batch(header, self.control_kind(index))
            elif transactions.on_batch(header):
                wanted[first:last] = False
            ends.append(last)
        upto = len(ends)
        if not map_.has_room_for(int(wanted.sum())):
            upto = self._fitting(map_, wanted, ends)
            full = upto < len(ends)
        rows = np.flatnonzero(wanted[: ends[upto - 1]]) if upto else np.empty(0, np.int64)
        if rows.size:
            first_half, second_half = key_hash.of(columns.data, columns.key_start[rows], columns.key_length[rows])
            map_.add(first_half, second_half, columns.offset[rows])
        if upto and self.found[upto - 1][1].last_offset >= start:
            map_.latest_offset = max(map_.latest_offset, self.found[upto - 1][1].last_offset)
        return not full

    def _fitting(self, map_: OffsetMap, wanted: Mask, ends: list[int]) -> int:
        """How many of the batches certainly fit the map; at least one if it is empty."""
        import numpy as np

        room = map_.capacity - len(map_)
        keys_before = np.concatenate(([0], np.cumsum(wanted)))[ends]
        count = int(np.searchsorted(keys_before, room, side="right"))
        return max(count, 0 if len(map_) else 1)


class BatchFilter:
    def __init__(
        self,
        map_: OffsetMap,
        key_hash: KeyHash,
        transactions: CleanerTransactions,
        last_records: Mapping[int, LastRecord],
        *,
        wall_ms: int,
        delete_retention_ms: int,
        last_batch_end: int,
        stats: Stats,
    ) -> None:
        self._map = map_
        self._hash = key_hash
        self._transactions = transactions
        self._last_records = last_records
        self._wall_ms = wall_ms
        self._new_horizon = wall_ms + delete_retention_ms
        self._last_batch_end = last_batch_end
        self._stats = stats

    def filter(self, chunk: Chunk) -> Filtered:
        import numpy as np

        columns = chunk.columns
        kept = self._kept(chunk)
        tombstone = kept & (columns.value_length < 0)
        kept_before = np.concatenate(([0], np.cumsum(kept))).tolist()
        tombstones_before = np.concatenate(([0], np.cumsum(tombstone))).tolist()
        pieces: list[bytes | bytearray | memoryview] = []
        written: list[KeptBatch] = []
        view = memoryview(chunk.buffer)
        unchanged = True
        size = 0
        for index, (position, header) in enumerate(chunk.found):
            first, last = chunk.rows_of[index]
            original = view[position : position + header.size_bytes]
            if header.is_control:
                piece = self._control(chunk, index, original)
            else:
                aborted = self._transactions.on_batch(header)
                count = 0 if aborted else kept_before[last] - kept_before[first]
                needs_horizon = not header.has_delete_horizon and tombstones_before[last] > tombstones_before[first]
                self._stats.records_read += last - first
                self._stats.records_kept += count
                if count == 0:
                    piece = self._emptied(header, original)
                elif count == last - first and not needs_horizon:
                    piece = original
                else:
                    piece = self._rebuilt(columns, header, np.flatnonzero(kept[first:last]) + first, needs_horizon)
            unchanged = unchanged and piece is original
            if piece is None:
                continue
            pieces.append(piece)
            max_timestamp = header.max_timestamp if piece is original else read_header(piece).max_timestamp
            written.append(KeptBatch(header.base_offset, header.last_offset, max_timestamp, size, len(piece)))
            size += len(piece)
        return Filtered(b"".join(pieces), written, unchanged)

    def _kept(self, chunk: Chunk) -> Mask:
        """Whether each record is kept, apart from transactions."""
        import numpy as np

        columns = chunk.columns
        offset = columns.offset
        keyed = columns.key_length >= 0
        judged = np.flatnonzero(keyed & (offset <= self._map.latest_offset))
        kept: Mask = offset > self._map.latest_offset
        first, second = self._hash.of(columns.data, columns.key_start[judged], columns.key_length[judged])
        kept[judged] = offset[judged] >= self._map.offsets_of(first, second)
        expired = [
            header.has_delete_horizon and header.base_timestamp <= self._wall_ms
            for _, header in chunk.found
            if not header.is_control
        ]
        if any(expired):
            is_expired = np.array(expired, np.bool_)[columns.batch]
            judged_here = offset <= self._map.latest_offset
            kept &= ~(is_expired & (columns.value_length < 0) & judged_here)
        return kept

    def _control(self, chunk: Chunk, index: int, original: memoryview) -> bytes | bytearray | memoryview | None:
        _, header = chunk.found[index]
        is_unneeded = self._transactions.on_control_batch(header, chunk.control_kind(index))
        if header.record_count == 0:
            return self._emptied(header, original)
        if not is_unneeded:
            return original
        if not header.has_delete_horizon:
            return self._with_horizon(original, header)
        return self._emptied(header, original) if header.base_timestamp <= self._wall_ms else original

    def _emptied(self, header: BatchHeader, original: memoryview) -> bytearray | memoryview | None:
        """No record of it is kept; the batch itself may have to be."""
        if not self._is_last_of_producer(header) and header.next_offset != self._last_batch_end:
            return None
        return original if header.record_count == 0 else empty_batch(header)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _rebuilt(self, columns: Columns, header: BatchHeader, rows: Integers, needs_horizon: bool) -> bytearray:
        attributes = header.attributes
        base_timestamp = header.base_timestamp
        body: Buffer
        if needs_horizon:
            attributes |= DELETE_HORIZON
            base_timestamp = self._new_horizon
        if needs_horizon and not header.is_log_append_time:
            places = zip(
                columns.timestamp_at[rows].tolist(),
                columns.end[rows].tolist(),
                columns.timestamp[rows].tolist(),
                strict=True,
            )
            body = with_base_timestamp(columns.data, base_timestamp, places)
        else:
            body = _joined(columns, rows)
        max_timestamp = header.max_timestamp if header.is_log_append_time else int(columns.timestamp[rows].max())
        return batch_with(
            header,
            body,
            len(rows),
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
        )

    def _with_horizon(self, original: memoryview, header: BatchHeader) -> bytearray:
        """A marker that is no longer needed is kept until its own delete horizon."""
        import numpy as np

        columns = decode_columns(original, [(0, header)])
        return self._rebuilt(columns, header, np.arange(len(columns)), True)


def read_chunks(segment: Segment, start: int = 0) -> Iterator[Chunk]:
    """Blocking. The batches of a segment with offsets from `start` on. Raises CorruptBatch where it is damaged."""
    file = segment.disk.open(segment.path(names.LOG))
    try:
        position = 0
        while position < segment.size:
            buffer, found = _read_batches(file, position, segment.size)
            position += found[-1][0] + found[-1][1].size_bytes
            wanted = [(at, header) for at, header in found if header.last_offset >= start]
            if wanted:
                yield from _decoded(buffer, wanted)
    finally:
        file.close()


def _read_batches(file: File, position: int, end: int) -> tuple[bytes, Found]:
    """Whole batches from this position on, at least one."""
    buffer = file.read_at(position, min(_READ_BYTES, end - position))
    found = list(batches(buffer))
    if not found:
        size = read_header(buffer).size_bytes
        if size > end - position:
            raise CorruptBatch(f"the batch at position {position} of {file.path} is incomplete")
        buffer = file.read_at(position, size)
        found = list(batches(buffer))
        if not found:
            raise CorruptBatch(f"the batch at position {position} of {file.path} cannot be read")
    for at, header in found:
        if not crc_ok(buffer, at, header.size_bytes):
            raise CorruptBatch(f"wrong checksum of the batch at offset {header.base_offset} of {file.path}")
    return buffer, found


def _decoded(buffer: bytes, found: Found) -> Iterator[Chunk]:
    data = [(at, header) for at, header in found if not header.is_control]
    limit_bytes = _CHUNK_BYTES if len(found) > 1 else DEFAULT_LIMIT_BYTES
    try:
        columns = decode_columns(buffer, data, limit_bytes)
    except DecompressionLimit:
        if len(found) == 1:
            raise
        middle = len(found) // 2
        yield from _decoded(buffer, found[:middle])
        yield from _decoded(buffer, found[middle:])
    else:
        yield Chunk(buffer, found, columns)


def _joined(columns: Columns, rows: Integers) -> bytes:
    """The bytes of these records; adjacent ones in one slice."""
    import numpy as np

    starts, ends = columns.start[rows], columns.end[rows]
    gap = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    first = np.concatenate(([0], gap))
    last = np.concatenate((gap, [len(rows)])) - 1
    data = memoryview(columns.data)
    pieces = zip(starts[first].tolist(), ends[last].tolist(), strict=True)
    return b"".join([data[start:end] for start, end in pieces])
