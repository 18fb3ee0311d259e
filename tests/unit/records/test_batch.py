from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Codec,
    ControlType,
    CorruptBatch,
    DecompressionLimit,
    Record,
    batches,
    control_record_type,
    crc_ok,
    decode_batch,
    encode_batch,
    end_transaction_marker,
    read_header,
)
from strandline.records.checksum import crc32c
from strandline.records.columns import decode_columns

NOW = 1_700_000_000_000

optional_bytes = st.none() | st.binary(max_size=40)
records = st.lists(
    st.builds(
        lambda timestamp, key, value, headers: Record(-1, timestamp, key, value, tuple(headers)),
        st.integers(0, 1 << 50),
        optional_bytes,
        optional_bytes,
        st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=3),
    ),
    max_size=90,
)


def numbered(values: list[Record], base_offset: int = 0) -> list[Record]:
    return [record._replace(offset=base_offset + index) for index, record in enumerate(values)]


def test_the_checksum_is_crc32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_a_batch_of_one_record_is_encoded_as_in_kafka() -> None:
    batch = encode_batch([Record(0, NOW, b"k", b"v")])
    assert batch.hex() == (
        "00000000000000000000003affffffff02e99b8dd80000000000000000018bcfe568000000018bcfe56800"
        "ffffffffffffffffffffffffffff0000000110000000026b027600"
    )


def test_a_commit_marker_is_encoded_as_in_kafka() -> None:
    marker = end_transaction_marker(
        commit=True,
        producer_id=1000,
        producer_epoch=2,
        coordinator_epoch=5,
        timestamp=NOW,
        base_offset=42,
        leader_epoch=7,
    )
    assert marker.hex() == (
        "000000000000002a000000420000000702a7d9b82a0030000000000000018bcfe568000000018bcfe568"
        "0000000000000003e80002ffffffff000000012000000008000000010c00000000000500"
    )
    [record] = decode_batch(marker)
    assert control_record_type(record.key) == ControlType.COMMIT
    header = read_header(marker)
    assert header.is_control
    assert header.is_transactional


def test_all_fields_of_the_header_are_read() -> None:
    batch = encode_batch(
        [Record(-1, NOW, b"a"), Record(-1, NOW + 5), Record(-1, NOW + 3)],
        base_offset=10,
        codec=Codec.GZIP,
        leader_epoch=4,
        producer_id=7,
        producer_epoch=1,
        base_sequence=2147483646,
        transactional=True,
    )
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (10, 12, 13)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 5)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 2147483646)
    assert header.last_sequence == 0
    assert header.size_bytes == len(batch)
    assert (header.codec, header.partition_leader_epoch, header.record_count) == (Codec.GZIP, 4, 3)
    assert header.attributes == Codec.GZIP | TRANSACTIONAL
    assert not header.is_control
    assert not header.has_delete_horizon


def test_a_batch_without_a_sequence_has_no_last_sequence() -> None:
    assert read_header(encode_batch([Record(0, NOW), Record(1, NOW)])).last_sequence == -1


def test_log_append_time_is_the_timestamp_of_every_record() -> None:
    batch = encode_batch([Record(-1, 5), Record(-1, 6)], log_append_time=NOW)
    assert read_header(batch).attributes == LOG_APPEND_TIME
    assert [record.timestamp for record in decode_batch(batch)] == [NOW, NOW]


def test_with_a_delete_horizon_timestamps_are_relative_to_it() -> None:
    batch = encode_batch([Record(0, NOW), Record(1, NOW + 1)])
    struct.pack_into(">h", batch, 21, DELETE_HORIZON)
    struct.pack_into(">q", batch, 27, NOW + 100)
    assert read_header(batch).has_delete_horizon
    assert [record.timestamp for record in decode_batch(batch)] == [NOW + 100, NOW + 101]


def test_gaps_between_offsets_are_kept() -> None:
    batch = encode_batch([Record(12, NOW, b"a"), Record(17, NOW, b"b")], base_offset=10)
    assert read_header(batch).last_offset == 17
    assert [record.offset for record in decode_batch(batch)] == [12, 17]


def test_a_batch_may_be_empty() -> None:
    batch = encode_batch([], base_offset=5, producer_id=3, producer_epoch=0, base_sequence=9)
    header = read_header(batch)
    assert (header.last_offset, header.record_count, len(batch)) == (5, 0, HEADER_SIZE)
    assert decode_batch(batch) == []


@given(records, st.sampled_from(list(Codec)), st.integers(0, 1 << 60))
def test_records_survive_the_round_trip_through_every_codec(values: list[Record], codec: Codec, base: int) -> None:
    batch = encode_batch(values, base_offset=base, codec=codec)
    assert crc_ok(batch, 0, len(batch))
    assert decode_batch(batch) == numbered(values, base)


def test_timestamps_may_decrease_and_have_all_64_bits() -> None:
    values = [Record(0, NOW), Record(1, 0), Record(2, (1 << 63) - 1), Record(3, -1)]
    assert [record.timestamp for record in decode_batch(encode_batch(values))] == [NOW, 0, (1 << 63) - 1, -1]


