"""What a leader accepts: one record batch as a producer sent it, checked and made ready for the log.

`PartitionLog.append_as_leader` calls `validate` and then, when the offset is known, `assign`. The batch is patched
where it lies; only recompression gives it new memory. Whatever is wrong is `InvalidRecords` with Kafka's error code,
and then nothing has been changed.

The order is Kafka's: exactly one batch of magic 2, codec against request version, base offset, size, checksum, counts,
control bit, sequence, then the records themselves, then the size once more. What a known producer may send next is
checked after this, by the log.

The common path (the producer's codec kept, a topic that is not compacted, timestamps within their bounds by the
header's word) costs the header, one checksum and comparisons, whatever the number of records. On that path these checks
of Kafka are not made:

- that the records are well-formed, fill the batch exactly and are as many as the header says
  (Kafka: INVALID_RECORD; here consumers meet what the producer wrote); it is made for uncompressed batches of up to
  `FEW_RECORDS` records, where it costs a microsecond for each;
- that each record's own timestamp lies within message.timestamp.before.max.ms and message.timestamp.after.max.ms:
  the base and the largest timestamp, as the header states them, are checked instead;
- that the header's largest timestamp is the largest of the records' (Kafka corrects it in silence);
- that the offset deltas of compressed records are 0, 1, 2, … (Kafka fails with UNKNOWN_SERVER_ERROR, or renumbers them
  when it converts the codec; it does not look at those of uncompressed ones either);
- that compressed records can be decompressed at all (Kafka: UNKNOWN_SERVER_ERROR); that the blocks of an lz4 frame are
  independent, without which Kafka's own clients cannot read it, is seen in the frame's first bytes and is checked.

All of them are made, for every record, when the records have to be opened anyway: on compacted topics, when the codec
is converted, and when the header's timestamps are out of bounds or of the wrong type.
"""

from __future__ import annotations

import struct
from enum import Enum
from functools import partial

import msgspec

from strandline.log.record_validation import open_and_check, restamp
from strandline.log.refusal import InvalidRecords
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
from strandline.records.spans import read_spans

__all__ = ["InvalidRecords", "Origin", "Validated", "assign", "check_replicated", "is_heavy", "validate"]

FEW_RECORDS = 2
# Opening more than this may take milliseconds: too long for the event loop.
HEAVY_BYTES = 64 * 1024

LATEST_PRODUCE_VERSION = 13
FIRST_VERSION_WITH_ZSTD = 7

# The shortest message of the oldest format: a length below it is no batch of any format.
_SHORTEST_LENGTH = 14

# The largest number that a varint of two bytes holds.
_TWO_BYTES = (1 << 14) - 1

_LZ4 = int(Codec.LZ4)
_ZSTD = int(Codec.ZSTD)
# The byte after the four of lz4's magic number.
_LZ4_FLAGS_AT = HEADER_SIZE + 4
_LZ4_INDEPENDENT = 0x20
# Base offset, length, leader epoch: they lie side by side and before everything that the checksum covers.
_ASSIGNED = struct.Struct(">qii")
_unpack_header = HEADER.unpack_from
_make_header = partial(tuple.__new__, BatchHeader)  # `_make` without a step of Python


