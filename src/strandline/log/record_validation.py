"""The part of append validation that decodes records, and rewrites a batch where it has to be changed.

Called by `validation` for batches whose header alone is not enough. Where records are many, only the invalid ones take
a Python step each.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from strandline.log.settings import LogSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
    records_of,
    write_crc,
)
from strandline.records.columns import FEW_RECORDS, decode_columns
from strandline.records.compression import CODEC_NAMES, Codec, compress
from strandline.records.errors import CorruptBatch, DecompressionLimit
from strandline.records.record_spans import read_spans, wrapped_i64
from strandline.records.varint import Buffer, read_varint, read_varlong, varint_bytes

# The limit of a batch's decompressed size, if it is more than four times max.message.bytes.
DECOMPRESSED_LIMIT_BYTES = 64 * 1024 * 1024
# A decoded batch takes some hundred bytes for each record, however small they are when compressed.
MAX_DECODED_RECORDS = 500_000

_MIN_I64 = -(1 << 63)
_MAX_I64 = (1 << 63) - 1


class InvalidRecords(KafkaError):
    """A batch was rejected. `record_errors` are (index within the batch, reason) of the invalid records; empty when the
    batch as a whole is invalid."""

    def __init__(self, code: ErrorCode, why: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(code, why)
        self.record_errors = list(record_errors)


class Decoded(msgspec.Struct, frozen=True):
    """The uncompressed records of a batch and what is needed of their fields. Rows are indexes of records."""

    plain: Buffer
    largest_timestamp: int
    consecutive: bool
    """Whether the offset deltas are 0, 1, 2, …"""
    without_key: list[int]
    out_of_bounds: list[tuple[int, int]]
    """(row, timestamp) of records whose timestamp is out of bounds."""


def validate_records(
    batch: memoryview, header: BatchHeader, settings: LogSettings, wall_ms: int
) -> tuple[memoryview, BatchHeader]:
    """The batch as it will be appended: the same memory when at most its header changes. Raises InvalidRecords."""
    decoded = _decode(batch, header, settings, wall_ms)
    _check_records(decoded, header, settings, wall_ms)
    codec = header.codec if settings.compression_type == "producer" else CODEC_NAMES[settings.compression_type]
    stamps = settings.message_timestamp_type == "LogAppendTime"
    largest = wall_ms if stamps else decoded.largest_timestamp
    attributes = header.attributes & ~LOG_APPEND_TIME | (LOG_APPEND_TIME if stamps else 0)
    if header.is_control or codec == header.codec:
        if codec != Codec.NONE and not decoded.consecutive:
            raise InvalidRecords(ErrorCode.INVALID_RECORD, "the offset deltas of compressed records are not 0, 1, 2, …")
        if attributes != header.attributes or largest != header.max_timestamp:
            header = rewrite_timestamps(batch, attributes, largest)
        return batch, header
    plain = decoded.plain if decoded.consecutive else _renumbered(decoded.plain, header.record_count)
    return _recompressed(plain, header, attributes & (LOG_APPEND_TIME | TRANSACTIONAL) | codec, largest, settings)


def rewrite_timestamps(batch: memoryview, attributes: int, max_timestamp: int) -> BatchHeader:
    """Writes the timestamp type and the largest timestamp into the header; the records stay untouched."""
    batch[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = attributes.to_bytes(2, "big", signed=True)
    batch[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = max_timestamp.to_bytes(8, "big", signed=True)
    write_crc(batch)
    return read_header(batch)


def _decode(batch: memoryview, header: BatchHeader, settings: LogSettings, wall_ms: int) -> Decoded:
    if header.record_count > MAX_DECODED_RECORDS:
        raise InvalidRecords(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{header.record_count} records are more than {MAX_DECODED_RECORDS} in one batch",
        )
    limit_bytes = max(DECOMPRESSED_LIMIT_BYTES, 4 * settings.max_message_bytes)
    earliest = max(_MIN_I64, wall_ms - settings.message_timestamp_before_max_ms)
    latest = min(_MAX_I64, wall_ms + settings.message_timestamp_after_max_ms)
    try:
        if header.record_count <= FEW_RECORDS:
            return _decode_few(batch, header, limit_bytes, earliest, latest)
        return _decode_many(batch, header, limit_bytes, earliest, latest)
    except DecompressionLimit as error:
        # Clients split a batch that is too large; after any other error they would fail or retry the same batch.
        raise InvalidRecords(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
    except CorruptBatch as error:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, str(error)) from None


def _decode_few(batch: memoryview, header: BatchHeader, limit_bytes: int, earliest: int, latest: int) -> Decoded:
    plain = records_of(batch, 0, header, limit_bytes)
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    base_timestamp = header.base_timestamp
    largest = NO_TIMESTAMP
    consecutive = True
    without_key = []
    out_of_bounds = []
    for row, span in enumerate(read_spans(plain, 0, len(plain), header.record_count)):
        timestamp = wrapped_i64(base_timestamp + span.timestamp_delta) if append_time is None else append_time
        if timestamp > largest:
            largest = timestamp
        if not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
            out_of_bounds.append((row, timestamp))
        if span.key_length < 0:
            without_key.append(row)
        if span.offset_delta != row:
            consecutive = False
    return Decoded(plain, largest, consecutive, without_key, out_of_bounds)


def _decode_many(batch: memoryview, header: BatchHeader, limit_bytes: int, earliest: int, latest: int) -> Decoded:
    import numpy as np

    columns = decode_columns(batch, [(0, header)], limit_bytes)
    plain = columns.data if header.codec else batch[HEADER_SIZE:]
    timestamp = columns.timestamp
    rows = np.flatnonzero(((timestamp < earliest) | (timestamp > latest)) & (timestamp != NO_TIMESTAMP))
    return Decoded(
        plain=plain,
        largest_timestamp=max(NO_TIMESTAMP, int(timestamp.max())),
        consecutive=bool((columns.offset_delta == np.arange(len(columns))).all()),
        without_key=np.flatnonzero(columns.key_length < 0).tolist(),
        out_of_bounds=list(zip(rows.tolist(), timestamp[rows].tolist(), strict=True)),
    )


def _check_records(decoded: Decoded, header: BatchHeader, settings: LogSettings, wall_ms: int) -> None:
    """One error per record, a missing key first; one invalid timestamp decides the error code of the batch."""
    errors: dict[int, str] = {}
    if settings.cleanup_compact:
        errors = dict.fromkeys(decoded.without_key, "a record of a compacted topic needs a key")
    invalid_timestamps = _invalid_timestamps(decoded, header, settings, wall_ms)
    invalid_timestamp = False
    for row, why in invalid_timestamps:
        if row not in errors:
            errors[row] = why
            invalid_timestamp = True
    if not errors:
        return
    record_errors = sorted(errors.items())
    if invalid_timestamp:
        raise InvalidRecords(ErrorCode.INVALID_TIMESTAMP, "records have timestamps that are not allowed", record_errors)
    raise InvalidRecords(
        ErrorCode.INVALID_RECORD, f"{len(record_errors)} of {header.record_count} records are not valid", record_errors
    )


def _invalid_timestamps(
    decoded: Decoded, header: BatchHeader, settings: LogSettings, wall_ms: int
) -> list[tuple[int, str]]:
    stamps = settings.message_timestamp_type == "LogAppendTime"
    if header.is_log_append_time and (stamps or header.max_timestamp == NO_TIMESTAMP):
        why = "only the broker may set LogAppendTime"
        return [(row, why) for row in range(header.record_count)]
    if stamps:
        return []
    earliest = wall_ms - settings.message_timestamp_before_max_ms
    latest = wall_ms + settings.message_timestamp_after_max_ms
    return [
        (row, f"timestamp {timestamp} is not between {earliest} and {latest}")
        for row, timestamp in decoded.out_of_bounds
    ]


def _renumbered(plain: Buffer, count: int) -> bytearray:
    """The records with offset deltas 0, 1, 2, …. Rare, so it goes record by record."""
    out = bytearray()
    for row, span in enumerate(read_spans(plain, 0, len(plain), count)):
        _, attributes_at = read_varint(plain, span.start)
        _, delta_at = read_varlong(plain, attributes_at + 1)
        _, key_at = read_varint(plain, delta_at)
        fields = b"".join((plain[attributes_at:delta_at], varint_bytes(row), plain[key_at : span.end]))
        out += varint_bytes(len(fields))
        out += fields
    return out


def _recompressed(
    plain: Buffer, header: BatchHeader, attributes: int, max_timestamp: int, settings: LogSettings
) -> tuple[memoryview, BatchHeader]:
    codec = Codec(attributes & CODEC_MASK)
    level = {
        Codec.GZIP: settings.compression_gzip_level,
        Codec.LZ4: settings.compression_lz4_level,
        Codec.ZSTD: settings.compression_zstd_level,
    }.get(codec)
    out = bytearray(HEADER_SIZE)
    out += compress(codec, plain, level)
    if len(out) > settings.max_message_bytes:
        raise InvalidRecords(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{len(out)} bytes after compression are more than max.message.bytes {settings.max_message_bytes}",
        )
    changed = header._replace(batch_length=len(out) - LOG_OVERHEAD, attributes=attributes, max_timestamp=max_timestamp)
    HEADER.pack_into(out, 0, *changed)
    batch = memoryview(out)
    write_crc(batch)
    return batch, read_header(batch)
