"""AddPartitionsToTxn (24) and AddOffsetsToTxn (25): partitions join a transaction before records are written to them.

Partition leaders send the same request to verify that a transaction is ongoing (transaction.version 0 and 1), or to add
the partition for the client (version 2, KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.coordinator.decision import Decision, Now
from strandline.coordinator.transaction.state import State, Transaction
from strandline.coordinator.transaction.store import TransactionStore
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition


def add_partitions(
    transactions: TransactionStore,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
    client_version: int,
    now: Now,
) -> Decision[ErrorCode | None]:
    transaction = _ready(transactions, transactional_id, producer_id, producer_epoch)
    added = frozenset(partitions)
    is_ongoing = transaction.state is State.ONGOING
    if is_ongoing and added <= transaction.partitions:
        return Decision(ErrorCode.NONE)
    following = transaction.become(
        State.ONGOING,
        now.wall_ms,
        partitions=transaction.partitions | added if is_ongoing else added,
        start_ms=transaction.start_ms if is_ongoing else now.wall_ms,
        client_version=client_version,
    )
    transactions.put(following)
    return Decision(ErrorCode.NONE, [transactions.record(following)], is_applied=True)


def verify_partitions(
    transactions: TransactionStore,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
    at: int,
) -> dict[TopicPartition, ErrorCode]:
    """Whether each partition is part of the ongoing transaction: added by a record that is committed, and the
    transaction not ended by one that may not be committed yet."""
    transaction = _ready(transactions, transactional_id, producer_id, producer_epoch)
    committed = transactions.find(transactional_id, at)
    is_same = (
        committed is not None
        and committed.state is transaction.state is State.ONGOING
        and committed.producer_id == producer_id
        and committed.producer_epoch == producer_epoch
    )
    taking_part = committed.partitions if committed is not None and is_same else frozenset()
    return {each: ErrorCode.NONE if each in taking_part else ErrorCode.TRANSACTION_ABORTABLE for each in partitions}


def _ready(transactions: TransactionStore, transactional_id: str, producer_id: int, producer_epoch: int) -> Transaction:
    transaction = transactions.check(transactional_id, producer_id)
    if transaction.producer_epoch != producer_epoch:
        raise KafkaError(
            ErrorCode.PRODUCER_FENCED,
            f"producer {producer_id} is at epoch {transaction.producer_epoch}, not {producer_epoch}",
        )
    if transaction.is_prepared:
        raise KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS, f"the last transaction of {transactional_id!r} is still being ended"
        )
    return transaction
