"""Many records at once: the fields of all records of one or many batches as numpy arrays over one buffer.

For code that handles thousands of records and reads few of their bytes: the cleaner, validation of large batches,
lookup by timestamp, and bulk readers. The position of a record is known only after walking the records before it; that
walk reads only record lengths (one Python step per record, or, for many batches, one array step per record of every
batch). All other fields are read for all records together.

Each gather is preceded by a check against the record's end, so malformed bytes give `CorruptBatch` and never an
IndexError, and nothing is allocated for a count that the bytes could not hold.

numpy is imported on first use: a node without large batches does not load it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from strandline.records.batch import HEADER_SIZE, BatchHeader, batches
from strandline.records.compression import DEFAULT_LIMIT_BYTES, Codec, decompress
from strandline.records.errors import CorruptBatch
from strandline.records.record_spans import MIN_RECORD_SIZE, skip_headers
from strandline.records.varint import Buffer, read_varint

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Integers = NDArray[numpy.int64]
    Octets = NDArray[numpy.uint8]

# Below this many records, parsing them one by one (`records.record_spans`) costs less than arrays.
FEW_RECORDS = 64
# From this many batches per step, an array step over all of them beats a plain step for each.
_MANY_BATCHES = 100
_MANY_HEADERS = 50


class Columns(msgspec.Struct):
    """One row per record, in batch order. Positions are in `data`; lengths are -1 for null. `batch` is the index of the
    batch; `start` is the position of the record's own length, `end` that of the next record.
    """

    data: Buffer
    batch: Integers
    start: Integers
    end: Integers
    offset: Integers
    timestamp: Integers
    offset_delta: Integers
    timestamp_delta: Integers
    timestamp_at: Integers
    key_start: Integers
    key_length: Integers
    value_start: Integers
    value_length: Integers
    headers_start: Integers
    header_count: Integers

    def __len__(self) -> int:
        return len(self.offset)

    def key(self, row: int) -> bytes | None:
        return self._bytes(int(self.key_start[row]), int(self.key_length[row]))

    def value(self, row: int) -> bytes | None:
        return self._bytes(int(self.value_start[row]), int(self.value_length[row]))

    def _bytes(self, start: int, length: int) -> bytes | None:
        return None if length < 0 else bytes(self.data[start : start + length])


def decode_columns(
    buffer: Buffer,
    found: Sequence[tuple[int, BatchHeader]] | None = None,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Columns:
    """All records of the whole batches in `buffer`, or of the batches `found`; control records are included.
    `limit_bytes` bounds the decompressed size of all batches together."""
    if found is None:
        found = list(batches(buffer))
    data, starts, ends = _bodies(buffer, found, limit_bytes)
    counts = [header.record_count for _, header in found]
    for start, end, count in zip(starts, ends, counts, strict=True):
        if count < 0 or count * MIN_RECORD_SIZE > end - start:
            raise CorruptBatch(f"{count} records do not fit in {end - start} bytes")
    return _fields(data, [header for _, header in found], starts, ends, counts)


def _bodies(
    buffer: Buffer, found: Sequence[tuple[int, BatchHeader]], limit_bytes: int
) -> tuple[Buffer, list[int], list[int]]:
    """One buffer with all records uncompressed: `buffer` itself when no batch is compressed."""
    view = memoryview(buffer)
    for position, header in found:
        if position < 0 or position + header.size_bytes > len(view):
            raise CorruptBatch("the batch is incomplete")
    if all(header.codec == Codec.NONE for _, header in found):
        starts = [position + HEADER_SIZE for position, _ in found]
        return buffer, starts, [position + header.size_bytes for position, header in found]
    pieces: list[Buffer] = []
    starts = []
    ends = []
    total = 0
    for position, header in found:
        body = view[position + HEADER_SIZE : position + header.size_bytes]
        pieces.append(decompress(header.codec, body, limit_bytes - total))
        starts.append(total)
        total += len(pieces[-1])
        ends.append(total)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces), starts, ends


def _fields(
    data: Buffer, headers: Sequence[BatchHeader], starts: list[int], ends: list[int], counts: list[int]
) -> Columns:
    import numpy as np

    octets: Octets = np.frombuffer(data, np.uint8)
    start, body, end = _chain(data, octets, starts, ends, counts)
    batch: Integers = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    timestamp_at = body + 1
    timestamp_delta, at = _varints(octets, timestamp_at, end, 10)
    offset_delta, at = _varints(octets, at, end, 5)
    key_length, key_start = _varints(octets, at, end, 5)
    value_length, value_start = _varints(octets, key_start + np.maximum(key_length, 0), end, 5)
    header_count, headers_start = _varints(octets, value_start + np.maximum(value_length, 0), end, 5)
    _check_headers(data, octets, headers_start, end, header_count)
    base_offset: Integers = np.array([h.base_offset for h in headers], np.int64)
    base_timestamp: Integers = np.array([h.base_timestamp for h in headers], np.int64)
    timestamp: Integers = base_timestamp[batch] + timestamp_delta
    if any(header.is_log_append_time for header in headers):
        append_time: Integers = np.array([h.max_timestamp for h in headers], np.int64)
        is_append_time = np.array([h.is_log_append_time for h in headers], np.bool_)
        timestamp = np.where(is_append_time[batch], append_time[batch], timestamp)
    return Columns(
        data=data,
        batch=batch,
        start=start,
        end=end,
        offset=base_offset[batch] + offset_delta,
        timestamp=timestamp,
        offset_delta=offset_delta,
        timestamp_delta=timestamp_delta,
        timestamp_at=timestamp_at,
        key_start=key_start,
        key_length=np.maximum(key_length, -1),
        value_start=value_start,
        value_length=np.maximum(value_length, -1),
        headers_start=headers_start,
        header_count=header_count,
    )


def _chain(
    data: Buffer, octets: Octets, starts: list[int], ends: list[int], counts: list[int]
) -> tuple[Integers, Integers, Integers]:
    """Where each record starts, where its fields start, and where it ends."""
    import numpy as np

    if len(counts) >= _MANY_BATCHES and sum(counts) >= _MANY_BATCHES * max(counts):
        start = _chain_together(octets, starts, ends, counts)
    else:
        begins: list[int] = []
        for first, last, count in zip(starts, ends, counts, strict=True):
            _chain_one(data, first, last, count, begins)
        start = np.array(begins, np.int64)
    # A record ends where the next of its batch starts, the last one where the batch ends.
    end: Integers = np.empty(len(start), np.int64)
    end[:-1] = start[1:]
    filled: Integers = np.array(counts, np.int64)
    has_records = filled > 0
    end[np.cumsum(filled)[has_records] - 1] = np.array(ends, np.int64)[has_records]
    _, body = _varints(octets, start, end, 5)
    return start, body, end


def _chain_one(data: Buffer, at: int, end: int, count: int, begins: list[int]) -> None:
    """The only Python loop over records; it reads lengths, mostly of one or two bytes. Positions only increase, so the
    final comparison catches one outside of the batch."""
    begin = begins.append
    try:
        for _ in range(count):
            begin(at)
            byte = data[at]
            if byte & 1:
                raise CorruptBatch("a record has a negative length")
            if byte < 0x80:
                at += 1 + (byte >> 1)
                continue
            second = data[at + 1]
            if second < 0x80:
                at += 2 + ((byte & 0x7F | second << 7) >> 1)
            else:
                size, at = read_varint(data, at, end)
                at += size
    except IndexError:
        raise CorruptBatch("a record is longer than its batch") from None
    if at != end:
        raise CorruptBatch("the records of a batch do not fill it")


def _chain_together(octets: Octets, starts: list[int], ends: list[int], counts: list[int]) -> Integers:
    """Each step takes the next record of every batch that has one left; batches are sorted by count, largest first, so
    that those are a prefix."""
    import numpy as np

    count: Integers = np.array(counts, np.int64)
    first_row: Integers = np.cumsum(count) - count
    order = np.argsort(-count, kind="stable")
    at: Integers = np.array(starts, np.int64)[order]
    end: Integers = np.array(ends, np.int64)[order]
    first_row = first_row[order]
    count = count[order]
    start: Integers = np.empty(int(count.sum()), np.int64)
    live = np.searchsorted(-count, -np.arange(int(count[0]) if len(count) else 0), side="left")
    for step, width in enumerate(live.tolist()):
        here = at[:width]
        size, after = _varints(octets, here, end[:width], 5)
        if (size < 0).any():
            raise CorruptBatch("a record has a negative length")
        start[first_row[:width] + step] = here
        at[:width] = after + size
    if (at != end).any():
        raise CorruptBatch("the records of a batch do not fill it")
    return start


def _check_headers(
    data: Buffer, octets: Octets, headers_start: Integers, end: Integers, header_count: Integers
) -> None:
    """Each array step skips one header of every record; when few records have more, these are parsed one by one, so
    that a record with a hundred thousand headers costs no more than its bytes."""
    import numpy as np

    if (headers_start[header_count == 0] != end[header_count == 0]).any():
        raise CorruptBatch("the fields of a record do not fill it")
    rows = np.flatnonzero(header_count)
    if not rows.size:
        return
    left = header_count[rows]
    at = headers_start[rows]
    stop = end[rows]
    if ((left < 0) | (2 * left > stop - at)).any():
        raise CorruptBatch("the headers do not fit in their record")
    while left.size >= _MANY_HEADERS:
        size, at = _varints(octets, at, stop, 5)
        if (size < 0).any():
            raise CorruptBatch("a header has no name")
        size, at = _varints(octets, at + size, stop, 5)
        at = at + np.maximum(size, 0)
        left = left - 1
        done = left == 0
        if (at[done] != stop[done]).any():
            raise CorruptBatch("the headers of a record do not fill it")
        more = ~done
        left, at, stop = left[more], at[more], stop[more]
    for position, last, count in zip(at.tolist(), stop.tolist(), left.tolist(), strict=True):
        try:
            if skip_headers(data, position, last, count) != last:
                raise CorruptBatch("the headers of a record do not fill it")
        except IndexError:
            raise CorruptBatch("the headers of a record are incomplete") from None


def _varints(octets: Octets, at: Integers, end: Integers, max_size: int) -> tuple[Integers, Integers]:
    """Zigzag numbers at all positions: (values, positions after them)."""
    import numpy as np

    if (at >= end).any():
        raise CorruptBatch("a record is incomplete")
    byte = octets[at]
    raw = (byte & 0x7F).astype(np.uint64)
    at = at + 1
    more = np.flatnonzero(byte > 0x7F)
    shift = 7
    while more.size:
        here = at[more]
        if shift >= 7 * max_size or (here >= end[more]).any():
            raise CorruptBatch("a variable-length integer is incomplete or too long")
        byte = octets[here]
        raw[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        at[more] = here + 1
        more = more[byte > 0x7F]
        shift += 7
    if max_size == 5:
        raw &= np.uint64(0xFFFF_FFFF)
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), at
