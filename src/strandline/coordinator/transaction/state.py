"""One transactional id: its producer id and epoch, the state of its transaction, the partitions that take part.

    to \\ from         Empty  Ongoing  PrepareCommit  PrepareAbort  CompleteCommit  CompleteAbort
    Empty               x                                                x               x
    Ongoing             x       x                                        x               x
    PrepareCommit               x
    PrepareAbort        2       x                                        2               2
    CompleteCommit                          x
    CompleteAbort                                          x

    2: with transaction.version 2 a client may abort a transaction to which no partition was added.

A transaction is a value: a decision makes the next one, its record is replayed, and an append that fails brings the old
one back. With transaction.version 2 (KIP-890) every end raises the producer epoch, so that a late request of the ended
transaction cannot touch the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from strandline.coordinator.records import CoordinatorRecord
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
LAST_EPOCH: Final = 32766
"""A producer at this epoch gets a new producer id; the one above is left for fencing it."""
EPOCH_BUMP_VERSION: Final = 2
"""The transaction.version since which every end of a transaction raises the epoch."""
FLEXIBLE_RECORD_VERSION: Final = 1


class State(IntEnum):
    """Numbers as in records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def wire_name(self) -> str:
        return _NAMES[self]


_NAMES: Final = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
    State.DEAD: "Dead",
}

_COMPLETE: Final = frozenset({State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
LEGAL_ORIGINS: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.EMPTY}) | _COMPLETE,
    State.ONGOING: frozenset({State.EMPTY, State.ONGOING}) | _COMPLETE,
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    State.PREPARE_ABORT: frozenset({State.ONGOING, State.EMPTY}) | _COMPLETE,
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
    State.DEAD: frozenset({State.EMPTY}) | _COMPLETE,
}


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    transactional_id: str
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    """Before the last change: a retry of a request that exhausted the epochs of that id is recognised by it."""
    next_producer_id: int = NO_PRODUCER_ID
    """While the end of a transaction is prepared that exhausts the epochs."""
    producer_epoch: int
    last_producer_epoch: int = NO_EPOCH
    """Before the last bump that a client asked for: a retry of that request is recognised by it."""
    timeout_ms: int
    state: State
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    """Wall time at which the first partition was added."""
    last_update_ms: int
    client_version: int = 0
    """The transaction.version that the client of the current transaction speaks."""

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH

    @property
    def is_prepared(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self.state in _COMPLETE

    def become(self, state: State, now_ms: int, **changes: object) -> Transaction:
        assert self.state in LEGAL_ORIGINS[state], f"{self.transactional_id}: {self.state.name} to {state.name}"
        changes = {"previous_producer_id": self.producer_id, **changes}
        return replace(self, state=state, last_update_ms=now_ms, **changes)

    def record(self, record_version: int) -> CoordinatorRecord:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(self.partitions):
            by_topic.setdefault(topic, []).append(partition)
        value = TransactionLogValue(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None
            if self.state is State.EMPTY
            else [PartitionsSchema(topic, indexes) for topic, indexes in by_topic.items()],
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
        )
        if record_version >= FLEXIBLE_RECORD_VERSION:
            value.previous_producer_id = self.previous_producer_id
            value.next_producer_id = self.next_producer_id
            value.client_transaction_version = self.client_version
        return CoordinatorRecord(TransactionLogKey(self.transactional_id), value, record_version)

    @classmethod
    def of_record(cls, transactional_id: str, value: TransactionLogValue) -> Transaction:
        """The last epoch is not in the record. It stays unknown, so that a retry of InitProducerId with the epoch
        before the last is fenced: the epoch may have been raised for another producer."""
        return cls(
            transactional_id=transactional_id,
            producer_id=value.producer_id,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            producer_epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            state=State(value.transaction_status),
            partitions=_partitions(value.transaction_partitions or ()),
            start_ms=value.transaction_start_timestamp_ms,
            last_update_ms=value.transaction_last_update_timestamp_ms,
            client_version=value.client_transaction_version,
        )


def _partitions(topics: Iterable[PartitionsSchema]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(each.topic, index) for each in topics for index in each.partition_ids)
