"""The leader's side of incremental fetch sessions (KIP-227), shared by consumers and followers: the broker remembers
the partitions of a session, so that a request names only those that changed and a response only those with news. A
machine; `handlers/fetch` passes it every request, and leaders notify the sessions of their followers.

The partitions of a session keep an order, so that all get their share of a response limited in bytes: one that returned
records moves to the end.

A follower's session may hold many thousands of partitions, of which few have traffic. A partition that is fully caught
up and was sent everything is skipped by later fetches until its leader has news for it, so that a fetch costs only the
partitions with news.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from random import Random

import msgspec

from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid
from strandline.protocol.messages.fetch import FetchRequest, PartitionData
from strandline.runtime.watermark import Watermark

SESSIONLESS_EPOCH = -1
INITIAL_EPOCH = 0
_LAST_EPOCH = 2**31 - 1
_EVICTABLE_AFTER_MS = 120_000
# A limit of ours, not Kafka's: each takes some hundred bytes, and a client may name partitions that do not exist.
_MAX_PARTITIONS = 300_000

# A topic is named by its id since version 13 and by its name before; the other one is empty.
SessionKey = tuple[Uuid, str, int]


class RequestedPartition(msgspec.Struct):
    """One partition as the client last requested it, and in a session, as the client knows it from the responses."""

    topic_id: Uuid
    topic: str
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    sent_high_watermark: int = -1
    """The last value sent in this session. An incremental response may omit the partition if nothing differs."""
    sent_log_start_offset: int = -1

    @property
    def key(self) -> SessionKey:
        return self.topic_id, self.topic, self.partition


RequestedPartitions = OrderedDict[SessionKey, RequestedPartition]


def requested_partitions(request: FetchRequest) -> RequestedPartitions:
    """The partitions in the order of the request; if it names one twice, the last mention counts."""
    requested: RequestedPartitions = OrderedDict()
    for topic in request.topics:
        for partition in topic.partitions:
            requested[topic.topic_id, topic.topic, partition.partition] = RequestedPartition(
                topic.topic_id,
                topic.topic,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                max(partition.current_leader_epoch, -1),
                max(partition.last_fetched_epoch, -1),
                partition.log_start_offset,
            )
    return requested


class FetchSession(msgspec.Struct):
    id: int
    by_topic_id: bool
    partitions: RequestedPartitions
    next_epoch: int
    created_ms: int
    used_ms: int
    with_news: dict[SessionKey, None] = msgspec.field(default_factory=dict)
    """The partitions that a fetch of a follower has to look at; the others are skipped."""
    replica_epoch: int | None = None
    """The follower's broker epoch in which the skipped partitions were found to be fully caught up."""
    urgent_news: Watermark = msgspec.field(default_factory=Watermark)
    """Counts the news that a waiting fetch is answered with at once."""

    def update(self, changed: RequestedPartitions, forgotten: Iterable[SessionKey]) -> None:
        for key in forgotten:
            self.partitions.pop(key, None)
            self.with_news.pop(key, None)
        for key, requested in changed.items():
            self.with_news[key] = None
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = requested
            else:
                known.fetch_offset = requested.fetch_offset
                known.max_bytes = requested.max_bytes
                known.current_leader_epoch = requested.current_leader_epoch
                known.last_fetched_epoch = requested.last_fetched_epoch
                known.log_start_offset = requested.log_start_offset

    def must_send(self, requested: RequestedPartition, data: PartitionData) -> bool:
        """Whether an incremental response must contain this partition. Records what the client will have been sent."""
        failed = data.error_code != ErrorCode.NONE
        moved = (
            data.high_watermark != requested.sent_high_watermark
            or data.log_start_offset != requested.sent_log_start_offset
        )
        # -1 after an error, so that the first response without one contains the partition.
        requested.sent_high_watermark = -1 if failed else data.high_watermark
        requested.sent_log_start_offset = data.log_start_offset
        has_records = data.records is not None and len(data.records) > 0
        # The partition may have been forgotten meanwhile: a client that lost its connection continues on another one.
        if has_records and requested.key in self.partitions:
            self.partitions.move_to_end(requested.key)
            self.with_news.pop(requested.key, None)
            self.with_news[requested.key] = None
        return has_records or moved or failed or data.diverging_epoch.epoch >= 0

    def partitions_with_news(self, replica_epoch: int) -> list[RequestedPartition]:
        """The partitions that a fetch of a follower with this broker epoch has to look at, in order. After a new
        registration of the follower these are all."""
        if replica_epoch != self.replica_epoch:
            self.replica_epoch = replica_epoch
            self.with_news = dict.fromkeys(self.partitions)
        return [self.partitions[key] for key in self.with_news]

    def skip_until_news(self, requested: RequestedPartition, data: PartitionData) -> None:
        """The follower is fully caught up. The partition is skipped from now on, unless `data` has yet to be sent."""
        sent = requested.sent_high_watermark == data.high_watermark
        if sent and requested.sent_log_start_offset == data.log_start_offset:
            self.with_news.pop(requested.key, None)

    def on_news(self, key: SessionKey, *, urgent: bool) -> None:
        """The leader has something to send for this partition, or expects something from the next fetch of it."""
        if key in self.partitions:
            self.with_news[key] = None
            if urgent:
                self.urgent_news.advance(self.urgent_news.value + 1)


