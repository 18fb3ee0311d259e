"""What a leader takes and what it answers to the rest. The codes were compared, case by case, with those that Apache
Kafka 4.3.1 gives for the same bytes; where they differ on purpose, `log.validation` says so."""

from __future__ import annotations

import struct

import cramjam
import pytest
from msgspec.structs import replace

from strandline.log.settings import LogSettings
from strandline.log.validation import Origin, RecordsRefused, Validated, assign, check_replicated, is_heavy, validate
from strandline.model.errors import ErrorCode
from strandline.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    Codec,
    Record,
    crc_ok,
    decode_batch,
    encode_batch,
    end_transaction_marker,
    read_header,
    write_crc,
)
from strandline.records.compression import compress, decompress

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


def refused(
    batch: bytes | bytearray, settings: LogSettings = PLAIN, *, origin: Origin = Origin.CLIENT, api_version: int = 13
) -> RecordsRefused:
    records = bytearray(batch)
    with pytest.raises(RecordsRefused) as refusal:
        validate(memoryview(records), settings, wall_ms=NOW, api_version=api_version, origin=origin)
    assert records == batch, "a refused batch was changed"
    assert refusal.value.why
    return refusal.value


@pytest.mark.parametrize("codec", EVERY_CODEC)
@pytest.mark.parametrize("count", [1, 2, 3, 200])
def test_a_good_batch_is_kept_where_it_lies(codec: Codec, count: int) -> None:
    batch = batch_of(count, codec=codec)
    records = memoryview(bytearray(batch))
    validated = validate(records, PLAIN, wall_ms=NOW)
    assert validated.buffer.obj is records.obj
    assert bytes(validated.buffer) == batch
    assert validated.log_append_time == -1
    assert validated.header.record_count == count
    assert validated.size_bytes == len(batch)


def test_assigning_changes_nothing_under_the_checksum() -> None:
    batch = batch_of()
    validated = accepted(batch)
    assign(validated, 1234567890123, 77)
    header = read_header(validated.buffer)
    assert (header.base_offset, header.partition_leader_epoch) == (1234567890123, 77)
    assert validated.buffer[16:] == memoryview(batch)[16:]
    assert validated.buffer[8:12] == memoryview(batch)[8:12]
    assert crc_ok(validated.buffer, 0, len(batch))


def test_records_that_cannot_be_written_are_copied() -> None:
    batch = bytes(batch_of())
    validated = validate(memoryview(batch), PLAIN, wall_ms=NOW)
    assign(validated, 5, 1)
    assert read_header(batch).base_offset == 0
    assert read_header(validated.buffer).base_offset == 5


class TestExactlyOneBatch:
    def test_no_bytes_are_no_batch(self) -> None:
        assert refused(b"").code == ErrorCode.INVALID_RECORD

    def test_a_few_bytes_are_no_batch(self) -> None:
        assert refused(bytes(16)).code == ErrorCode.INVALID_RECORD

    def test_two_batches_are_one_too_many(self) -> None:
        assert refused(batch_of() + batch_of()).code == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize("rest", [b"abc", bytes(batch_of()[:-1])])
    def test_a_cut_off_rest_is_ignored(self, rest: bytes) -> None:
        assert bytes(accepted(batch_of() + rest).buffer) == batch_of()

    def test_a_rest_that_is_no_batch_is_corrupt(self) -> None:
        assert refused(batch_of() + bytes(40)).code == ErrorCode.CORRUPT_MESSAGE

    def test_a_batch_that_is_longer_than_the_field_is_no_batch(self) -> None:
        assert refused(batch_of()[:-1]).code == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize(
        ("magic", "code"),
        [
            (0, ErrorCode.INVALID_RECORD),
            (1, ErrorCode.INVALID_RECORD),
            (3, ErrorCode.CORRUPT_MESSAGE),
            (-1, ErrorCode.CORRUPT_MESSAGE),
        ],
    )
    def test_other_formats_are_not_taken(self, magic: int, code: ErrorCode) -> None:
        assert refused(patched(batch_of(), 16, ">b", magic)).code == code


