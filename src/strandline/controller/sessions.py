"""Which brokers are alive, as far as the active controller has heard: one session per broker.

Nothing here is in the log. A newly active controller starts with a fresh session for every broker that is not fenced,
so that a change of controllers fences nobody; from then on each heartbeat renews its sender's. Only the node that led
before and fell silent is known to have been silent for a while already: its session began when it was last heard,
unless death detection is switched off (docs/decisions/0009).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec


class FormerLeader(NamedTuple):
    """The node that led the metadata log before this one. If it has a broker, that is in the same process."""

    id: int
    heard_ms: int


class Session(msgspec.Struct):
    epoch: int
    deadline_ms: int
    metadata_offset: int = -1
    """How far the broker has replayed metadata, as it last said."""
    shutdown_offset: int | None = None
    """The last record of its controlled shutdown: everybody has seen it before the broker may go."""

    def shutting_down(self, offset: int) -> None:
        self.shutdown_offset = offset


class Sessions:
    def __init__(self, timeout_ms: int, heartbeat_interval_ms: int) -> None:
        self._timeout_ms = timeout_ms
        # Whoever lives is heard twice in that time, whatever has kept it busy.
        self._shortest_ms = min(timeout_ms, max(timeout_ms // 2, 2 * heartbeat_interval_ms))
        self._sessions: dict[int, Session] = {}

    def start(self, broker_id: int, epoch: int, now_ms: int, heard_ms: int | None = None) -> None:
        """A whole session from now; or from when the broker was last heard, but long enough for it to be heard now: no
        less than half of one, and than two heartbeats take."""
        deadline_ms = now_ms + self._timeout_ms
        if heard_ms is not None:
            deadline_ms = max(heard_ms + self._timeout_ms, now_ms + self._shortest_ms)
        self._sessions[broker_id] = Session(epoch, deadline_ms)

    def touch(self, broker_id: int, epoch: int, metadata_offset: int, now_ms: int) -> Session:
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = Session(epoch, 0)
        session.deadline_ms = now_ms + self._timeout_ms
        session.metadata_offset = metadata_offset
        return session

    def renew(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """If there is such a session."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch:
            session.deadline_ms = now_ms + self._timeout_ms

    def postpone(self, by_ms: int) -> None:
        """For that long we could not have heard anybody."""
        for session in self._sessions.values():
            session.deadline_ms += by_ms

    def end(self, broker_id: int) -> Session | None:
        """The one that was, if any."""
        return self._sessions.pop(broker_id, None)

    def is_alive(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and session.epoch == epoch and now_ms < session.deadline_ms

    def expired(self, now_ms: int) -> list[int]:
        return [broker_id for broker_id, session in self._sessions.items() if session.deadline_ms <= now_ms]

    def next_deadline_ms(self) -> int | None:
        return min((session.deadline_ms for session in self._sessions.values()), default=None)

    def lowest_metadata_offset(self, active: Iterable[int]) -> int | None:
        """How far the slowest of these brokers is; None when none of them has a session."""
        return min((self._sessions[id_].metadata_offset for id_ in active if id_ in self._sessions), default=None)
