"""Record batches of format 2: the header, whole batches in a buffer, records in and out of them.

All batch headers are parsed here. Only `decode_batch` and `encode_batch` look inside records; they go record by record
and serve clients, coordinators, the metadata log and tests. Code that handles many records uses `records.columns`. Any
bytes give either a value or `CorruptBatch`.

The checksum covers everything from the attributes on: base offset, length and leader epoch may be changed in place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from strandline.records.checksum import crc32c
from strandline.records.compression import DEFAULT_LIMIT_BYTES, Codec, compress, decompress
from strandline.records.errors import CorruptBatch, DecompressionLimit
from strandline.records.record_spans import read_spans, wrapped_i64
from strandline.records.varint import Buffer, append_varint, read_varint, varint_bytes

__all__ = [
    "ATTRIBUTES_AT",
    "BASE_TIMESTAMP_AT",
    "CODEC_MASK",
    "CONTROL",
    "CRC_AT",
    "DELETE_HORIZON",
    "HEADER",
    "HEADER_SIZE",
    "LAST_OFFSET_DELTA_AT",
    "LEADER_EPOCH_AT",
    "LENGTH_AT",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD",
    "MAGIC",
    "MAGIC_AT",
    "MAX_TIMESTAMP_AT",
    "NO_TIMESTAMP",
    "RECORD_COUNT_AT",
    "TRANSACTIONAL",
    "BatchHeader",
    "Codec",
    "ControlType",
    "CorruptBatch",
    "DecompressionLimit",
    "Record",
    "batches",
    "control_record_type",
    "crc_ok",
    "decode_batch",
    "encode_batch",
    "end_transaction_marker",
    "read_header",
    "records_of",
    "write_crc",
]

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
# Base offset and length, which `batch_length` does not count.
LOG_OVERHEAD = 12
MAGIC = 2

LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
RECORD_COUNT_AT = 57

# Bits of the attributes; the lowest three are the codec.
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1

_unpack_header = HEADER.unpack_from
_CRC = struct.Struct(">I")

Header = tuple[str, bytes | None]


class ControlType(IntEnum):
    """The type in the key of a control record; readers skip unknown types."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; -1 when there is none; wraps from 2147483647 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON != 0


class Record(NamedTuple):
    """`offset` is absolute; -1, when encoding, means the offset after the previous record's."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; the records after it need not be in the buffer."""
    if position < 0 or len(buffer) - position < HEADER_SIZE:
        raise CorruptBatch("the batch header is incomplete")
    header = BatchHeader._make(_unpack_header(buffer, position))
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic {header.magic} is not {MAGIC}")
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptBatch(f"batch length {header.batch_length} is shorter than a header")
    if header.last_offset_delta < 0 or header.record_count < 0:
        raise CorruptBatch(
            f"negative count: last offset delta {header.last_offset_delta}, {header.record_count} records"
        )
    return header


def crc_ok(buffer: Buffer, position: int, size: int) -> bool:
    """Whether the checksum of the batch at `position`, `size` bytes long, is right."""
    if size < HEADER_SIZE or position < 0 or len(buffer) - position < size:
        return False
    view = memoryview(buffer)[position : position + size]
    return bool(crc32c(view[ATTRIBUTES_AT:]) == _CRC.unpack_from(view, CRC_AT)[0])


def write_crc(batch: bytearray | memoryview) -> None:
    """Recompute the checksum of this one batch after a change."""
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))


def batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch; an incomplete batch at the end, as fetch responses have, is left out."""
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        following = position + LOG_OVERHEAD + header.batch_length
        if following > end:
            return
        yield position, header
        position = following


def records_of(buffer: Buffer, position: int, header: BatchHeader, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Buffer:
    """The uncompressed records of a whole batch, without a copy where none is needed."""
    end = position + header.size_bytes
    if end > len(buffer):
        raise CorruptBatch("the batch is incomplete")
    return decompress(header.codec, memoryview(buffer)[position + HEADER_SIZE : end], limit_bytes)


def decode_batch(buffer: Buffer, position: int = 0, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> list[Record]:
    """All records of the batch at `position`. The checksum is not verified (see `crc_ok`)."""
    header = read_header(buffer, position)
    data = bytes(records_of(buffer, position, header, limit_bytes))
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    records: list[Record] = []
    for span in read_spans(data, 0, len(data), header.record_count):
        _, _, timestamp_delta, offset_delta, key_start, key_length, value_start, value_length, headers_start, count = (
            span
        )
        records.append(
            Record(
                wrapped_i64(base_offset + offset_delta),
                wrapped_i64(base_timestamp + timestamp_delta) if append_time is None else append_time,
                None if key_length < 0 else data[key_start : key_start + key_length],
                None if value_length < 0 else data[value_start : value_start + value_length],
                _read_headers(data, headers_start, count) if count else (),
            )
        )
    return records


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    level: int | None = None,
) -> bytearray:
    """One batch, ready to send or to append. Offsets must ascend from `base_offset`; without records the batch is empty
    and covers its base offset only."""
    body = bytearray()
    count = 0
    offset = base_offset - 1
    base_timestamp = max_timestamp = NO_TIMESTAMP
    for record in records:
        offset = offset + 1 if record.offset < 0 else record.offset
        if count == 0:
            base_timestamp = max_timestamp = record.timestamp
        elif record.timestamp > max_timestamp:
            max_timestamp = record.timestamp
        _append_record(body, record, offset - base_offset, record.timestamp - base_timestamp)
        count += 1
    attributes = int(codec)
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time
    if transactional:
        attributes |= TRANSACTIONAL
    if control:
        attributes |= CONTROL
    data = compress(codec, body, level)
    batch = bytearray(HEADER_SIZE)
    batch += data
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        max(0, offset - base_offset),
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    write_crc(batch)
    return batch


def end_transaction_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that ends a transaction in one partition."""
    key = struct.pack(">hh", 0, ControlType.COMMIT if commit else ControlType.ABORT)
    value = struct.pack(">hi", 0, coordinator_epoch)
    return encode_batch(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def control_record_type(key: bytes | None) -> int:
    """The type in a control record's key, in `ControlType` or not."""
    if key is None or len(key) < 4:
        raise CorruptBatch("the key of a control record is incomplete")
    return int.from_bytes(key[2:4], "big", signed=True)


def _append_record(body: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    _, _, key, value, headers = record
    fields = bytearray(1)
    append_varint(fields, timestamp_delta)
    append_varint(fields, offset_delta)
    _append_bytes(fields, key)
    _append_bytes(fields, value)
    if headers:
        append_varint(fields, len(headers))
        for name, content in headers:
            _append_bytes(fields, name.encode())
            _append_bytes(fields, content)
    else:
        fields.append(0)
    body += varint_bytes(len(fields))
    body += fields


def _append_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
    else:
        out += varint_bytes(len(data))
        out += data


def _read_headers(data: bytes, at: int, count: int) -> tuple[Header, ...]:
    """The headers of a record; `read_spans` has checked their bounds."""
    headers: list[Header] = []
    for _ in range(count):
        size, at = read_varint(data, at)
        name = data[at : at + size].decode("utf-8", "replace")
        size, at = read_varint(data, at + size)
        headers.append((name, None if size < 0 else data[at : at + size]))
        at += max(size, 0)
    return tuple(headers)