class TestHeader:
    @pytest.mark.parametrize("length", [-5, 0, 10, 13])
    def test_a_length_below_any_batch_is_corrupt(self, length: int) -> None:
        assert refused(patched(batch_of(), 8, ">i", length)).code == ErrorCode.CORRUPT_MESSAGE

    def test_a_length_below_the_header_is_corrupt(self) -> None:
        assert refused(patched(batch_of(), 8, ">i", 30)[:42]).code == ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize("version", [3, 6])
    def test_zstd_needs_version_7(self, version: int) -> None:
        batch = batch_of(codec=Codec.ZSTD)
        assert refused(batch, api_version=version).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert accepted(batch, api_version=7)
        assert accepted(batch_of(codec=Codec.LZ4), api_version=version)

    @pytest.mark.parametrize("codec", [5, 6, 7])
    def test_an_unknown_codec_is_not_supported(self, codec: int) -> None:
        assert refused(patched(batch_of(), 21, ">h", codec)).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    def test_a_client_starts_at_offset_0(self) -> None:
        batch = patched(batch_of(), 0, ">q", 5)
        assert refused(batch).code == ErrorCode.INVALID_RECORD
        assert accepted(batch, origin=Origin.COORDINATOR)

    def test_a_batch_over_max_message_bytes_is_too_large(self) -> None:
        batch = batch_of(50)
        assert accepted(batch, replace(PLAIN, max_message_bytes=len(batch)))
        assert refused(batch, replace(PLAIN, max_message_bytes=len(batch) - 1)).code == ErrorCode.MESSAGE_TOO_LARGE

    @pytest.mark.parametrize("at", [17, 21, 30, 45, 60, 61, 75])
    def test_a_wrong_checksum_is_corrupt(self, at: int) -> None:
        batch = batch_of()
        batch[at] ^= 0x10
        assert refused(batch).code == ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize(("last_offset_delta", "count"), [(2, 0), (2, -1), (-1, 3), (-1, 0), (7, 3), (2, 4)])
    def test_count_and_last_offset_belong_together(self, last_offset_delta: int, count: int) -> None:
        batch = patched(patched(batch_of(), 23, ">i", last_offset_delta), 57, ">i", count)
        assert refused(batch).code == ErrorCode.INVALID_RECORD

    def test_clients_write_no_control_records(self) -> None:
        marker = end_transaction_marker(
            commit=True, producer_id=5, producer_epoch=1, coordinator_epoch=2, timestamp=NOW
        )
        assert refused(marker).code == ErrorCode.INVALID_RECORD
        assert refused(encode_batch([Record(0, NOW, b"k", b"v")], control=True)).code == ErrorCode.INVALID_RECORD
        assert bytes(accepted(marker, origin=Origin.COORDINATOR).buffer) == marker

    def test_a_producer_id_needs_a_sequence(self) -> None:
        values = [Record(0, NOW, b"k", b"v")]
        without = encode_batch(values, producer_id=5, producer_epoch=0)
        assert refused(without).code == ErrorCode.INVALID_RECORD
        assert accepted(without, origin=Origin.COORDINATOR)
        validated = accepted(encode_batch(values, producer_id=5, producer_epoch=0, base_sequence=0))
        assert (validated.header.producer_id, validated.header.base_sequence) == (5, 0)

    def test_an_append_larger_than_a_segment_is_too_large(self) -> None:
        batch = batch_of(50)
        settings = replace(PLAIN, segment_bytes=len(batch) - 1)
        assert refused(batch, settings).code == ErrorCode.RECORD_LIST_TOO_LARGE

    def test_linked_lz4_blocks_are_not_taken(self) -> None:
        batch = with_body(batch_of(codec=Codec.LZ4), bytes(cramjam.lz4.compress(bytes(batch_of()[HEADER_SIZE:]))))
        assert refused(batch).code == ErrorCode.INVALID_RECORD


