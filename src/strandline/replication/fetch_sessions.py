"""Incremental fetch sessions (KIP-227): the server remembers what a client fetches, so that a request names only what
changed and a response only what moved. A machine: no IO, no clock of its own.

A session's partitions keep an order that is also their turn: one that returned data goes to the end of the line.

A follower's session may hold many thousands of partitions of which hardly any moves. Those that have nothing to tell,
nor to be told, rest until their leader wakes them; a fetch looks at those awake only, and costs no more than these.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from random import Random

import msgspec

from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid
from strandline.protocol.messages.fetch import FetchRequest, PartitionData
from strandline.replication.remote import RemoteReplica
from strandline.runtime.watermark import Wait, Watermark

SESSIONLESS_EPOCH = -1
INITIAL_EPOCH = 0
_LAST_EPOCH = 2**31 - 1
_EVICTABLE_AFTER_MS = 120_000
# Ours, not Kafka's: some hundred bytes each, and who fills the slots need not name partitions that exist.
_MAX_PARTITIONS = 300_000

# A topic is named by its id from version 13 on and by its name before; the other half is empty.
PartitionKey = tuple[Uuid, str, int]


class Wanted(msgspec.Struct):
    """One partition as a client last asked for it, and what it was last told."""

    topic_id: Uuid
    topic: str
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1

    @property
    def key(self) -> PartitionKey:
        return self.topic_id, self.topic, self.partition


WantedByKey = OrderedDict[PartitionKey, Wanted]


def wanted_by(request: FetchRequest) -> WantedByKey:
    """In the order of the request; of a partition that is named twice the last word counts."""
    wanted: WantedByKey = OrderedDict()
    for topic in request.topics:
        for one in topic.partitions:
            wanted[topic.topic_id, topic.topic, one.partition] = Wanted(
                topic.topic_id,
                topic.topic,
                one.partition,
                one.fetch_offset,
                one.partition_max_bytes,
                max(one.current_leader_epoch, -1),
                max(one.last_fetched_epoch, -1),
                one.log_start_offset,
            )
    return wanted


class FetchSession(msgspec.Struct):
    id: int
    by_topic_id: bool
    wanted: WantedByKey
    next_epoch: int
    created_ms: int
    used_ms: int
    # Of a follower: who does not rest, and the broker epoch under which those who rest had their word counted.
    awake: dict[PartitionKey, None] = msgspec.field(default_factory=dict)
    replica_epoch: int | None = None
    calls: Watermark = msgspec.field(default_factory=Watermark)
    """How often there was something to be told at once."""

    def update(self, changed: WantedByKey, forgotten: Iterable[PartitionKey]) -> None:
        for key in forgotten:
            self.wanted.pop(key, None)
            self.awake.pop(key, None)
        for key, wanted in changed.items():
            self.awake[key] = None
            known = self.wanted.get(key)
            if known is None:
                self.wanted[key] = wanted
            else:
                known.fetch_offset = wanted.fetch_offset
                known.max_bytes = wanted.max_bytes
                known.current_leader_epoch = wanted.current_leader_epoch
                known.last_fetched_epoch = wanted.last_fetched_epoch
                known.log_start_offset = wanted.log_start_offset

    def has_news(self, wanted: Wanted, answer: PartitionData) -> bool:
        """Whether an incremental response must name this partition; remembers what it will have been told."""
        failed = answer.error_code != ErrorCode.NONE
        moved = (
            answer.high_watermark != wanted.sent_high_watermark
            or answer.log_start_offset != wanted.sent_log_start_offset
        )
        # After an error the cached watermark is void, so that the partition is named again once it is well.
        wanted.sent_high_watermark = -1 if failed else answer.high_watermark
        wanted.sent_log_start_offset = answer.log_start_offset
        has_records = answer.records is not None and len(answer.records) > 0
        # It may have been forgotten meanwhile: a client that lost its connection continues on another one.
        if has_records and wanted.key in self.wanted:
            self.wanted.move_to_end(wanted.key)
            self.awake.pop(wanted.key, None)
            self.awake[wanted.key] = None
        return has_records or moved or failed or answer.diverging_epoch.epoch >= 0

    def partitions_with_news(self, replica_epoch: int) -> list[Wanted]:
        """What a follower of this broker epoch is to be told about, if there is anything, in turn."""
        if replica_epoch != self.replica_epoch:
            self.replica_epoch = replica_epoch
            self.awake = dict.fromkeys(self.wanted)
        return [self.wanted[key] for key in self.awake]

    def listen(self, wanted: Wanted, remote: RemoteReplica) -> None:
        remote.listener = partial(self._wake, wanted.key)

    def rest(self, wanted: Wanted, answer: PartitionData) -> None:
        """Not to be looked at again before its leader has news; but once more if this answer is to tell it some."""
        told = wanted.sent_high_watermark == answer.high_watermark
        if told and wanted.sent_log_start_offset == answer.log_start_offset:
            self.awake.pop(wanted.key, None)

    def _wake(self, key: PartitionKey, at_once: bool) -> None:
        if key in self.wanted:
            self.awake[key] = None
            if at_once:
                self.calls.advance(self.calls.value + 1)

    async def called(self, calls: int, timeout_ms: int) -> None:
        """Returns when something is to be told at once that was not when there were so many; or after a while."""
        wait = Wait(1)
        wait.reach(self.calls, calls + 1)
        await wait.done(timeout_ms)


class FetchSessionCache:
    """All sessions of a broker, in the order of their last use. Who gets none asks for everything each time."""

    def __init__(self, slots: int, random: Random, max_partitions: int = _MAX_PARTITIONS) -> None:
        self._slots = slots
        self._random = random
        self._max_partitions = max_partitions
        self._partitions = 0  # of all sessions
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, request: FetchRequest, wanted: WantedByKey, version: int, now_ms: int
    ) -> tuple[FetchSession | None, list[Wanted]]:
        """The session this request belongs to (None: it is on its own) and everything it wants, in turn; `wanted` is
        what it names."""
        if request.session_epoch in (SESSIONLESS_EPOCH, INITIAL_EPOCH):
            self._drop(request.session_id)
            everything = list(wanted.values())
            if request.session_epoch == SESSIONLESS_EPOCH:
                return None, everything
            return self._create(wanted, version >= 13, now_ms), everything
        session = self._continue(request, wanted, version, now_ms)
        return session, list(session.wanted.values()) if session is not None else []

    def _continue(self, request: FetchRequest, wanted: WantedByKey, version: int, now_ms: int) -> FetchSession | None:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        if request.session_epoch != session.next_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"expected epoch {session.next_epoch}")
        if session.by_topic_id != (version >= 13):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session keeps to topic names or to topic ids")
        forgotten = [
            (topic.topic_id, topic.topic, partition)
            for topic in request.forgotten_topics_data
            for partition in topic.partitions
        ]
        before = len(session.wanted)
        session.update(wanted, forgotten)
        self._partitions += len(session.wanted) - before
        if not session.wanted:
            self._drop(session.id)
            return None
        if self._partitions > self._max_partitions:
            self._drop(session.id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "too many partitions are in sessions; begin anew")
        session.next_epoch = 1 if session.next_epoch == _LAST_EPOCH else session.next_epoch + 1
        session.used_ms = now_ms
        self._sessions.move_to_end(session.id)
        return session

    def _create(self, wanted: WantedByKey, by_topic_id: bool, now_ms: int) -> FetchSession | None:
        while len(self._sessions) >= self._slots or self._partitions + len(wanted) > self._max_partitions:
            if not self._evict(now_ms):
                return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.randint(1, _LAST_EPOCH)
        session = FetchSession(session_id, by_topic_id, wanted, 1, now_ms, now_ms)
        self._sessions[session_id] = session
        self._partitions += len(session.wanted)
        return session

    def _evict(self, now_ms: int) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms <= _EVICTABLE_AFTER_MS:
            return False
        self._drop(oldest.id)
        return True

    def _drop(self, session_id: int) -> None:
        dropped = self._sessions.pop(session_id, None)
        if dropped is not None:
            self._partitions -= len(dropped.wanted)
