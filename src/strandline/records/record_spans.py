"""The positions of each record's fields, parsed record by record: for batches of few records.

`records.columns` parses many records at once with the same results, which a test compares. The records of a batch must
fill it exactly; anything else is `CorruptBatch`.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.records.errors import CorruptBatch
from strandline.records.varint import Buffer, read_varint, read_varlong

# Length, attributes, timestamp delta, offset delta, key length, value length, header count: one byte each at least.
MIN_RECORD_SIZE = 7


class Span(NamedTuple):
    """One record in its buffer. Lengths are -1 for null; `start` is the position of the record's own length."""

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key_start: int
    key_length: int
    value_start: int
    value_length: int
    headers_start: int
    header_count: int


_span = Span._make


def read_spans(data: Buffer, start: int, end: int, count: int) -> list[Span]:
    """The `count` records that fill the bytes from `start` to `end`."""
    if count * MIN_RECORD_SIZE > end - start:
        raise CorruptBatch(f"{count} records do not fit in {end - start} bytes")
    spans: list[Span] = []
    at = start
    try:
        for _ in range(count):
            span = read_span(data, at, end)
            spans.append(span)
            at = span.end
    except IndexError:
        raise CorruptBatch("a record is incomplete") from None
    if at != end:
        raise CorruptBatch("bytes follow the last record")
    return spans


def read_span(data: Buffer, start: int, end: int) -> Span:
    """One record; may raise IndexError if the buffer ends inside it. Positions only increase, so the last comparison
    catches a field that exceeds the record. One-byte numbers are read inline: calls would double the cost."""
    byte = data[start]
    if byte < 0x80:
        at = start + 1
        record_end = at + (byte >> 1) if byte & 1 == 0 else -1
    else:
        size, at = _number(data, start, end)
        record_end = at + size
    if record_end > end or record_end < at:
        raise CorruptBatch("a record is longer than its batch")
    timestamp_delta, at = _long_number(data, at + 1, record_end)
    byte = data[at]
    if byte < 0x80:
        offset_delta = (byte >> 1) ^ -(byte & 1)
        at += 1
    else:
        offset_delta, at = _number(data, at, record_end)
    byte = data[at]
    if byte < 0x80:
        key_length = (byte >> 1) ^ -(byte & 1)
        key_start = at + 1
    else:
        key_length, key_start = _number(data, at, record_end)
    at = key_start if key_length <= 0 else key_start + key_length
    value_length, value_start = _number(data, at, record_end)
    at = value_start if value_length <= 0 else value_start + value_length
    if data[at] == 0:
        header_count = 0
        headers_start = at = at + 1
    else:
        header_count, headers_start = _number(data, at, record_end)
        at = skip_headers(data, headers_start, record_end, header_count)
    if at != record_end:
        raise CorruptBatch("the fields of a record do not fill it")
    if key_length < -1:
        key_length = -1
    if value_length < -1:
        value_length = -1
    return _span(
        (
            start,
            record_end,
            timestamp_delta,
            offset_delta,
            key_start,
            key_length,
            value_start,
            value_length,
            headers_start,
            header_count,
        )
    )


def skip_headers(data: Buffer, at: int, end: int, count: int) -> int:
    # A header is two lengths at least.
    if count < 0 or 2 * count > end - at:
        raise CorruptBatch(f"{count} headers do not fit in a record")
    for _ in range(count):
        size, at = _number(data, at, end)
        if size < 0:
            raise CorruptBatch("a header has no name")
        size, at = _number(data, at + size, end)
        if size > 0:
            at += size
    return at


def wrapped_i64(value: int) -> int:
    """Base plus delta, overflowing at 64 bits as in Kafka and in numpy."""
    return ((value + 0x8000_0000_0000_0000) & 0xFFFF_FFFF_FFFF_FFFF) - 0x8000_0000_0000_0000


def _number(data: Buffer, at: int, end: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    second = data[at + 1]
    if second < 0x80:
        raw = byte & 0x7F | second << 7
        return (raw >> 1) ^ -(raw & 1), at + 2
    return read_varint(data, at, end)


def _long_number(data: Buffer, at: int, end: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    return read_varlong(data, at, end)