class TestOrder:
    """Each batch is wrong in two ways; the earlier one is the answer."""

    def test_the_base_offset_comes_before_the_size(self) -> None:
        batch = patched(batch_of(), 0, ">q", 5)
        assert refused(batch, replace(PLAIN, max_message_bytes=10)).code == ErrorCode.INVALID_RECORD

    def test_the_size_comes_before_the_checksum(self) -> None:
        batch = batch_of()
        batch[30] ^= 1
        assert refused(batch, replace(PLAIN, max_message_bytes=10)).code == ErrorCode.MESSAGE_TOO_LARGE

    def test_the_checksum_comes_before_the_counts(self) -> None:
        batch = batch_of()
        struct.pack_into(">i", batch, 57, 9)
        assert refused(batch).code == ErrorCode.CORRUPT_MESSAGE

    def test_the_records_come_before_the_segment(self) -> None:
        batch = batch_of(keys=False)
        assert refused(batch, replace(COMPACTED, segment_bytes=10)).code == ErrorCode.INVALID_RECORD


class TestKeys:
    @pytest.mark.parametrize("codec", EVERY_CODEC)
    @pytest.mark.parametrize("count", [1, 5, 300])
    def test_a_compacted_topic_names_the_records_without_a_key(self, codec: Codec, count: int) -> None:
        values = [Record(-1, NOW, None if n % 2 == 0 else b"k", b"v") for n in range(count)]
        refusal = refused(encode_batch(values, codec=codec), COMPACTED)
        assert refusal.code == ErrorCode.INVALID_RECORD
        assert [index for index, _ in refusal.record_errors] == list(range(0, count, 2))
        assert all(why for _, why in refusal.record_errors)

    @pytest.mark.parametrize("codec", EVERY_CODEC)
    def test_an_empty_key_is_a_key(self, codec: Codec) -> None:
        assert accepted(encode_batch([Record(0, NOW, b"", b"v")], codec=codec), COMPACTED)

    @pytest.mark.parametrize("codec", EVERY_CODEC)
    @pytest.mark.parametrize("count", [1, 5, 300])
    def test_with_keys_the_batch_is_kept_as_it_is(self, codec: Codec, count: int) -> None:
        batch = batch_of(count, codec=codec)
        assert bytes(accepted(batch, COMPACTED).buffer) == batch

    @pytest.mark.parametrize("codec", COMPRESSED)
    def test_compressed_offset_deltas_must_be_consecutive(self, codec: Codec) -> None:
        batch = encode_batch([Record(0, NOW, b"a"), Record(2, NOW, b"b")], codec=codec)
        assert refused(patched(batch, 23, ">i", 1), COMPACTED).code == ErrorCode.INVALID_RECORD


class TestCreateTime:
    @pytest.mark.parametrize("codec", EVERY_CODEC)
    @pytest.mark.parametrize("count", [1, 5, 300])
    def test_records_too_far_in_the_future_are_named(self, codec: Codec, count: int) -> None:
        batch = batch_of(count, first=NOW + HOUR, codec=codec)
        if count == 1:
            assert accepted(batch)
            batch = batch_of(1, first=NOW + HOUR + 1, codec=codec)
        refusal = refused(batch)
        assert refusal.code == ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in refusal.record_errors] == list(range(0 if count == 1 else 1, count))

    @pytest.mark.parametrize("codec", EVERY_CODEC)
    def test_records_too_old_are_named(self, codec: Codec) -> None:
        settings = replace(PLAIN, message_timestamp_before_max_ms=1000)
        values = [Record(-1, NOW - 1001, b"k"), Record(-1, NOW - 1000, b"k"), Record(-1, NOW - 5000, b"k")]
        refusal = refused(encode_batch(values, codec=codec), settings)
        assert refusal.code == ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in refusal.record_errors] == [0, 2]

    def test_records_without_a_timestamp_are_taken(self) -> None:
        settings = replace(PLAIN, message_timestamp_before_max_ms=1000)
        assert accepted(encode_batch([Record(-1, -1, b"k", b"v")] * 3), settings)

    def test_a_missing_key_is_named_before_a_wrong_timestamp_and_the_timestamp_gives_the_code(self) -> None:
        values = [Record(0, NOW, None), Record(1, NOW + 2 * HOUR, b"k"), Record(2, NOW + 2 * HOUR, None)]
        refusal = refused(encode_batch(values), COMPACTED)
        assert refusal.code == ErrorCode.INVALID_TIMESTAMP
        (first, about_key), (second, about_time), (third, about_key_too) = refusal.record_errors
        assert (first, second, third) == (0, 1, 2)
        assert about_key == about_key_too != about_time

    @pytest.mark.parametrize("codec", EVERY_CODEC)
    def test_a_header_that_overstates_the_largest_timestamp_is_corrected(self, codec: Codec) -> None:
        batch = batch_of(5, codec=codec)
        validated = accepted(patched(batch, 35, ">q", NOW + 10 * HOUR))
        assert bytes(validated.buffer) == batch

    @pytest.mark.parametrize("codec", EVERY_CODEC)
    def test_a_batch_flagged_with_append_time_loses_the_flag(self, codec: Codec) -> None:
        batch = batch_of(5, codec=codec)
        validated = accepted(patched(batch, 21, ">h", LOG_APPEND_TIME | codec))
        assert bytes(validated.buffer) == batch
        assert validated.log_append_time == -1

    def test_a_flagged_batch_without_a_time_is_refused(self) -> None:
        batch = patched(encode_batch([Record(0, -1, b"k")]), 21, ">h", LOG_APPEND_TIME)
        assert refused(batch).code == ErrorCode.INVALID_TIMESTAMP