class FetchSessionCache:
    """All sessions of a broker, in the order of their last use. A client without a session names all its partitions in
    each request."""

    def __init__(self, slots: int, random: Random, max_partitions: int = _MAX_PARTITIONS) -> None:
        self._slots = slots
        self._random = random
        self._max_partitions = max_partitions
        self._partitions = 0  # of all sessions
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, request: FetchRequest, named: RequestedPartitions, version: int, now_ms: int
    ) -> tuple[FetchSession | None, list[RequestedPartition]]:
        """The session of this request (None: it has none) and all partitions it fetches, in order; `named` are those in
        the request."""
        if request.session_epoch in (SESSIONLESS_EPOCH, INITIAL_EPOCH):
            self._drop(request.session_id)
            everything = list(named.values())
            if request.session_epoch == SESSIONLESS_EPOCH:
                return None, everything
            return self._create(named, version >= 13, now_ms), everything
        session = self._continue(request, named, version, now_ms)
        return session, list(session.partitions.values()) if session is not None else []

    def wake_followers(self) -> None:
        """Completes the waiting fetches of followers, so that they request partitions that this broker leads by now."""
        for session in self._sessions.values():
            session.urgent_news.advance(session.urgent_news.value + 1)

    def _continue(
        self, request: FetchRequest, named: RequestedPartitions, version: int, now_ms: int
    ) -> FetchSession | None:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        if request.session_epoch != session.next_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"expected epoch {session.next_epoch}")
        if session.by_topic_id != (version >= 13):
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session uses either topic names or topic ids throughout"
            )
        forgotten = [
            (topic.topic_id, topic.topic, partition)
            for topic in request.forgotten_topics_data
            for partition in topic.partitions
        ]
        before = len(session.partitions)
        session.update(named, forgotten)
        self._partitions += len(session.partitions) - before
        if not session.partitions:
            self._drop(session.id)
            return None
        if self._partitions > self._max_partitions:
            self._drop(session.id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "too many partitions in sessions: it was dropped")
        session.next_epoch = 1 if session.next_epoch == _LAST_EPOCH else session.next_epoch + 1
        session.used_ms = now_ms
        self._sessions.move_to_end(session.id)
        return session

    def _create(self, named: RequestedPartitions, by_topic_id: bool, now_ms: int) -> FetchSession | None:
        while len(self._sessions) >= self._slots or self._partitions + len(named) > self._max_partitions:
            if not self._evict(now_ms):
                return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.randint(1, _LAST_EPOCH)
        session = FetchSession(session_id, by_topic_id, named, 1, now_ms, now_ms)
        self._sessions[session_id] = session
        self._partitions += len(session.partitions)
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
            self._partitions -= len(dropped.partitions)
