"""The producer's view of its transactions: which requests it sends, and what an error ends."""

from __future__ import annotations

import pytest

from strandline.client.core.accumulator import Accumulator, ProducerId
from strandline.client.core.transaction import State, Transaction
from strandline.client.settings import ProducerSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.records.batch import Record, read_header

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def ready(*, is_v2: bool) -> Transaction:
    transaction = Transaction("id", 1_000)
    transaction.on_initialized(ProducerId(7, 3), is_v2=is_v2)
    return transaction


def error(code: ErrorCode) -> KafkaError:
    return KafkaError(code, "why")


def test_version_1_adds_each_partition_and_group_once_per_transaction() -> None:
    transaction = ready(is_v2=False)
    for _ in range(2):
        transaction.begin()
        assert transaction.partitions_to_add([P0, P1]) == [P0, P1]
        request = transaction.add_partitions_request([P0, P1])
        assert (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch) == (7, 3)
        assert [(topic.name, topic.partitions) for topic in request.v3_and_below_topics] == [("t", [0, 1])]
        transaction.on_partitions_added([P0, P1])
        assert transaction.partitions_to_add([P0, P1]) == []
        assert transaction.add_group_request("g") is not None
        transaction.on_group_added("g")
        assert transaction.add_group_request("g") is None
        transaction.start_end(commit=True)
        end = transaction.end_request()
        assert end is not None and end.committed and end.producer_epoch == 3
        transaction.on_ended(None)
    assert transaction.producer == ProducerId(7, 3)


def test_version_2_adds_nothing_and_continues_with_the_epoch_of_the_response() -> None:
    transaction = ready(is_v2=True)
    transaction.begin()
    assert transaction.partitions_to_add([P0]) == [] and transaction.add_group_request("g") is None
    transaction.on_produce()
    transaction.start_end(commit=False)
    end = transaction.end_request()
    assert end is not None and not end.committed
    transaction.on_ended(ProducerId(7, 4))
    assert transaction.producer == ProducerId(7, 4)


@pytest.mark.parametrize("is_v2", [False, True])
def test_an_empty_transaction_is_not_ended_at_the_coordinator(is_v2: bool) -> None:
    transaction = ready(is_v2=is_v2)
    transaction.begin()
    transaction.start_end(commit=True)
    assert transaction.end_request() is None
    transaction.on_ended(None)
    assert transaction.state is State.READY


def test_after_an_error_the_transaction_can_only_be_aborted() -> None:
    transaction = ready(is_v2=True)
    transaction.begin()
    transaction.on_error(error(ErrorCode.MESSAGE_TOO_LARGE))
    for attempt in (transaction.check_usable, lambda: transaction.start_end(commit=True), transaction.begin):
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            attempt()
    transaction.start_end(commit=False)
    transaction.on_ended(None)
    transaction.begin()
    transaction.check_usable()


def test_a_fenced_producer_can_do_nothing_any_more() -> None:
    transaction = ready(is_v2=True)
    transaction.begin()
    transaction.on_error(error(ErrorCode.PRODUCER_FENCED))
    assert transaction.state is State.FATAL and not transaction.can_abort
    for attempt in (transaction.check_usable, lambda: transaction.start_end(commit=False), transaction.begin):
        with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
            attempt()


def test_after_an_end_without_a_response_the_outcome_is_unknown_and_the_producer_unusable() -> None:
    transaction = ready(is_v2=True)
    transaction.begin()
    transaction.on_produce()
    transaction.start_end(commit=True)
    transaction.on_error(error(ErrorCode.REQUEST_TIMED_OUT))
    assert transaction.state is State.FATAL


def test_calls_in_the_wrong_state_are_rejected() -> None:
    transaction = Transaction("id", 1_000)
    with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
        transaction.begin()
    transaction.on_initialized(ProducerId(1, 0), is_v2=False)
    for attempt in (transaction.check_usable, lambda: transaction.start_end(commit=False)):
        with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
            attempt()


def test_batches_of_a_transaction_are_marked_and_a_lost_sequence_fails_them() -> None:
    accumulator = Accumulator(ProducerSettings(transactional_id="id", linger_ms=0))
    accumulator.producer = ProducerId(7, 3)
    accumulator.append(P0, Record(-1, 0, None, b"v"), "token", 0)
    batch = accumulator.take(P0, 0)
    assert batch is not None and batch.encoded is not None
    assert read_header(batch.encoded).is_transactional
    assert not accumulator.on_failed(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, 10)
    assert accumulator.has_sequence_gaps and not accumulator.needs_producer_id()
    accumulator.append(P0, Record(-1, 0, None, b"v"), "token", 0)
    assert accumulator.take(P0, 0) is None, "not before the next epoch"
    accumulator.producer = ProducerId(7, 4)
    after = accumulator.take(P0, 0)
    assert after is not None and (after.base_sequence, after.producer) == (0, ProducerId(7, 4))


def test_an_abort_drops_what_is_not_in_flight() -> None:
    accumulator = Accumulator(ProducerSettings(transactional_id="id", linger_ms=0))
    accumulator.producer = ProducerId(7, 3)
    accumulator.append(P0, Record(-1, 0, None, b"in flight"), "a", 0)
    sent = accumulator.take(P0, 0)
    accumulator.append(P0, Record(-1, 0, None, b"waiting"), "b", 0)
    assert [batch.tokens for batch in accumulator.drop_waiting()] == [["b"]]
    assert not accumulator.is_empty and not accumulator.has_sequence_gaps
    assert sent is not None
    accumulator.on_appended(sent)
    assert accumulator.is_empty and accumulator.buffered_bytes == 0