class TestLogAppendTime:
    @pytest.mark.parametrize("codec", EVERY_CODEC)
    @pytest.mark.parametrize("count", [1, 5, 300])
    @pytest.mark.parametrize("settings", [APPEND_TIME, replace(APPEND_TIME, cleanup_compact=True)])
    def test_the_batch_is_stamped_and_its_records_are_not_touched(
        self, codec: Codec, count: int, settings: LogSettings
    ) -> None:
        batch = batch_of(count, first=5, codec=codec)
        validated = accepted(batch, settings)
        assert validated.log_append_time == NOW
        assert validated.header.is_log_append_time
        assert validated.header.max_timestamp == NOW
        assert validated.header.base_timestamp == 5
        assert validated.buffer[HEADER_SIZE:] == memoryview(batch)[HEADER_SIZE:]
        assert {record.timestamp for record in decode_batch(validated.buffer)} == {NOW}

    def test_any_timestamp_of_the_producer_is_taken(self) -> None:
        assert accepted(batch_of(first=NOW + 1000 * HOUR), APPEND_TIME)

    def test_a_batch_flagged_by_the_producer_is_refused_with_all_its_records(self) -> None:
        refusal = refused(patched(batch_of(4), 21, ">h", LOG_APPEND_TIME), APPEND_TIME)
        assert refusal.code == ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in refusal.record_errors] == [0, 1, 2, 3]


NAMES = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


class TestConversion:
    @pytest.mark.parametrize("source", EVERY_CODEC)
    @pytest.mark.parametrize("target", list(NAMES))
    @pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
    def test_every_codec_becomes_every_other(self, source: Codec, target: str, kind: str) -> None:
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
    def test_levels_are_obeyed(self, name: str, low: dict[str, int], high: dict[str, int]) -> None:
        values = [Record(-1, NOW, b"k%d" % n, b"%d bottles of beer " % n * 20) for n in range(500)]
        batch = encode_batch(values)
        sizes = [len(accepted(batch, replace(PLAIN, compression_type=name, **levels)).buffer) for levels in (low, high)]
        assert sizes[1] < sizes[0]

    def test_the_size_is_checked_again_after_conversion(self) -> None:
        batch = batch_of(300, codec=Codec.ZSTD)
        settings = LogSettings(compression_type="uncompressed", max_message_bytes=len(batch) + 100)
        assert refused(batch, settings).code == ErrorCode.MESSAGE_TOO_LARGE

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
        assert refused(garbage, settings).code == ErrorCode.INVALID_RECORD

    def test_a_bomb_is_too_large(self) -> None:
        bomb = with_body(batch_of(codec=Codec.ZSTD), bytes(compress(Codec.ZSTD, bytes(80 << 20))))
        assert len(bomb) < 10_000
        settings = LogSettings(compression_type="gzip")
        assert refused(bomb, settings).code == ErrorCode.MESSAGE_TOO_LARGE

    def test_more_records_than_can_be_looked_into_are_too_large(self) -> None:
        batch = patched(patched(batch_of(codec=Codec.ZSTD), 23, ">i", 9_999_999), 57, ">i", 10_000_000)
        assert refused(batch, COMPACTED).code == ErrorCode.MESSAGE_TOO_LARGE
        assert accepted(batch, PLAIN)


