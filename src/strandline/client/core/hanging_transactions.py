"""Which transactions hang: open on a partition, but not at a transaction coordinator, so that no coordinator ends them
and the last stable offset of the partition does not advance (KIP-664). A core, for `cli/txn`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from strandline.model.ids import TopicPartition

ONGOING = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States in which the coordinator is going to end the transaction."""


class TransactionDescription(msgspec.Struct, frozen=True):
    """As the coordinator knows it."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    """-1: no transaction is open."""
    partitions: tuple[TopicPartition, ...]
    coordinator: int


class OpenTransaction(msgspec.Struct, frozen=True):
    """As a partition leader knows it."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


def older_than(transactions: Iterable[OpenTransaction], age_ms: int, wall_ms: int) -> list[OpenTransaction]:
    """Candidates: younger transactions may be about to be added at their coordinator."""
    return [each for each in transactions if wall_ms - each.last_timestamp_ms >= age_ms]


def find_hanging(
    candidates: Iterable[OpenTransaction], described: Mapping[int, TransactionDescription]
) -> list[OpenTransaction]:
    """`described` has the transactions of coordinators by producer id."""
    return [each for each in candidates if not _is_covered(each, described.get(each.producer_id))]


def _is_covered(transaction: OpenTransaction, known: TransactionDescription | None) -> bool:
    return (
        known is not None
        and known.producer_id == transaction.producer_id
        and known.producer_epoch >= transaction.producer_epoch
        and known.state in ONGOING
        and transaction.partition in known.partitions
    )
