from __future__ import annotations

import pytest

from strandline.client.core.accumulator import Accumulator, Batch, ProducerId
from strandline.client.settings import ProducerSettings
from strandline.model.errors import ErrorCode
from strandline.model.ids import TopicPartition
from strandline.records.batch import Record, decode_batch, read_header

PARTITION = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def accumulator(**settings: object) -> Accumulator:
    made = Accumulator(ProducerSettings(**{"linger_ms": 10, "batch_bytes": 300, **settings}))  # type: ignore[arg-type]
    made.producer = ProducerId(7, 0)
    return made


def fill(buffer: Accumulator, *values: bytes, partition: TopicPartition = PARTITION, now_ms: int = 0) -> bool:
    return [buffer.append(partition, Record(-1, 0, None, value), value, now_ms) for value in values][-1]


def take_all(buffer: Accumulator, now_ms: int, partition: TopicPartition = PARTITION) -> list[Batch]:
    taken = []
    while (batch := buffer.take(partition, now_ms)) is not None:
        taken.append(batch)
    return taken


def introduce(buffer: Accumulator) -> None:
    """The broker of the partition has a first record of this producer."""
    fill(buffer, b"first")
    (first,) = take_all(buffer, 100)
    buffer.on_appended(first)


def values(batch: Batch) -> list[bytes | None]:
    assert batch.encoded is not None
    return [record.value for record in decode_batch(batch.encoded)]


def test_records_linger_to_share_a_batch() -> None:
    buffer = accumulator()
    assert not fill(buffer, b"a", b"b", now_ms=100)
    assert buffer.ready(109) == []
    assert buffer.next_ready_ms(100) == 110
    assert buffer.ready(110) == [PARTITION]
    (batch,) = take_all(buffer, 110)
    assert values(batch) == [b"a", b"b"]
    assert batch.tokens == [b"a", b"b"]


def test_a_full_batch_is_ready_at_once_and_a_new_one_is_opened() -> None:
    buffer = accumulator()
    introduce(buffer)
    assert fill(buffer, b"x" * 200, b"y" * 200)
    first = buffer.take(PARTITION, 0)
    assert first is not None and values(first) == [b"x" * 200]
    assert buffer.take(PARTITION, 0) is None, "the second batch lingers"
    assert [values(batch) for batch in take_all(buffer, 10)] == [[b"y" * 200]]


def test_batches_do_not_linger_during_a_flush() -> None:
    buffer = accumulator()
    fill(buffer, b"a")
    buffer.begin_flush()
    assert buffer.ready(0) == [PARTITION]
    buffer.end_flush()
    assert buffer.ready(0) == []


def test_batches_carry_consecutive_sequences_and_at_most_five_are_in_flight() -> None:
    buffer = accumulator(batch_bytes=100)
    introduce(buffer)
    fill(buffer, *[b"%d" % number * 60 for number in range(8)])
    batches = take_all(buffer, 0)
    assert [batch.base_sequence for batch in batches] == [1, 2, 3, 4, 5]
    assert batches[0].encoded is not None
    header = read_header(batches[0].encoded)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 1)
    buffer.on_appended(batches[0])
    assert [batch.base_sequence for batch in take_all(buffer, 0)] == [6]


def test_the_first_batch_is_sent_alone_because_a_broker_accepts_any_first_sequence_of_an_unknown_producer() -> None:
    buffer = accumulator(batch_bytes=100)
    fill(buffer, b"a" * 60, b"b" * 60, b"c" * 60)
    (a,) = take_all(buffer, 100)
    buffer.on_failed(a, ErrorCode.NOT_LEADER_OR_FOLLOWER, 100, backoff_ms=0)
    assert take_all(buffer, 100) == [a]
    buffer.on_appended(a)
    assert [batch.base_sequence for batch in take_all(buffer, 100)] == [1, 2]


def test_a_sequence_wraps_to_zero() -> None:
    batch = Batch(PARTITION, (1,), 0, 0, records=[Record(-1, 0)] * 3, base_sequence=0x7FFF_FFFE)
    assert batch.next_sequence == 1


def test_without_idempotence_one_batch_is_in_flight_at_a_time() -> None:
    buffer = accumulator(batch_bytes=100, idempotent=False)
    fill(buffer, b"a" * 60, b"b" * 60)
    assert len(take_all(buffer, 100)) == 1


def test_lost_batches_are_retried_one_at_a_time_in_order_with_their_sequences() -> None:
    buffer = accumulator(batch_bytes=100)
    introduce(buffer)
    fill(buffer, b"a" * 60, b"b" * 60, b"c" * 60, b"d" * 60)
    a, b, c, d = take_all(buffer, 100)
    for batch in (c, a, b):
        assert buffer.on_failed(batch, ErrorCode.NETWORK_EXCEPTION, 100, backoff_ms=50)
    assert buffer.take(PARTITION, 200) is None, "d is still under way"
    buffer.on_failed(d, ErrorCode.NETWORK_EXCEPTION, 100, backoff_ms=50)
    assert buffer.take(PARTITION, 149) is None, "not before the pause is over"
    again = []
    for _ in range(4):
        (batch,) = take_all(buffer, 150)
        again.append((batch, batch.base_sequence))
        buffer.on_appended(batch)
    assert again == [(a, 1), (b, 2), (c, 3), (d, 4)]
    assert buffer.is_empty and buffer.buffered_bytes == 0


def test_new_batches_do_not_overtake_a_retry() -> None:
    buffer = accumulator(batch_bytes=100)
    fill(buffer, b"a" * 60)
    (a,) = take_all(buffer, 100)
    fill(buffer, b"b" * 60)
    buffer.on_failed(a, ErrorCode.NOT_LEADER_OR_FOLLOWER, 100, backoff_ms=0)
    assert take_all(buffer, 100) == [a]
    buffer.on_appended(a)
    assert [batch.base_sequence for batch in take_all(buffer, 200)] == [1]