class TestStructure:
    @pytest.mark.parametrize("settings", [PLAIN, COMPACTED], ids=["plain", "compacted"])
    @pytest.mark.parametrize("codec", EVERY_CODEC)
    def test_bytes_behind_the_last_record_are_invalid(self, settings: LogSettings, codec: Codec) -> None:
        body = bytes(batch_of(1)[HEADER_SIZE:]) + b"xx"
        batch = with_body(batch_of(1, codec=codec), bytes(compress(codec, body)))
        if settings is PLAIN and codec != Codec.NONE:
            assert accepted(batch, settings), "the common path does not decompress"
        else:
            assert refused(batch, settings).code == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize("count", [2, 4, 90])
    def test_a_count_other_than_the_number_of_records_is_invalid(self, count: int) -> None:
        batch = patched(patched(batch_of(3), 57, ">i", count), 23, ">i", count - 1)
        assert refused(batch, COMPACTED).code == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize("at", range(HEADER_SIZE, HEADER_SIZE + 5))
    def test_a_record_whose_lengths_do_not_add_up_is_invalid(self, at: int) -> None:
        batch = patched(batch_of(1), at, ">b", 0x7E)
        if at in (HEADER_SIZE + 1, HEADER_SIZE + 2, HEADER_SIZE + 3):
            # Attributes and the two deltas hold any number.
            assert accepted(batch)
        else:
            assert refused(batch).code == ErrorCode.INVALID_RECORD


def test_heavy_work_is_known_before_it_is_done() -> None:
    small, large = memoryview(batch_of(3)), memoryview(batch_of(5000))
    packed = memoryview(batch_of(3, codec=Codec.ZSTD))
    assert not is_heavy(small, PLAIN, NOW)
    assert not is_heavy(large, PLAIN, NOW)
    assert not is_heavy(packed, PLAIN, NOW)
    assert not is_heavy(large, APPEND_TIME, NOW)
    assert not is_heavy(small, COMPACTED, NOW)
    assert is_heavy(large, COMPACTED, NOW)
    assert is_heavy(packed, COMPACTED, NOW)
    to_gzip = LogSettings(compression_type="gzip")
    assert is_heavy(packed, to_gzip, NOW)
    assert is_heavy(large, to_gzip, NOW)
    assert not is_heavy(small, to_gzip, NOW)
    assert not is_heavy(memoryview(b""), to_gzip, NOW)
    assert not is_heavy(packed, LogSettings(compression_type="zstd"), NOW)
    assert not is_heavy(packed, LogSettings(message_timestamp_after_max_ms=1000), NOW)
    assert is_heavy(packed, PLAIN, NOW - 10 * 3600 * 1000), "records from the future are looked at one by one"
    assert is_heavy(memoryview(patched(bytearray(packed), 21, ">h", 0x0C)), PLAIN, NOW), "so are those with a stamp"


class TestReplication:
    def test_whole_batches_are_taken_with_their_offsets(self) -> None:
        first = patched(batch_of(), 0, ">q", 40)
        second = patched(batch_of(2), 0, ">q", 50)
        found = check_replicated(memoryview(first + second + first[:30]))
        assert [(position, header.base_offset) for position, header in found] == [(0, 40), (len(first), 50)]

    def test_a_damaged_batch_is_corrupt(self) -> None:
        second = batch_of()
        second[70] ^= 1
        with pytest.raises(RecordsRefused) as refusal:
            check_replicated(memoryview(batch_of() + second))
        assert refusal.value.code == ErrorCode.CORRUPT_MESSAGE

    def test_bytes_that_are_no_batch_are_corrupt(self) -> None:
        with pytest.raises(RecordsRefused) as refusal:
            check_replicated(memoryview(batch_of() + bytes(100)))
        assert refusal.value.code == ErrorCode.CORRUPT_MESSAGE
