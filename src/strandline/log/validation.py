"""Validation of a record batch from a producer or a coordinator, before a leader appends it.

The produce handler calls `validate`, off the event loop if the batch `is_heavy`; `appending` then calls `assign_offset`
with the offset. The batch is changed in place; only recompression allocates a new one. An invalid batch is
`InvalidRecords` with Kafka's error code, and is not changed.

The order is Kafka's: exactly one batch of magic 2, codec against request version, base offset, size, checksum, counts,
control bit, sequence, then the records themselves, then the size once more. Sequences are checked against the producer
state later, by `appending`.

On the common path (the producer's codec kept, a topic that is not compacted, timestamps within bounds according to the
header) validation reads only the header and computes one checksum, whatever the number of records. These checks of
Kafka are left out there:

- that the records are well-formed, fill the batch exactly and are as many as the header says (Kafka: INVALID_RECORD;
  here consumers get what the producer wrote); made for uncompressed batches of up to `FEW_RECORDS` records, where it
  costs a microsecond each;
- that each record's own timestamp lies within message.timestamp.before.max.ms and message.timestamp.after.max.ms: the
  header's base and largest timestamp are checked instead;
- that the header's largest timestamp is the largest of the records' (Kafka corrects it silently);
- that the offset deltas of compressed records are 0, 1, 2, … (Kafka fails with UNKNOWN_SERVER_ERROR, or renumbers them
  when it converts the codec; it does not check those of uncompressed records either);
- that compressed records can be decompressed at all (Kafka: UNKNOWN_SERVER_ERROR). That the blocks of an lz4 frame are
  independent, without which Kafka's own clients cannot read it, is in the frame's first bytes and is checked.

All of them are made, for every record, when the records have to be decoded anyway (`record_validation`): on compacted
topics, when the codec is converted, and when the header's timestamps are out of bounds or of the wrong type.
"""

from __future__ import annotations

import struct
from enum import Enum
from functools import partial

import msgspec

from strandline.log.record_validation import InvalidRecords, rewrite_timestamps, validate_records
from strandline.log.settings import LogSettings
from strandline.model.errors import ErrorCode
from strandline.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    Codec,
    CorruptBatch,
    batches,
    crc_ok,
)
from strandline.records.checksum import crc32c
from strandline.records.compression import CODEC_NAMES
from strandline.records.record_spans import read_spans

__all__ = ["InvalidRecords", "Origin", "Validated", "assign_offset", "check_replicated", "is_heavy", "validate"]

FEW_RECORDS = 2
# Decoding more than this may take milliseconds: too long for the event loop.
HEAVY_BYTES = 64 * 1024

LATEST_PRODUCE_VERSION = 13
FIRST_VERSION_WITH_ZSTD = 7

# The shortest message of the oldest format: no batch of any format is shorter.
_SHORTEST_LENGTH = 14

# The largest number that a varint of two bytes holds.
_TWO_BYTES = (1 << 14) - 1

_LZ4 = int(Codec.LZ4)
_ZSTD = int(Codec.ZSTD)
# The byte after the four of lz4's magic number.
_LZ4_FLAGS_AT = HEADER_SIZE + 4
_LZ4_INDEPENDENT = 0x20
# Base offset, length, leader epoch: adjacent, and before everything that the checksum covers.
_ASSIGNED = struct.Struct(">qii")
_unpack_header = HEADER.unpack_from
_make_header = partial(tuple.__new__, BatchHeader)  # `_make` without a Python call


