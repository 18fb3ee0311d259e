"""Batches of a producer, valid and invalid, and the results of their validation."""

from __future__ import annotations

import struct

import pytest

from strandline.log.settings import LogSettings
from strandline.log.validation import InvalidRecords, Origin, Validated, validate
from strandline.records.batch import (
    HEADER_SIZE,
    Codec,
    Record,
    crc_ok,
    encode_batch,
    read_header,
    write_crc,
)

NOW = 1_700_000_000_000
HOUR = 3_600_000

PLAIN = LogSettings()
COMPACTED = LogSettings(cleanup_compact=True)
APPEND_TIME = LogSettings(message_timestamp_type="LogAppendTime")
EVERY_CODEC = list(Codec)
COMPRESSED = EVERY_CODEC[1:]


def batch_of(count: int = 3, *, first: int = NOW, keys: bool = True, codec: Codec = Codec.NONE) -> bytearray:
    return encode_batch(
        [Record(-1, first + n, b"key%d" % n if keys else None, b"value%d" % n, (("h", b"x"),)) for n in range(count)],
        codec=codec,
    )


def patched(batch: bytes | bytearray, at: int, layout: str, value: int) -> bytearray:
    out = bytearray(batch)
    struct.pack_into(layout, out, at, value)
    write_crc(out)
    return out


def with_body(batch: bytes | bytearray, body: bytes) -> bytearray:
    out = bytearray(batch[:HEADER_SIZE]) + body
    struct.pack_into(">i", out, 8, len(out) - 12)
    write_crc(out)
    return out


def accepted(
    batch: bytes | bytearray, settings: LogSettings = PLAIN, *, origin: Origin = Origin.CLIENT, api_version: int = 13
) -> Validated:
    records = memoryview(bytearray(batch))
    validated = validate(records, settings, wall_ms=NOW, api_version=api_version, origin=origin)
    assert crc_ok(validated.buffer, 0, len(validated.buffer))
    assert read_header(validated.buffer) == validated.header
    return validated


def rejected(
    batch: bytes | bytearray, settings: LogSettings = PLAIN, *, origin: Origin = Origin.CLIENT, api_version: int = 13
) -> InvalidRecords:
    records = bytearray(batch)
    with pytest.raises(InvalidRecords) as raised:
        validate(memoryview(records), settings, wall_ms=NOW, api_version=api_version, origin=origin)
    assert records == batch, "a rejected batch was changed"
    assert raised.value.why
    return raised.value
