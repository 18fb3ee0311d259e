"""Which batches a leader accepts, and the error codes of the others. The codes were compared, case by case, with those
of Apache Kafka 4.3.1 for the same bytes; `log.validation` documents where they differ on purpose."""

from __future__ import annotations

import struct

import cramjam
import pytest
from msgspec.structs import replace

from strandline.log.settings import LogSettings
from strandline.log.validation import InvalidRecords, Origin, assign_offset, check_replicated, is_heavy, validate
from strandline.model.errors import ErrorCode
from strandline.records.batch import (
    HEADER_SIZE,
    Codec,
    Record,
    crc_ok,
    encode_batch,
    end_transaction_marker,
    read_header,
)
from unit.log.batches_to_validate import (
    APPEND_TIME,
    COMPACTED,
    EVERY_CODEC,
    NOW,
    PLAIN,
    accepted,
    batch_of,
    patched,
    rejected,
    with_body,
)


@pytest.mark.parametrize("codec", EVERY_CODEC)
@pytest.mark.parametrize("count", [1, 2, 3, 200])
def test_a_valid_batch_is_not_copied(codec: Codec, count: int) -> None:
    batch = batch_of(count, codec=codec)
    records = memoryview(bytearray(batch))
    validated = validate(records, PLAIN, wall_ms=NOW)
    assert validated.buffer.obj is records.obj
    assert bytes(validated.buffer) == batch
    assert validated.log_append_time == -1
    assert validated.header.record_count == count
    assert len(validated.buffer) == len(batch)


def test_assigning_an_offset_keeps_the_checksum_valid() -> None:
    batch = batch_of()
    validated = accepted(batch)
    assign_offset(validated, 1234567890123, 77)
    header = read_header(validated.buffer)
    assert (header.base_offset, header.partition_leader_epoch) == (1234567890123, 77)
    assert validated.buffer[16:] == memoryview(batch)[16:]
    assert validated.buffer[8:12] == memoryview(batch)[8:12]
    assert crc_ok(validated.buffer, 0, len(batch))


def test_a_read_only_buffer_is_copied() -> None:
    batch = bytes(batch_of())
    validated = validate(memoryview(batch), PLAIN, wall_ms=NOW)
    assign_offset(validated, 5, 1)
    assert read_header(batch).base_offset == 0
    assert read_header(validated.buffer).base_offset == 5


class TestExactlyOneBatch:
    def test_no_bytes_are_invalid(self) -> None:
        assert rejected(b"").code == ErrorCode.INVALID_RECORD

    def test_a_few_bytes_are_invalid(self) -> None:
        assert rejected(bytes(16)).code == ErrorCode.INVALID_RECORD

    def test_two_batches_are_invalid(self) -> None:
        assert rejected(batch_of() + batch_of()).code == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize("rest", [b"abc", bytes(batch_of()[:-1])])
    def test_an_incomplete_second_batch_is_ignored(self, rest: bytes) -> None:
        assert bytes(accepted(batch_of() + rest).buffer) == batch_of()

    def test_other_bytes_after_the_batch_are_corrupt(self) -> None:
        assert rejected(batch_of() + bytes(40)).code == ErrorCode.CORRUPT_MESSAGE

    def test_an_incomplete_batch_is_invalid(self) -> None:
        assert rejected(batch_of()[:-1]).code == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize(
        ("magic", "code"),
        [
            (0, ErrorCode.INVALID_RECORD),
            (1, ErrorCode.INVALID_RECORD),
            (3, ErrorCode.CORRUPT_MESSAGE),
            (-1, ErrorCode.CORRUPT_MESSAGE),
        ],
    )
    def test_other_message_formats_are_rejected(self, magic: int, code: ErrorCode) -> None:
        assert rejected(patched(batch_of(), 16, ">b", magic)).code == code


