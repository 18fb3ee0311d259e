"""Broker sessions: when the active controller last received a heartbeat from each broker, and when that times out.

Nothing here is in the log. A newly active controller starts a fresh session for every broker that is not fenced, so
that a change of the active controller fences no broker; from then on each heartbeat renews its sender's session. The
exception is the broker of the former leader of the metadata log, which is known to have been silent for some time: its
session starts at the last contact with that node, unless failure detection is disabled (docs/decisions/0009).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class FormerLeader(msgspec.Struct, frozen=True):
    """The node that led the metadata log before this one. If it is a broker too, that broker is the same process."""

    id: int
    last_contact_ms: int


class Session(msgspec.Struct):
    epoch: int
    deadline_ms: int
    metadata_offset: int = -1
    """How far the broker has replayed metadata, by its last heartbeat."""
    shutdown_offset: int | None = None
    """The last record of its controlled shutdown: every active broker must have replayed it before the broker stops."""

    def on_shutdown_appended(self, offset: int) -> None:
        self.shutdown_offset = offset


class Sessions:
    def __init__(self, timeout_ms: int, heartbeat_interval_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._shortest_ms = min(timeout_ms, max(timeout_ms // 2, 2 * heartbeat_interval_ms))
        """The shortest session: a live broker, however busy, sends two heartbeats in this time."""
        self._sessions: dict[int, Session] = {}

    def start(self, broker_id: int, epoch: int, now_ms: int, last_contact_ms: int | None = None) -> None:
        """Starts a session now, or at `last_contact_ms`; that one lasts at least half a session and two heartbeats."""
        deadline_ms = now_ms + self._timeout_ms
        if last_contact_ms is not None:
            deadline_ms = max(last_contact_ms + self._timeout_ms, now_ms + self._shortest_ms)
        self._sessions[broker_id] = Session(epoch, deadline_ms)

    def touch(self, broker_id: int, epoch: int, metadata_offset: int, now_ms: int) -> Session:
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = Session(epoch, 0)
        session.deadline_ms = now_ms + self._timeout_ms
        session.metadata_offset = metadata_offset
        return session

    def renew(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """Extends the session of this broker epoch, if there is one."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch:
            session.deadline_ms = now_ms + self._timeout_ms

    def postpone(self, by_ms: int) -> None:
        """Extends all sessions by a time in which the controller could not have received a heartbeat."""
        for session in self._sessions.values():
            session.deadline_ms += by_ms

    def end(self, broker_id: int) -> Session | None:
        return self._sessions.pop(broker_id, None)

    def is_alive(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and session.epoch == epoch and now_ms < session.deadline_ms

    def expired(self, now_ms: int) -> list[int]:
        return [broker_id for broker_id, session in self._sessions.items() if session.deadline_ms <= now_ms]

    def next_deadline_ms(self) -> int | None:
        return min((session.deadline_ms for session in self._sessions.values()), default=None)

    def lowest_metadata_offset(self, active: Iterable[int]) -> int | None:
        """The offset of the slowest of these brokers; None when none of them has a session."""
        return min((self._sessions[id_].metadata_offset for id_ in active if id_ in self._sessions), default=None)
