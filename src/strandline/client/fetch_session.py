"""A fetch session with one broker (KIP-227): after the first question only what changed is sent, and only what changed
comes back. A core: `fetcher` asks it what to send and tells it what came.

The broker keeps the partitions and offsets of the session; both sides count its epochs, so a lost answer is noticed and
the session begun anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.model.errors import ErrorCode
from strandline.model.ids import TopicPartition, Uuid

SESSIONLESS_EPOCH = -1
_LAST_EPOCH = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of one partition."""

    topic_id: Uuid
    offset: int
    leader_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class SessionRequest:
    session_id: int
    epoch: int
    send: dict[TopicPartition, Wanted]
    forget: list[tuple[TopicPartition, Uuid]]


class FetchSession:
    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._id = 0
        self._epoch = 0
        self._known: dict[TopicPartition, Wanted] = {}

    def next_request(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionRequest:
        if not self._enabled:
            return SessionRequest(0, SESSIONLESS_EPOCH, dict(wanted), [])
        if self._epoch == 0:
            self._known = dict(wanted)
            return SessionRequest(self._id, 0, dict(wanted), [])
        changed = {each: want for each, want in wanted.items() if self._known.get(each) != want}
        recreated = [each for each, want in changed.items() if self._is_other_topic(each, want)]
        forget = [
            (each, known.topic_id) for each, known in self._known.items() if each not in wanted or each in recreated
        ]
        self._known = dict(wanted)
        return SessionRequest(self._id, self._epoch, changed, forget)

    def on_answer(self, error: ErrorCode, session_id: int) -> None:
        if error != ErrorCode.NONE:
            # An unknown session is gone; any other complaint closes the one we have.
            self._id = 0 if error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND else self._id
            self._epoch = 0
        elif self._epoch == 0 and session_id == 0:
            self._id = 0  # the broker grants none: the next question is whole again
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def on_lost(self) -> None:
        """No answer came: whether the broker counted the question is unknown."""
        self._id = self._epoch = 0

    def _is_other_topic(self, partition: TopicPartition, want: Wanted) -> bool:
        known = self._known.get(partition)
        return known is not None and known.topic_id != want.topic_id
