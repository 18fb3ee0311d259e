"""What a machine returns: a response, the records that make it true, and parked requests that can be answered now.

The shard replays the records at once, so that the next decision sees them, appends them, and sends the responses when
they are committed. A request whose response depends on other members (JoinGroup, SyncGroup) is parked: the machine
keeps its `Token` and names it in `completed` of a later decision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, NewType, TypeVar

import msgspec

from strandline.coordinator.records import CoordinatorRecord
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.types import Message

R = TypeVar("R")

Token = NewType("Token", int)
"""Names a parked request. Opaque to the machine; the shard knows which caller waits."""


class Now(NamedTuple):
    """The time of a decision, handed in by the shard."""

    ms: int
    """Monotonic, for deadlines."""
    wall_ms: int
    """For timestamps in records."""


class Completion(msgspec.Struct, frozen=True):
    token: Token
    response: Message


class Decision(msgspec.Struct, Generic[R]):
    response: R
    """None: the request is parked under the token that it came with."""
    records: list[CoordinatorRecord] = msgspec.field(default_factory=list)
    completed: list[Completion] = msgspec.field(default_factory=list)
    """Parked requests that are answered when the records are committed."""
    effects: list[object] = msgspec.field(default_factory=list)
    """What the shell does once the records are committed (write transaction markers)."""
    error: KafkaError | None = None
    """In place of a response: the request fails with it once the records are committed."""
    is_atomic: bool = True
    """False: the records may be appended in several batches, each of which is valid alone (many tombstones)."""
    is_applied: bool = False
    """The machine has changed its state already, so the shard does not replay the records (classic groups)."""
    too_large: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    """The error of the request if the records do not fit in one batch."""
    on_committed: Callable[[Now], Decision[None]] | None = None
    """The next step, taken when the records are committed."""
    on_append_failed: Callable[[ErrorCode, Now], Decision[None]] | None = None
    """Corrects state that is not replicated when the records could not be appended; replicated state is reverted by the
    shard. The code is the one that the requests are answered with."""

    @property
    def has_consequences(self) -> bool:
        """Whether there is more to it than its response."""
        return bool(self.records or self.completed or self.effects or self.error or self.on_committed)


def nothing() -> Decision[None]:
    return Decision(None)


def merged(first: Decision[R], then: Decision[None]) -> Decision[R]:
    """Two decisions made in one step, as one. At most one of them has a continuation."""
    assert first.on_committed is None or then.on_committed is None, "a decision continues in one way"
    first.records += then.records
    first.completed += then.completed
    first.effects += then.effects
    first.error = first.error or then.error
    first.is_atomic = first.is_atomic and then.is_atomic
    first.is_applied = first.is_applied or then.is_applied
    first.on_committed = first.on_committed or then.on_committed
    first.on_append_failed = first.on_append_failed or then.on_append_failed
    return first
