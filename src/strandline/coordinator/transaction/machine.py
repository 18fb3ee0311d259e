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
from strandline.coordinator.transaction.ending import abort_timed_out, markers_of
from strandline.coordinator.transaction.state import State
from strandline.coordinator.transaction.store import TransactionSettings, TransactionStore
from strandline.model.timeline import Timeline
from strandline.protocol.messages.transaction_records import TransactionLogKey

_REMOVABLE = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})


class AbortTimedOut(msgspec.Struct, frozen=True):
    """Timer key: ongoing transactions are checked for their timeout."""


class RemoveExpired(msgspec.Struct, frozen=True):
    """Timer key: idle transactional ids are removed."""


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
        settings = self.transactions.settings
        if isinstance(key, AbortTimedOut):
            self.timers.schedule(key, now.ms + settings.abort_timed_out_interval_ms)
            return abort_timed_out(self.transactions, now)
        assert isinstance(key, RemoveExpired), key
        self.timers.schedule(key, now.ms + settings.remove_expired_interval_ms)
        oldest_ms = now.wall_ms - settings.transactional_id_expiration_ms
        records = [
            CoordinatorRecord(TransactionLogKey(each.transactional_id), None)
            for each in self.transactions.all()
            if each.state in _REMOVABLE and each.last_update_ms <= oldest_ms
        ]
        return Decision(None, records)