class Origin(Enum):
    """The writer of a batch. Base offset, counts, control bit and sequence are checked only for clients."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


_CLIENT = Origin.CLIENT  # looked up once: a member of an enum costs as much as a call


class Validated(msgspec.Struct, frozen=True):
    """One valid batch without its offset."""

    buffer: memoryview
    header: BatchHeader
    log_append_time: int
    """-1 unless the topic has LogAppendTime."""
    origin: Origin = Origin.CLIENT


def validate(
    records: memoryview,
    settings: LogSettings,
    *,
    wall_ms: int,
    api_version: int = LATEST_PRODUCE_VERSION,
    origin: Origin = Origin.CLIENT,
) -> Validated:
    """The one batch in `records`, as it will be appended. Raises InvalidRecords."""
    if len(records) < HEADER_SIZE:
        raise _incomplete_batch(records)
    fields = _unpack_header(records, 0)
    base_offset, batch_length, _, magic, crc, attributes, last_offset_delta, _, _, producer_id, _, sequence, count = (
        fields
    )
    if magic != MAGIC or batch_length + LOG_OVERHEAD != len(records):
        records = _sole_batch(records, batch_length, magic)
    codec = attributes & CODEC_MASK
    if codec >= _ZSTD and (codec > _ZSTD or api_version < FIRST_VERSION_WITH_ZSTD):
        raise InvalidRecords(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} in version {api_version} of the request"
        )
    if base_offset != 0 and origin is _CLIENT:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, f"base offset {base_offset} of a new batch is not 0")
    if len(records) > settings.max_message_bytes:
        raise InvalidRecords(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{len(records)} bytes are more than max.message.bytes {settings.max_message_bytes}",
        )
    if crc32c(records[ATTRIBUTES_AT:]) != crc:
        raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"the batch does not match its checksum {crc:#010x}")
    header = _make_header(fields)
    if origin is _CLIENT and (
        last_offset_delta + 1 != count or count <= 0 or attributes & CONTROL or (producer_id >= 0 and sequence < 0)
    ):
        raise _invalid_header(header)
    if codec == _LZ4 and len(records) > _LZ4_FLAGS_AT and not records[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, "the blocks of an lz4 frame must be independent of each other")
    if records.readonly:
        records = memoryview(bytearray(records))

    append_time = wall_ms if settings.message_timestamp_type == "LogAppendTime" else -1
    if _must_decode(header, settings, wall_ms):
        records, header = validate_records(records, header, settings, wall_ms)
    else:
        if codec == 0 and count <= FEW_RECORDS:
            _check_few(records, count)
        if append_time >= 0:
            header = rewrite_timestamps(records, attributes | LOG_APPEND_TIME, append_time)
    if len(records) > settings.segment_bytes:
        raise InvalidRecords(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{len(records)} bytes are more than segment.bytes {settings.segment_bytes}",
        )
    return Validated(records, header, append_time, origin)


def assign_offset(validated: Validated, base_offset: int, leader_epoch: int) -> None:
    """Writes offset and leader epoch into the batch. The checksum does not cover them."""
    _ASSIGNED.pack_into(validated.buffer, 0, base_offset, validated.header.batch_length, leader_epoch)


def is_heavy(records: memoryview, settings: LogSettings, wall_ms: int) -> bool:
    """Whether `validate` may take too long for the event loop, because it will decompress, recompress or decode many
    records. It reads nothing but its arguments, so a thread can run it before the append."""
    size = len(records)
    if size < HEADER_SIZE or (size <= HEAVY_BYTES and not records[ATTRIBUTES_AT + 1] & CODEC_MASK):
        return False
    return _must_decode(_make_header(_unpack_header(records, 0)), settings, wall_ms)


def check_replicated(records: memoryview) -> list[tuple[int, BatchHeader]]:
    """The whole batches that a follower fetched, their checksums verified; an incomplete batch at the end is left out.
    The leader has validated them, so nothing else is checked."""
    found: list[tuple[int, BatchHeader]] = []
    try:
        for position, header in batches(records):
            if not crc_ok(records, position, header.size_bytes):
                raise InvalidRecords(
                    ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} does not match its checksum"
                )
            found.append((position, header))
    except CorruptBatch as error:
        raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return found


def _must_decode(header: BatchHeader, settings: LogSettings, wall_ms: int) -> bool:
    """Whether the header is not enough to validate the batch, or the records have to be rewritten."""
    if settings.cleanup_compact or header.attributes & LOG_APPEND_TIME:
        return True
    codec = header.attributes & CODEC_MASK
    if settings.compression_type != "producer" and CODEC_NAMES[settings.compression_type] != codec:
        return True
    if settings.message_timestamp_type == "LogAppendTime":
        return False
    earliest = wall_ms - settings.message_timestamp_before_max_ms
    latest = wall_ms + settings.message_timestamp_after_max_ms
    return not (earliest <= header.base_timestamp <= latest and earliest <= header.max_timestamp <= latest)


def _check_few(records: memoryview, count: int) -> None:
    if count == 1 and _is_plain(records):
        return
    try:
        read_spans(records, HEADER_SIZE, len(records), count)
    except CorruptBatch as error:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, str(error)) from None


def _is_plain(records: memoryview) -> bool:
    """Whether the one record of a batch fills it, with deltas of 0, lengths of one or two bytes and no headers. Nearly
    every single record is like that, and this takes no further calls. False: it has to be parsed."""
    end = len(records)
    try:
        size, at = records[HEADER_SIZE], HEADER_SIZE + 1
        if size > 127:
            size, at = size & 127 | records[at] << 7, at + 1
        # Numbers are zigzag: even ones are positive, 1 is null. One with a third byte is larger than this.
        if size & 1 or size > _TWO_BYTES or at + (size >> 1) != end or records[at + 1] or records[at + 2]:
            return False
        key, at = records[at + 3], at + 4
        if key > 127:
            key, at = key & 127 | records[at] << 7, at + 1
        at += key >> 1
        value, at = records[at], at + 1
        if value > 127:
            value, at = value & 127 | records[at] << 7, at + 1
        at += value >> 1
        if (key & 1 and key != 1) or (value & 1 and value != 1) or key > _TWO_BYTES or value > _TWO_BYTES:
            return False
        return at + 1 == end and records[at] == 0
    except IndexError:
        return False


def _sole_batch(records: memoryview, batch_length: int, magic: int) -> memoryview:
    """The first batch of a field that is not exactly one batch of magic 2. An incomplete batch behind it is ignored."""
    size = batch_length + LOG_OVERHEAD
    if batch_length < _SHORTEST_LENGTH:
        raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"batch length {batch_length} is shorter than any batch")
    if not 0 <= magic <= MAGIC:
        raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"magic {magic} is not a message format")
    if size > len(records):
        raise InvalidRecords(ErrorCode.INVALID_RECORD, "the records hold no complete batch")
    if magic != MAGIC:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, f"magic {magic} is not supported any more, only {MAGIC}")
    if size < HEADER_SIZE:
        raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"batch length {batch_length} is shorter than a header")
    rest = records[size:]
    if len(rest) > MAGIC_AT:
        following = int.from_bytes(rest[LENGTH_AT : LENGTH_AT + 4], "big", signed=True)
        if following < _SHORTEST_LENGTH:
            raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"batch length {following} is shorter than any batch")
        if following + LOG_OVERHEAD <= len(rest):
            raise InvalidRecords(ErrorCode.INVALID_RECORD, "the records are more than one batch")
    return records[:size]


def _incomplete_batch(records: memoryview) -> InvalidRecords:
    """The error for bytes shorter than a header: no batch, or a corrupt one if they look like the start of one."""
    if len(records) > MAGIC_AT:
        length = int.from_bytes(records[LENGTH_AT : LENGTH_AT + 4], "big", signed=True)
        if length < _SHORTEST_LENGTH or records[MAGIC_AT] > MAGIC:
            return InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"batch length {length}, magic {records[MAGIC_AT]}")
        if length + LOG_OVERHEAD <= len(records) and records[MAGIC_AT] == MAGIC:
            return InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"batch length {length} is shorter than a header")
    return InvalidRecords(ErrorCode.INVALID_RECORD, "the records hold no complete batch")


def _invalid_header(header: BatchHeader) -> InvalidRecords:
    if header.last_offset_delta < 0 or header.record_count != header.last_offset_delta + 1:
        why = f"{header.record_count} records cannot have a last offset delta of {header.last_offset_delta}"
    elif header.is_control:
        why = "clients may not write control records"
    else:
        why = f"producer {header.producer_id} sent the sequence {header.base_sequence}"
    return InvalidRecords(ErrorCode.INVALID_RECORD, why)