def test_a_later_batch_out_of_order_waits_for_the_earlier_batch() -> None:
    buffer = accumulator(batch_bytes=100)
    introduce(buffer)
    fill(buffer, b"a" * 60, b"b" * 60)
    a, b = take_all(buffer, 100)
    buffer.on_failed(a, ErrorCode.NETWORK_EXCEPTION, 100, backoff_ms=0)
    assert buffer.on_failed(b, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 100, backoff_ms=0)
    assert not buffer.needs_producer_id()
    assert take_all(buffer, 100) == [a]


def test_the_oldest_batch_out_of_order_is_sent_again_with_a_new_producer_id() -> None:
    buffer = accumulator(batch_bytes=100)
    introduce(buffer)
    fill(buffer, b"a" * 60, b"b" * 60)
    a, b = take_all(buffer, 100)
    assert buffer.on_failed(a, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 100, backoff_ms=0)
    assert buffer.on_failed(b, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 100, backoff_ms=0)
    assert buffer.needs_producer_id()
    assert buffer.take(PARTITION, 100) is None
    buffer.producer = ProducerId(8, 0)
    (again,) = take_all(buffer, 100)
    assert again is a and again.encoded is not None
    header = read_header(again.encoded)
    assert (header.producer_id, header.base_sequence) == (8, 0)
    assert buffer.take(PARTITION, 100) is None, "a new producer id is needed first"
    buffer.on_appended(a)
    assert [(batch.producer, batch.base_sequence) for batch in take_all(buffer, 100)] == [(ProducerId(8, 0), 1)]


def test_another_partition_completes_its_batches_in_flight_before_it_uses_the_new_producer_id() -> None:
    buffer = accumulator(batch_bytes=100)
    fill(buffer, b"a" * 60)
    fill(buffer, b"b" * 60, b"c" * 60, partition=OTHER)
    (a,) = take_all(buffer, 100)
    b = buffer.take(OTHER, 100)
    assert b is not None
    buffer.on_failed(a, ErrorCode.UNKNOWN_PRODUCER_ID, 100, backoff_ms=0)
    buffer.producer = ProducerId(8, 0)
    assert buffer.take(OTHER, 100) is None, "b of the old producer id is still under way"
    buffer.on_failed(b, ErrorCode.NETWORK_EXCEPTION, 100, backoff_ms=0)
    assert buffer.take(OTHER, 100) is b and b.producer == ProducerId(7, 0)
    buffer.on_appended(b)
    assert [(batch.producer, batch.base_sequence) for batch in take_all(buffer, 100, OTHER)] == [(ProducerId(8, 0), 0)]


def test_an_expired_batch_with_unknown_outcome_requires_a_new_producer_id() -> None:
    buffer = accumulator(batch_bytes=100, delivery_timeout_ms=1_000)
    fill(buffer, b"a" * 60)
    (a,) = take_all(buffer, 100)
    fill(buffer, b"b" * 60, now_ms=500)
    buffer.on_failed(a, ErrorCode.NETWORK_EXCEPTION, 100, backoff_ms=5_000)
    assert buffer.expire(999) == []
    assert buffer.next_ready_ms(999) == 1_000
    assert buffer.expire(1_000) == [a]
    assert buffer.needs_producer_id()


def test_a_batch_that_was_never_sent_expires_without_a_new_producer_id() -> None:
    buffer = accumulator(delivery_timeout_ms=1_000)
    fill(buffer, b"a")
    assert [batch.tokens for batch in buffer.expire(1_000)] == [[b"a"]]
    assert not buffer.needs_producer_id() and buffer.is_empty and buffer.buffered_bytes == 0


def test_a_batch_too_large_for_the_broker_is_split_into_two_that_keep_its_sequences() -> None:
    buffer = accumulator(batch_bytes=1_000)
    fill(buffer, b"a", b"b", b"c", now_ms=0)
    (batch,) = take_all(buffer, 100)
    assert buffer.on_failed(batch, ErrorCode.MESSAGE_TOO_LARGE, 100, backoff_ms=0)
    (first,) = take_all(buffer, 100)
    buffer.on_appended(first)
    (second,) = take_all(buffer, 100)
    buffer.on_appended(second)
    assert [(values(half), half.tokens, half.base_sequence) for half in (first, second)] == [
        ([b"a"], [b"a"], 0),
        ([b"b", b"c"], [b"b", b"c"], 1),
    ]
    assert buffer.is_empty and buffer.buffered_bytes == 0


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD])
def test_a_batch_with_a_final_error_fails(code: ErrorCode) -> None:
    buffer = accumulator()
    fill(buffer, b"a")
    (batch,) = take_all(buffer, 100)
    assert not buffer.on_failed(batch, code, 100, backoff_ms=0)
    assert buffer.is_empty and buffer.needs_producer_id()


def test_a_response_to_a_dropped_batch_changes_nothing() -> None:
    buffer = accumulator()
    fill(buffer, b"a")
    (batch,) = take_all(buffer, 100)
    assert buffer.drop_all() == [batch]
    buffer.on_appended(batch)
    assert not buffer.on_failed(batch, ErrorCode.NETWORK_EXCEPTION, 100, backoff_ms=0)
    assert buffer.is_empty and buffer.buffered_bytes == 0


def test_settings_that_would_lose_the_order_are_rejected() -> None:
    for wrong in ({"acks": 2}, {"acks": 1}, {"max_in_flight": 6}):
        with pytest.raises(ValueError, match=r"acks|max_in_flight"):
            ProducerSettings(**wrong)  # type: ignore[arg-type]
