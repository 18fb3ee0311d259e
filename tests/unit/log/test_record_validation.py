"""Validation of the records in a batch: keys and timestamps."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from strandline.log.settings import LogSettings
from strandline.model.errors import ErrorCode
from strandline.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    Codec,
    CorruptBatch,
    Record,
    decode_batch,
    encode_batch,
)
from strandline.records.record_spans import read_spans
from unit.log.batches_to_validate import (
    APPEND_TIME,
    COMPACTED,
    COMPRESSED,
    EVERY_CODEC,
    HOUR,
    NOW,
    PLAIN,
    accepted,
    batch_of,
    patched,
    rejected,
    with_body,
)


class TestSingleRecord:
    """A batch of one record is parsed on a shorter path than others, with the same result."""

    LENGTHS = (None, 0, 1, 62, 63, 64, 65, 127, 128, 8190, 8191, 8192, 9000)

    @pytest.mark.parametrize("key", LENGTHS)
    @pytest.mark.parametrize("value", LENGTHS)
    def test_a_record_of_any_length_is_valid(self, key: int | None, value: int | None) -> None:
        record = Record(0, NOW, None if key is None else b"k" * key, None if value is None else b"v" * value)
        assert accepted(encode_batch([record]))

    def test_a_record_whose_fields_do_not_fill_it_is_rejected(self) -> None:
        drawn = random.Random(61)
        verdicts = {True: 0, False: 0}
        for _ in range(3_000):
            key = None if drawn.random() < 0.5 else b"k" * drawn.choice((0, 3, 64, 200))
            whole = encode_batch([Record(0, NOW, key, b"v" * drawn.choice((0, 3, 64, 200)))])
            body = whole[HEADER_SIZE:]
            for _ in range(drawn.randint(1, 3)):
                at = drawn.choice((0, 1, 2, 3, 4, 5, 6, len(body) - 1, drawn.randrange(len(body))))
                body[at] = drawn.choice((body[at] ^ 1, body[at] ^ 128, 0, 1, 2, 3, 127, 128, 255, drawn.randrange(256)))
            batch = with_body(whole, bytes(body[: len(body) - drawn.choice((0, 0, 0, 1))]))
            sound = _fills(batch)
            verdicts[sound] += 1
            if sound:
                accepted(batch)
            else:
                assert rejected(batch).code == ErrorCode.INVALID_RECORD
        assert min(verdicts.values()) > 500


def _fills(batch: bytearray) -> bool:
    try:
        read_spans(batch, HEADER_SIZE, len(batch), 1)
    except CorruptBatch:
        return False
    return True


class TestKeys:
    @pytest.mark.parametrize("codec", EVERY_CODEC)
    @pytest.mark.parametrize("count", [1, 5, 300])
    def test_records_without_a_key_are_reported_on_a_compacted_topic(self, codec: Codec, count: int) -> None:
        values = [Record(-1, NOW, None if n % 2 == 0 else b"k", b"v") for n in range(count)]
        raised = rejected(encode_batch(values, codec=codec), COMPACTED)
        assert raised.code == ErrorCode.INVALID_RECORD
        assert [index for index, _ in raised.record_errors] == list(range(0, count, 2))
        assert all(why for _, why in raised.record_errors)

    @pytest.mark.parametrize("codec", EVERY_CODEC)
    def test_an_empty_key_is_a_key(self, codec: Codec) -> None:
        assert accepted(encode_batch([Record(0, NOW, b"", b"v")], codec=codec), COMPACTED)

    @pytest.mark.parametrize("codec", EVERY_CODEC)
    @pytest.mark.parametrize("count", [1, 5, 300])
    def test_a_batch_with_keys_is_unchanged(self, codec: Codec, count: int) -> None:
        batch = batch_of(count, codec=codec)
        assert bytes(accepted(batch, COMPACTED).buffer) == batch

    @pytest.mark.parametrize("codec", COMPRESSED)
    def test_compressed_offset_deltas_must_be_consecutive(self, codec: Codec) -> None:
        batch = encode_batch([Record(0, NOW, b"a"), Record(2, NOW, b"b")], codec=codec)
        assert rejected(patched(batch, 23, ">i", 1), COMPACTED).code == ErrorCode.INVALID_RECORD


class TestCreateTime:
    @pytest.mark.parametrize("codec", EVERY_CODEC)
    @pytest.mark.parametrize("count", [1, 5, 300])
    def test_records_too_far_in_the_future_are_reported(self, codec: Codec, count: int) -> None:
        batch = batch_of(count, first=NOW + HOUR, codec=codec)
        if count == 1:
            assert accepted(batch)
            batch = batch_of(1, first=NOW + HOUR + 1, codec=codec)
        raised = rejected(batch)
        assert raised.code == ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in raised.record_errors] == list(range(0 if count == 1 else 1, count))

    @pytest.mark.parametrize("codec", EVERY_CODEC)
    def test_records_too_old_are_reported(self, codec: Codec) -> None:
        settings = replace(PLAIN, message_timestamp_before_max_ms=1000)
        values = [Record(-1, NOW - 1001, b"k"), Record(-1, NOW - 1000, b"k"), Record(-1, NOW - 5000, b"k")]
        raised = rejected(encode_batch(values, codec=codec), settings)
        assert raised.code == ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in raised.record_errors] == [0, 2]

    def test_records_without_a_timestamp_are_valid(self) -> None:
        settings = replace(PLAIN, message_timestamp_before_max_ms=1000)
        assert accepted(encode_batch([Record(-1, -1, b"k", b"v")] * 3), settings)

    def test_a_missing_key_is_reported_before_an_invalid_timestamp_which_decides_the_error_code(self) -> None:
        values = [Record(0, NOW, None), Record(1, NOW + 2 * HOUR, b"k"), Record(2, NOW + 2 * HOUR, None)]
        raised = rejected(encode_batch(values), COMPACTED)
        assert raised.code == ErrorCode.INVALID_TIMESTAMP
        (first, about_key), (second, about_time), (third, about_key_too) = raised.record_errors
        assert (first, second, third) == (0, 1, 2)
        assert about_key == about_key_too != about_time

    @pytest.mark.parametrize("codec", EVERY_CODEC)
    def test_a_header_that_overstates_the_largest_timestamp_is_corrected(self, codec: Codec) -> None:
        batch = batch_of(5, codec=codec)
        validated = accepted(patched(batch, 35, ">q", NOW + 10 * HOUR))
        assert bytes(validated.buffer) == batch

    @pytest.mark.parametrize("codec", EVERY_CODEC)
    def test_a_batch_flagged_with_log_append_time_loses_the_flag(self, codec: Codec) -> None:
        batch = batch_of(5, codec=codec)
        validated = accepted(patched(batch, 21, ">h", LOG_APPEND_TIME | codec))
        assert bytes(validated.buffer) == batch
        assert validated.log_append_time == -1

    def test_a_flagged_batch_without_a_timestamp_is_rejected(self) -> None:
        batch = patched(encode_batch([Record(0, -1, b"k")]), 21, ">h", LOG_APPEND_TIME)
        assert rejected(batch).code == ErrorCode.INVALID_TIMESTAMP


class TestLogAppendTime:
    @pytest.mark.parametrize("codec", EVERY_CODEC)
    @pytest.mark.parametrize("count", [1, 5, 300])
    @pytest.mark.parametrize("settings", [APPEND_TIME, replace(APPEND_TIME, cleanup_compact=True)])
    def test_the_header_gets_the_append_time_and_the_records_are_unchanged(
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

    def test_any_timestamp_of_the_producer_is_valid(self) -> None:
        assert accepted(batch_of(first=NOW + 1000 * HOUR), APPEND_TIME)

    def test_a_batch_flagged_by_the_producer_is_rejected_with_all_its_records(self) -> None:
        raised = rejected(patched(batch_of(4), 21, ">h", LOG_APPEND_TIME), APPEND_TIME)
        assert raised.code == ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in raised.record_errors] == [0, 1, 2, 3]
