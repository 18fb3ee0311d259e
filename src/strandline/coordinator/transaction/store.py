"""The transactional ids of one shard, by value, on the shard's timeline. Decisions read it and put the next value."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from strandline.coordinator.records import CoordinatorRecord
from strandline.coordinator.transaction.state import FLEXIBLE_RECORD_VERSION, Transaction
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.timeline import LATEST, Timeline, TimelineMap
from strandline.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue


class TransactionSettings(msgspec.Struct, frozen=True):
    max_timeout_ms: int
    abort_timed_out_interval_ms: int
    transactional_id_expiration_ms: int
    remove_expired_interval_ms: int
    transaction_version: int
    """Finalized level of the feature `transaction.version`."""


class NeedsProducerId(Exception):
    """A decision needs a new producer id; the handler allocates one and decides again."""


class TransactionStore:
    def __init__(self, timeline: Timeline, settings: Callable[[], TransactionSettings], coordinator_epoch: int) -> None:
        self.coordinator_epoch = coordinator_epoch
        self._settings = settings
        self._transactions: TimelineMap[str, Transaction] = TimelineMap(timeline)

    @property
    def settings(self) -> TransactionSettings:
        return self._settings()

    def find(self, transactional_id: str, at: int = LATEST) -> Transaction | None:
        return self._transactions.get(transactional_id, at)

    def all(self, at: int = LATEST) -> list[Transaction]:
        return self._transactions.values(at)

    def check(self, transactional_id: str, producer_id: int) -> Transaction:
        """Raises INVALID_REQUEST or INVALID_PRODUCER_ID_MAPPING."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {transactional_id!r} is not known"
            )
        if transaction.producer_id != producer_id:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"{transactional_id!r} belongs to producer {transaction.producer_id}, not {producer_id}",
            )
        return transaction

    def record(self, transaction: Transaction) -> CoordinatorRecord:
        """In the version that the finalized transaction.version asks for."""
        return transaction.record(FLEXIBLE_RECORD_VERSION if self.settings.transaction_version >= 1 else 0)

    def put(self, transaction: Transaction) -> None:
        """For a decision that has applied its record itself, since records do not hold the last epoch."""
        self._transactions[transaction.transactional_id] = transaction

    def replay(self, record: CoordinatorRecord) -> None:
        key, value = record.key, record.value
        if not isinstance(key, TransactionLogKey):
            return
        if isinstance(value, TransactionLogValue):
            self._transactions[key.transactional_id] = Transaction.of_record(key.transactional_id, value)
        elif key.transactional_id in self._transactions:
            del self._transactions[key.transactional_id]