class TestHeader:
    @pytest.mark.parametrize("length", [-5, 0, 10, 13])
    def test_a_length_below_that_of_any_batch_is_corrupt(self, length: int) -> None:
        assert rejected(patched(batch_of(), 8, ">i", length)).code == ErrorCode.CORRUPT_MESSAGE

    def test_a_length_below_that_of_the_header_is_corrupt(self) -> None:
        assert rejected(patched(batch_of(), 8, ">i", 30)[:42]).code == ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize("version", [3, 6])
    def test_zstd_needs_version_7(self, version: int) -> None:
        batch = batch_of(codec=Codec.ZSTD)
        assert rejected(batch, api_version=version).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert accepted(batch, api_version=7)
        assert accepted(batch_of(codec=Codec.LZ4), api_version=version)

    @pytest.mark.parametrize("codec", [5, 6, 7])
    def test_an_unknown_codec_is_not_supported(self, codec: int) -> None:
        assert rejected(patched(batch_of(), 21, ">h", codec)).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    def test_the_base_offset_of_a_clients_batch_must_be_0(self) -> None:
        batch = patched(batch_of(), 0, ">q", 5)
        assert rejected(batch).code == ErrorCode.INVALID_RECORD
        assert accepted(batch, origin=Origin.COORDINATOR)

    def test_a_batch_over_max_message_bytes_is_too_large(self) -> None:
        batch = batch_of(50)
        assert accepted(batch, replace(PLAIN, max_message_bytes=len(batch)))
        assert rejected(batch, replace(PLAIN, max_message_bytes=len(batch) - 1)).code == ErrorCode.MESSAGE_TOO_LARGE

    @pytest.mark.parametrize("at", [17, 21, 30, 45, 60, 61, 75])
    def test_a_wrong_checksum_is_corrupt(self, at: int) -> None:
        batch = batch_of()
        batch[at] ^= 0x10
        assert rejected(batch).code == ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize(("last_offset_delta", "count"), [(2, 0), (2, -1), (-1, 3), (-1, 0), (7, 3), (2, 4)])
    def test_the_record_count_must_match_the_last_offset_delta(self, last_offset_delta: int, count: int) -> None:
        batch = patched(patched(batch_of(), 23, ">i", last_offset_delta), 57, ">i", count)
        assert rejected(batch).code == ErrorCode.INVALID_RECORD

    def test_control_records_of_clients_are_invalid(self) -> None:
        marker = end_transaction_marker(
            commit=True, producer_id=5, producer_epoch=1, coordinator_epoch=2, timestamp=NOW
        )
        assert rejected(marker).code == ErrorCode.INVALID_RECORD
        assert rejected(encode_batch([Record(0, NOW, b"k", b"v")], control=True)).code == ErrorCode.INVALID_RECORD
        assert bytes(accepted(marker, origin=Origin.COORDINATOR).buffer) == marker

    def test_a_producer_id_needs_a_sequence(self) -> None:
        values = [Record(0, NOW, b"k", b"v")]
        without = encode_batch(values, producer_id=5, producer_epoch=0)
        assert rejected(without).code == ErrorCode.INVALID_RECORD
        assert accepted(without, origin=Origin.COORDINATOR)
        validated = accepted(encode_batch(values, producer_id=5, producer_epoch=0, base_sequence=0))
        assert (validated.header.producer_id, validated.header.base_sequence) == (5, 0)

    def test_an_append_larger_than_a_segment_is_too_large(self) -> None:
        batch = batch_of(50)
        settings = replace(PLAIN, segment_bytes=len(batch) - 1)
        assert rejected(batch, settings).code == ErrorCode.RECORD_LIST_TOO_LARGE

    def test_linked_lz4_blocks_are_invalid(self) -> None:
        batch = with_body(batch_of(codec=Codec.LZ4), bytes(cramjam.lz4.compress(bytes(batch_of()[HEADER_SIZE:]))))
        assert rejected(batch).code == ErrorCode.INVALID_RECORD


class TestOrder:
    """Each batch is invalid in two ways; the check that comes first decides the error code."""

    def test_the_base_offset_is_checked_before_the_size(self) -> None:
        batch = patched(batch_of(), 0, ">q", 5)
        assert rejected(batch, replace(PLAIN, max_message_bytes=10)).code == ErrorCode.INVALID_RECORD

    def test_the_size_is_checked_before_the_checksum(self) -> None:
        batch = batch_of()
        batch[30] ^= 1
        assert rejected(batch, replace(PLAIN, max_message_bytes=10)).code == ErrorCode.MESSAGE_TOO_LARGE

    def test_the_checksum_is_checked_before_the_counts(self) -> None:
        batch = batch_of()
        struct.pack_into(">i", batch, 57, 9)
        assert rejected(batch).code == ErrorCode.CORRUPT_MESSAGE

    def test_the_records_are_checked_before_segment_bytes(self) -> None:
        batch = batch_of(keys=False)
        assert rejected(batch, replace(COMPACTED, segment_bytes=10)).code == ErrorCode.INVALID_RECORD


def test_whether_a_batch_is_heavy_is_known_before_validation() -> None:
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
    def test_whole_batches_keep_their_offsets(self) -> None:
        first = patched(batch_of(), 0, ">q", 40)
        second = patched(batch_of(2), 0, ">q", 50)
        found = check_replicated(memoryview(first + second + first[:30]))
        assert [(position, header.base_offset) for position, header in found] == [(0, 40), (len(first), 50)]

    def test_a_damaged_batch_is_corrupt(self) -> None:
        second = batch_of()
        second[70] ^= 1
        with pytest.raises(InvalidRecords) as raised:
            check_replicated(memoryview(batch_of() + second))
        assert raised.value.code == ErrorCode.CORRUPT_MESSAGE

    def test_bytes_without_a_batch_are_corrupt(self) -> None:
        with pytest.raises(InvalidRecords) as raised:
            check_replicated(memoryview(batch_of() + bytes(100)))
        assert raised.value.code == ErrorCode.CORRUPT_MESSAGE
