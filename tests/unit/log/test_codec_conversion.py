"""Validation that decodes records: conversion to another codec, and checks of the record format."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from strandline.log.settings import LogSettings
from strandline.log.validation import Origin
from strandline.model.errors import ErrorCode
from strandline.records.batch import (
    HEADER_SIZE,
    Codec,
    Record,
    decode_batch,
    encode_batch,
    end_transaction_marker,
)
from strandline.records.compression import compress, decompress
from unit.log.batches_to_validate import (
    COMPACTED,
    COMPRESSED,
    EVERY_CODEC,
    NOW,
    PLAIN,
    accepted,
    batch_of,
    patched,
    rejected,
    with_body,
)

NAMES = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


class TestConversion:
    @pytest.mark.parametrize("source", EVERY_CODEC)
    @pytest.mark.parametrize("target", list(NAMES))
    @pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
    def test_every_codec_is_converted_to_every_other(self, source: Codec, target: str, kind: str) -> None:
        values = [Record(n, NOW + n, b"k%d" % n, b"some value " * 9, (("h", None),)) for n in range(120)]
        batch = encode_batch(values, codec=source, producer_id=3, producer_epoch=1, base_sequence=8, transactional=True)
        settings = LogSettings(compression_type=target, message_timestamp_type=kind)
        validated = accepted(batch, settings)
        header = validated.header
        assert header.codec == NAMES[target]
        assert header.is_transactional
        assert header.is_log_append_time is (kind == "LogAppendTime")
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 8)
        assert (header.record_count, header.last_offset_delta) == (120, 119)
        assert header.max_timestamp == (NOW if kind == "LogAppendTime" else NOW + 119)
        before = bytes(decompress(source, batch[HEADER_SIZE:], 1 << 20))
        assert bytes(decompress(NAMES[target], validated.buffer[HEADER_SIZE:], 1 << 20)) == before
        if source == NAMES[target]:
            assert validated.buffer[HEADER_SIZE:] == memoryview(batch)[HEADER_SIZE:]

    @pytest.mark.parametrize(
        ("name", "low", "high"),
        [
            ("gzip", {"compression_gzip_level": 1}, {"compression_gzip_level": 9}),
            ("lz4", {"compression_lz4_level": 9}, {"compression_lz4_level": 17}),
            ("zstd", {"compression_zstd_level": -100}, {"compression_zstd_level": 19}),
        ],
    )
    def test_compression_levels_are_used(self, name: str, low: dict[str, int], high: dict[str, int]) -> None:
        values = [Record(-1, NOW, b"k%d" % n, b"%d bottles of beer " % n * 20) for n in range(500)]
        batch = encode_batch(values)
        sizes = [len(accepted(batch, replace(PLAIN, compression_type=name, **levels)).buffer) for levels in (low, high)]
        assert sizes[1] < sizes[0]

    def test_the_size_is_checked_again_after_conversion(self) -> None:
        batch = batch_of(300, codec=Codec.ZSTD)
        settings = LogSettings(compression_type="uncompressed", max_message_bytes=len(batch) + 100)
        assert rejected(batch, settings).code == ErrorCode.MESSAGE_TOO_LARGE

    def test_offset_deltas_are_renumbered(self) -> None:
        values = [Record(0, NOW, b"a", b"b", (("h", b"x"),)), Record(900, NOW + 1, b"c", None)]
        batch = patched(encode_batch(values, codec=Codec.GZIP), 23, ">i", 1)
        validated = accepted(batch, LogSettings(compression_type="zstd"))
        assert decode_batch(validated.buffer) == [values[0], values[1]._replace(offset=1)]

    def test_control_batches_stay_uncompressed(self) -> None:
        marker = end_transaction_marker(
            commit=False, producer_id=5, producer_epoch=1, coordinator_epoch=2, timestamp=NOW
        )
        validated = accepted(marker, LogSettings(compression_type="zstd"), origin=Origin.COORDINATOR)
        assert bytes(validated.buffer) == marker

    @pytest.mark.parametrize("codec", COMPRESSED)
    def test_records_that_do_not_decompress_are_invalid(self, codec: Codec) -> None:
        settings = LogSettings(compression_type="uncompressed")
        frame_start = b"\x04\x22\x4d\x18\x60" if codec == Codec.LZ4 else b""
        garbage = with_body(batch_of(codec=codec), frame_start + b"garbage that is no frame")
        assert rejected(garbage, settings).code == ErrorCode.INVALID_RECORD

    def test_a_decompression_bomb_is_too_large(self) -> None:
        bomb = with_body(batch_of(codec=Codec.ZSTD), bytes(compress(Codec.ZSTD, bytes(80 << 20))))
        assert len(bomb) < 10_000
        settings = LogSettings(compression_type="gzip")
        assert rejected(bomb, settings).code == ErrorCode.MESSAGE_TOO_LARGE

    def test_a_batch_with_too_many_records_to_decode_is_too_large(self) -> None:
        batch = patched(patched(batch_of(codec=Codec.ZSTD), 23, ">i", 9_999_999), 57, ">i", 10_000_000)
        assert rejected(batch, COMPACTED).code == ErrorCode.MESSAGE_TOO_LARGE
        assert accepted(batch, PLAIN)


class TestStructure:
    @pytest.mark.parametrize("settings", [PLAIN, COMPACTED], ids=["plain", "compacted"])
    @pytest.mark.parametrize("codec", EVERY_CODEC)
    def test_bytes_after_the_last_record_are_invalid(self, settings: LogSettings, codec: Codec) -> None:
        body = bytes(batch_of(1)[HEADER_SIZE:]) + b"xx"
        batch = with_body(batch_of(1, codec=codec), bytes(compress(codec, body)))
        if settings is PLAIN and codec != Codec.NONE:
            assert accepted(batch, settings), "the common path does not decompress"
        else:
            assert rejected(batch, settings).code == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize("count", [2, 4, 90])
    def test_a_count_other_than_the_number_of_records_is_invalid(self, count: int) -> None:
        batch = patched(patched(batch_of(3), 57, ">i", count), 23, ">i", count - 1)
        assert rejected(batch, COMPACTED).code == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize("at", range(HEADER_SIZE, HEADER_SIZE + 5))
    def test_a_record_whose_lengths_do_not_add_up_is_invalid(self, at: int) -> None:
        batch = patched(batch_of(1), at, ">b", 0x7E)
        if at in (HEADER_SIZE + 1, HEADER_SIZE + 2, HEADER_SIZE + 3):
            # Attributes and the two deltas may have any value.
            assert accepted(batch)
        else:
            assert rejected(batch).code == ErrorCode.INVALID_RECORD