class Origin(Enum):
    """Who hands in the records: only clients are distrusted about base offset, counts, control bit and sequence."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


_CLIENT = Origin.CLIENT  # looked up once: a member of an enum costs as much as a call


class Validated(msgspec.Struct, frozen=True):
    """One batch ready for `assign`. `log_append_time` is -1 unless the topic stamps it."""

    buffer: memoryview
    header: BatchHeader
    log_append_time: int

    @property
    def size_bytes(self) -> int:
        return len(self.buffer)


def validate(
    records: memoryview,
    settings: LogSettings,
    *,
    wall_ms: int,
    api_version: int = LATEST_PRODUCE_VERSION,
    origin: Origin = Origin.CLIENT,
) -> Validated:
    """The one batch in `records`, as the log shall keep it."""
    if len(records) < HEADER_SIZE:
        raise _refusal_of_fragment(records)
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
        raise _refusal_of_header(header)
    if codec == _LZ4 and len(records) > _LZ4_FLAGS_AT and not records[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, "the blocks of an lz4 frame must be independent of each other")
    if records.readonly:
        records = memoryview(bytearray(records))

    append_time = wall_ms if settings.message_timestamp_type == "LogAppendTime" else -1
    if _must_open(header, settings, wall_ms):
        records, header = open_and_check(records, header, settings, wall_ms)
    else:
        if codec == 0 and count <= FEW_RECORDS:
            _check_few(records, count)
        if append_time >= 0:
            header = restamp(records, attributes | LOG_APPEND_TIME, append_time)
    if len(records) > settings.segment_bytes:
        raise InvalidRecords(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{len(records)} bytes are more than segment.bytes {settings.segment_bytes}",
        )
    return Validated(records, header, append_time)


def assign(validated: Validated, base_offset: int, leader_epoch: int) -> None:
    """Write what only the leader knows into the batch. The checksum does not cover it."""
    _ASSIGNED.pack_into(validated.buffer, 0, base_offset, validated.header.batch_length, leader_epoch)


def is_heavy(records: memoryview, settings: LogSettings, wall_ms: int) -> bool:
    """Whether `validate` may take too long for the event loop, because it will unfold, recompress or look into many
    records. It reads nothing but its arguments, so it can run elsewhere before the append."""
    size = len(records)
    if size < HEADER_SIZE or (size <= HEAVY_BYTES and not records[ATTRIBUTES_AT + 1] & CODEC_MASK):
        return False
    return _must_open(_make_header(_unpack_header(records, 0)), settings, wall_ms)


def check_replicated(records: memoryview) -> list[tuple[int, BatchHeader]]:
    """The whole batches that a leader sent to its follower, each with a good checksum; a cut-off batch at the end is
    left out. The leader has validated them, so nothing else is asked."""
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


def _must_open(header: BatchHeader, settings: LogSettings, wall_ms: int) -> bool:
    """Whether the header leaves a question that only the records can answer."""
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
    """Whether the one record of a batch fills it, with deltas of 0, lengths of one or two bytes and no headers: what a
    lone record nearly always is, and seen without the calls that any record takes. False says nothing about it."""
    end = len(records)
    try:
        size, at = records[HEADER_SIZE], HEADER_SIZE + 1
        if size > 127:
            size, at = size & 127 | records[at] << 7, at + 1
        # Numbers are zigzag: even ones are positive, 1 is null. A third byte would have made them this large.
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
    """The first batch of a field that is not exactly one batch of magic 2. A cut-off rest behind it is ignored."""
    size = batch_length + LOG_OVERHEAD
    if batch_length < _SHORTEST_LENGTH:
        raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"batch length {batch_length} is shorter than any batch")
    if not 0 <= magic <= MAGIC:
        raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"magic {magic} was never a format")
    if size > len(records):
        raise InvalidRecords(ErrorCode.INVALID_RECORD, "the records hold no whole batch")
    if magic != MAGIC:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, f"magic {magic} is not taken any more, only {MAGIC}")
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


def _refusal_of_fragment(records: memoryview) -> InvalidRecords:
    """What is shorter than a header holds no batch; if it looks like one, it is a damaged one."""
    if len(records) > MAGIC_AT:
        length = int.from_bytes(records[LENGTH_AT : LENGTH_AT + 4], "big", signed=True)
        if length < _SHORTEST_LENGTH or records[MAGIC_AT] > MAGIC:
            return InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"batch length {length}, magic {records[MAGIC_AT]}")
        if length + LOG_OVERHEAD <= len(records) and records[MAGIC_AT] == MAGIC:
            return InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"batch length {length} is shorter than a header")
    return InvalidRecords(ErrorCode.INVALID_RECORD, "the records hold no whole batch")


def _refusal_of_header(header: BatchHeader) -> InvalidRecords:
    if header.last_offset_delta < 0 or header.record_count != header.last_offset_delta + 1:
        why = f"{header.record_count} records cannot have a last offset delta of {header.last_offset_delta}"
    elif header.is_control:
        why = "clients may not write control records"
    else:
        why = f"producer {header.producer_id} sent the sequence {header.base_sequence}"
    return InvalidRecords(ErrorCode.INVALID_RECORD, why)
