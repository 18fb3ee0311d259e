"""The machine of one shard of `__transaction_state`: transactional ids, transactions that time out, ids that expire.

Requests are decided in `producers`, `partitions` and `ending`. A decision that prepares the end of a transaction has a
`WriteMarkers` effect: once its record is committed the shell writes the markers and then calls `ending.complete`. After
loading, every transaction whose end was prepared gets its markers again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import msgspec

from strandline.coordinator.decision import Decision, Now
from strandline.coordinator.machine import Producer
from strandline.coordinator.records import CoordinatorRecord
from strandline.coordinator.timers import Timers
from strandline.coordinator.transaction.ending import fence_and_abort, is_overdue, markers_of
from strandline.coordinator.transaction.state import State, Transaction
from strandline.coordinator.transaction.store import TransactionSettings, TransactionStore
from strandline.model.timeline import Timeline
from strandline.protocol.messages.transaction_records import TransactionLogKey

_REMOVABLE = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
# Many ids that time out or expire at once are spread over several steps of the event loop.
_PER_MS = 50


class AbortTimedOut(msgspec.Struct, frozen=True):
    """Timer key: ongoing transactions are checked for their timeout."""


class RemoveExpired(msgspec.Struct, frozen=True):
    """Timer key: idle transactional ids are removed."""


class Abort(msgspec.Struct, frozen=True):
    """Timer key: the transaction of this id has timed out."""

    transactional_id: str


class Remove(msgspec.Struct, frozen=True):
    """Timer key: this id has expired."""

    transactional_id: str


class TransactionMachine:
    def __init__(self, settings: Callable[[], TransactionSettings], coordinator_epoch: int) -> None:
        self.timeline = Timeline()
        self.timers = Timers()
        self.transactions = TransactionStore(self.timeline, settings, coordinator_epoch)

    def replay(self, record: CoordinatorRecord, producer: Producer | None) -> None:
        self.transactions.replay(record)

    def replay_marker(self, producer: Producer, *, commit: bool) -> None:
        raise AssertionError("the transaction topic is not written to in transactions")

    def on_loaded(self, now: Now) -> Decision[None]:
        settings = self.transactions.settings
        self.timers.schedule(AbortTimedOut(), now.ms + settings.abort_timed_out_interval_ms)
        self.timers.schedule(RemoveExpired(), now.ms + settings.remove_expired_interval_ms)
        prepared = [each for each in self.transactions.all() if each.is_prepared]
        return Decision(None, effects=[markers_of(self.transactions, each) for each in prepared])

    def on_timer(self, key: Hashable, now: Now) -> Decision[None]:
        if isinstance(key, AbortTimedOut):
            return self._look_for_overdue(key, now)
        if isinstance(key, RemoveExpired):
            return self._look_for_expired(key, now)
        if isinstance(key, Abort):
            transaction = self.transactions.find(key.transactional_id)
            if transaction is None or not is_overdue(transaction, now):
                return Decision(None)
            return fence_and_abort(self.transactions, transaction, now)
        assert isinstance(key, Remove), key
        transaction = self.transactions.find(key.transactional_id)
        if transaction is None or not self._is_expired(transaction, now):
            return Decision(None)
        return Decision(None, [CoordinatorRecord(TransactionLogKey(key.transactional_id), None)])

    def _look_for_overdue(self, key: AbortTimedOut, now: Now) -> Decision[None]:
        self.timers.schedule(key, now.ms + self.transactions.settings.abort_timed_out_interval_ms)
        overdue = [each for each in self.transactions.all() if is_overdue(each, now)]
        for count, each in enumerate(overdue):
            self.timers.schedule(Abort(each.transactional_id), now.ms + count // _PER_MS)
        return Decision(None)

    def _look_for_expired(self, key: RemoveExpired, now: Now) -> Decision[None]:
        self.timers.schedule(key, now.ms + self.transactions.settings.remove_expired_interval_ms)
        expired = [each for each in self.transactions.all() if self._is_expired(each, now)]
        for count, each in enumerate(expired):
            self.timers.schedule(Remove(each.transactional_id), now.ms + count // _PER_MS)
        return Decision(None)

    def _is_expired(self, transaction: Transaction, now: Now) -> bool:
        oldest_ms = now.wall_ms - self.transactions.settings.transactional_id_expiration_ms
        return transaction.state in _REMOVABLE and transaction.last_update_ms <= oldest_ms