def test_headers_may_repeat_be_empty_and_have_no_value() -> None:
    value = Record(0, NOW, b"", b"", (("a", b"1"), ("a", None), ("", b""), ("ü€", b"\xff")))
    assert decode_batch(encode_batch([value])) == [value]


def test_a_header_name_that_is_not_utf_8_is_decoded_with_replacement_characters() -> None:
    batch = encode_batch([Record(0, NOW, None, None, (("ab", b""),))])
    position = batch.index(b"ab")
    batch[position : position + 2] = b"\xff\xfe"
    assert decode_batch(batch)[0].headers == (("\ufffd\ufffd", b""),)


def test_an_incomplete_batch_at_the_end_is_left_out() -> None:
    first = encode_batch([Record(0, NOW, b"a")])
    second = encode_batch([Record(1, NOW, b"b")], base_offset=1)
    for missing in range(1, len(second)):
        found = list(batches(first + second[:-missing]))
        assert [(position, header.base_offset) for position, header in found] == [(0, 0)]
    assert [position for position, _ in batches(first + second)] == [0, len(first)]
    assert [header.base_offset for _, header in batches(memoryview(first + second), len(first))] == [1]


def test_the_checksum_covers_every_byte_from_the_attributes_on() -> None:
    batch = encode_batch([Record(0, NOW, b"key", b"value")])
    for position in range(len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 0x40
        covered = position >= 17
        assert crc_ok(damaged, 0, len(damaged)) is not covered
    batch[0:8] = struct.pack(">q", 99)
    batch[12:16] = struct.pack(">i", 3)
    assert crc_ok(batch, 0, len(batch))


def test_the_checksum_of_an_incomplete_batch_is_wrong() -> None:
    batch = encode_batch([Record(0, NOW)])
    assert not crc_ok(batch, 0, len(batch) + 1)
    assert not crc_ok(batch, 1, len(batch))
    assert not crc_ok(batch, -1, len(batch))
    assert not crc_ok(batch[:20], 0, 20)


@pytest.mark.parametrize(
    ("at", "layout", "value"),
    [(16, ">b", 1), (16, ">b", 3), (8, ">i", 48), (8, ">i", -1), (23, ">i", -1), (57, ">i", -1)],
)
def test_a_header_with_an_impossible_value_is_corrupt(at: int, layout: str, value: int) -> None:
    batch = encode_batch([Record(0, NOW)])
    struct.pack_into(layout, batch, at, value)
    with pytest.raises(CorruptBatch):
        read_header(batch)


@pytest.mark.parametrize("count", [0, 1, 3, 1 << 30])
def test_a_wrong_record_count_is_corrupt(count: int) -> None:
    batch = encode_batch([Record(0, NOW, b"a", b"b"), Record(1, NOW, b"c", b"d")])
    struct.pack_into(">i", batch, 57, count)
    with pytest.raises(CorruptBatch):
        decode_batch(batch)


def test_the_callers_decompression_limit_is_used() -> None:
    batch = encode_batch([Record(0, NOW, None, bytes(10_000))], codec=Codec.ZSTD)
    with pytest.raises(DecompressionLimit):
        decode_batch(batch, limit_bytes=9_999)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_control_record_without_a_type_is_corrupt(key: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        control_record_type(key)


def test_an_unknown_control_type_is_returned_as_a_number() -> None:
    batch = encode_batch([Record(0, NOW, struct.pack(">hh", 0, 99))], control=True)
    assert read_header(batch).attributes == CONTROL
    assert control_record_type(decode_batch(batch)[0].key) == 99


Outcome = list[tuple[int, int, bytes | None, bytes | None]] | None


def by_records(buffer: bytes) -> Outcome:
    try:
        return [record[:4] for record in decode_batch(buffer, limit_bytes=1 << 20)]
    except CorruptBatch:
        return None


def by_columns(buffer: bytes) -> Outcome:
    try:
        columns = decode_columns(buffer, [(0, read_header(buffer))], limit_bytes=1 << 20)
    except CorruptBatch:
        return None
    return [
        (int(columns.offset[row]), int(columns.timestamp[row]), columns.key(row), columns.value(row))
        for row in range(len(columns))
    ]


@given(records, st.sampled_from(list(Codec)), st.data())
def test_both_readers_agree_on_mutated_batches(values: list[Record], codec: Codec, data: st.DataObject) -> None:
    batch = encode_batch(values, codec=codec)
    for _ in range(data.draw(st.integers(1, 5))):
        position = data.draw(st.integers(0, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        batch = batch[: data.draw(st.integers(0, len(batch)))]
    assert by_records(bytes(batch)) == by_columns(bytes(batch))


@given(st.binary(max_size=300))
def test_both_readers_agree_on_any_bytes(data: bytes) -> None:
    header = encode_batch([Record(0, NOW)] * 3)[:HEADER_SIZE]
    struct.pack_into(">i", header, 8, HEADER_SIZE - 12 + len(data))
    for buffer in (data, bytes(header + data)):
        assert by_records(buffer) == by_columns(buffer)
