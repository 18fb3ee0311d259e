"""DescribeTransactions (65) and ListTransactions (66): transactional ids as they are committed."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.coordinator.transaction.state import State, Transaction
from strandline.coordinator.transaction.store import TransactionStore
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.transactions import (
    DescribeTransactionsResponseTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponseTransactionState,
    TopicData,
)

STATES_BY_NAME = {state.wire_name: state for state in State} | {"PrepareEpochFence": None}
"""PrepareEpochFence is a state of Kafka's coordinator in memory: known to clients, never seen here."""


def describe_transaction(
    transactions: TransactionStore, at: int, transactional_id: str
) -> DescribeTransactionsResponseTransactionState:
    transaction = transactions.find(transactional_id, at)
    if transaction is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id!r} is not known")
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(partition)
    return DescribeTransactionsResponseTransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.wire_name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic, partitions) for topic, partitions in by_topic.items()],
    )


def list_transactions(
    transactions: TransactionStore, at: int, request: ListTransactionsRequest, wall_ms: int
) -> Iterator[ListTransactionsResponseTransactionState]:
    """Those that pass every filter; an empty filter passes all. State names that are not known pass none."""
    states = {STATES_BY_NAME[name] for name in request.state_filters if name in STATES_BY_NAME}
    for each in transactions.all(at):
        if request.state_filters and each.state not in states:
            continue
        if request.producer_id_filters and each.producer_id not in request.producer_id_filters:
            continue
        if not _is_older(each, request.duration_filter, wall_ms):
            continue
        yield ListTransactionsResponseTransactionState(each.transactional_id, each.producer_id, each.state.wire_name)


def _is_older(transaction: Transaction, duration_ms: int, wall_ms: int) -> bool:
    """Of an id without a transaction the start is -1, so that it passes every duration, as in Kafka."""
    return duration_ms < 0 or wall_ms - transaction.start_ms > duration_ms
