"""Building the batches that compaction writes: with fewer records, with none, or with a delete horizon.

Used by `batch_filter`. Base offset, last offset, leader epoch and sequence never change, so offsets and a producer's
last sequence stay as they were. Records keep their bytes, unless a delete horizon replaces the base timestamp: then
every timestamp delta is relative to it (KIP-534).
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Codec,
    write_crc,
)
from strandline.records.compression import compress
from strandline.records.varint import Buffer, read_varlong, varint_bytes


def batch_with(
    header: BatchHeader, body: Buffer, record_count: int, *, attributes: int, base_timestamp: int, max_timestamp: int
) -> bytearray:
    """The batch of this header with other (uncompressed) records."""
    out = bytearray(HEADER_SIZE)
    out += compress(Codec(attributes & CODEC_MASK), body)
    changed = header._replace(
        batch_length=len(out) - LOG_OVERHEAD,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=record_count,
    )
    HEADER.pack_into(out, 0, *changed)
    write_crc(out)
    return out


def empty_batch(header: BatchHeader) -> bytearray:
    """A batch without records, kept for its offsets or for its producer's last sequence."""
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return batch_with(
        header,
        b"",
        0,
        attributes=attributes,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
    )


def with_base_timestamp(data: Buffer, base_timestamp: int, rows: Iterable[tuple[int, int, int]]) -> bytearray:
    """Records with their timestamps relative to another base. A row is (position of the timestamp delta, end of the
    record, timestamp)."""
    out = bytearray()
    for timestamp_at, end, timestamp in rows:
        _, after = read_varlong(data, timestamp_at)
        delta = varint_bytes(timestamp - base_timestamp)
        # The attributes of a record are one byte before its timestamp.
        out += varint_bytes(1 + len(delta) + end - after)
        out += data[timestamp_at - 1 : timestamp_at]
        out += delta
        out += data[after:end]
    return out
