"""What the shard asks of a machine: replicated state, timers, and the inputs that are not requests."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, Protocol

from strandline.coordinator.decision import Decision, Now
from strandline.coordinator.records import CoordinatorRecord
from strandline.coordinator.timers import Timers
from strandline.model.timeline import Timeline


class Producer(NamedTuple):
    """Who wrote a transactional batch."""

    producer_id: int
    producer_epoch: int


class Machine(Protocol):
    """Replicated state and the timers of one shard. Decisions are methods that the caller of `Shard.write` picks."""

    @property
    def timeline(self) -> Timeline: ...
    @property
    def timers(self) -> Timers: ...

    def replay(self, record: CoordinatorRecord, producer: Producer | None) -> None:
        """`producer` for a record of a transaction: it takes effect when the transaction is committed."""
        ...

    def replay_marker(self, producer: Producer, *, commit: bool) -> None:
        """The transaction of this producer in this partition has ended."""
        ...

    def on_loaded(self, now: Now) -> Decision[None]: ...
    def on_timer(self, key: Hashable, now: Now) -> Decision[None]: ...
