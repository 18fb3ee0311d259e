"""A member of a consumer group (KIP-848): the group coordinator assigns partitions, and one request, the heartbeat,
joins, acknowledges and leaves. A core with the methods of `core/group_member`; `consumer` is the shell of both.

    UNJOINED ──heartbeat with epoch 0──▶ STABLE ──fenced or unknown──▶ UNJOINED
    any state ──leave──▶ LEFT,  any state ──an error that retries cannot solve──▶ FAILED

The coordinator sends an assignment when it has changed. `change` is the difference to what the member owns; when the
application has applied it, the next heartbeat, sent at once, lists the owned partitions. The coordinator gives a
partition to another member only after that. Invariant: a heartbeat never lists a partition that was given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from strandline.client.core.assignment_change import Change
from strandline.client.core.group_member import COORDINATOR_LOST, State
from strandline.client.settings import GroupSettings
from strandline.model.errors import ErrorCode, KafkaError, code_of
from strandline.model.ids import TopicPartition, Uuid
from strandline.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from strandline.protocol.types import Message

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
_MEMBERSHIP_LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_Target = dict[Uuid, tuple[int, ...]]


class ConsumerMember:
    def __init__(
        self,
        group_id: str,
        topics: Iterable[str],
        settings: GroupSettings,
        now_ms: int,
        backoff_ms: int,
        member_id: str,
        name_of: Callable[[Uuid], str | None],
        id_of: Callable[[str], Uuid],
    ) -> None:
        """`name_of` and `id_of` look topics up in the client's metadata."""
        self.group_id = group_id
        self.settings = settings
        self.state = State.UNJOINED
        self.member_id = member_id
        self.generation = JOIN_EPOCH
        """The member epoch."""
        self.owned: tuple[TopicPartition, ...] = ()
        self.change: Change | None = None
        self.error: KafkaError | None = None
        self.coordinator_lost = False
        self._topics = tuple(dict.fromkeys(topics))
        self._name_of = name_of
        self._id_of = id_of
        self._backoff_ms = backoff_ms
        self._not_before_ms = now_ms
        self._next_heartbeat_ms = now_ms
        self._last_poll_ms = now_ms
        self._interval_ms = settings.heartbeat_interval_ms
        self._in_flight = False
        self._sends_everything = True
        """Also what has not changed: after a join, and after a request without a response."""
        self._must_acknowledge = False
        self._must_leave = False
        self._leave_sent = False
        self._target: _Target | None = None
        """An assignment with topics that the client's metadata lacks."""

    @property
    def topics(self) -> tuple[str, ...]:
        return self._topics

    @property
    def wanted_counts(self) -> tuple[str, ...]:
        """Topics whose metadata is needed, to name the partitions of an assignment."""
        return () if self._target is None else self._topics

    @property
    def leads(self) -> bool:
        return False

    @property
    def group_topics(self) -> tuple[str, ...]:
        return self._topics

    @property
    def stopped_polling(self) -> bool:
        return self._must_leave

    def subscribe(self, topics: Iterable[str]) -> None:
        topics = tuple(dict.fromkeys(topics))
        if topics != self._topics:
            self._topics = topics
            self._sends_everything = True
            self._next_heartbeat_ms = 0

    def on_poll(self, now_ms: int) -> None:
        self._last_poll_ms = now_ms
        self._must_leave = self._leave_sent = False

    def on_partition_counts(self, counts: Mapping[str, int]) -> None:
        """The metadata was refreshed."""
        if self._target is not None:
            target, self._target = self._target, None
            self._assign(target, is_last_try=True)

    def next_request(self, now_ms: int) -> Message | None:
        if self._in_flight or self.error is not None or self.state in (State.LEFT, State.FAILED):
            return None
        if self.state is State.STABLE and now_ms - self._last_poll_ms >= self.settings.max_poll_interval_ms:
            self._must_leave = True
            self._lose()
        if self._must_leave or now_ms < self._not_before_ms:
            return None
        if self.state is State.UNJOINED:
            if self.change is not None:
                return None
            self._sends_everything = True
        elif now_ms < self._next_heartbeat_ms and not self._must_acknowledge:
            return None
        self._in_flight = True
        self._next_heartbeat_ms = now_ms + self._interval_ms
        return self._heartbeat()

    def next_wakeup_ms(self) -> int | None:
        if self._in_flight or self.error is not None or self.state in (State.LEFT, State.FAILED) or self._must_leave:
            return None
        if self.state is State.UNJOINED:
            return self._not_before_ms if self.change is None else None
        limit_ms = self._last_poll_ms + self.settings.max_poll_interval_ms
        due_ms = 0 if self._must_acknowledge else self._next_heartbeat_ms
        return max(self._not_before_ms, min(due_ms, limit_ms))

    def on_response(self, response: Message, now_ms: int) -> None:
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        self._in_flight = False
        self._not_before_ms = now_ms
        if self.state in (State.LEFT, State.FAILED) or self._must_leave:
            return
        code = code_of(response.error_code)
        if code is not ErrorCode.NONE:
            self._on_error(code, response.error_message or "sending a heartbeat", now_ms)
            return
        self.state = State.STABLE
        self.member_id = response.member_id or self.member_id
        self.generation = response.member_epoch
        self._interval_ms = response.heartbeat_interval_ms or self._interval_ms
        if response.assignment is not None:
            self._assign(
                {each.topic_id: tuple(each.partitions) for each in response.assignment.topic_partitions},
                is_last_try=False,
            )

    def on_no_response(self, now_ms: int) -> None:
        self._in_flight = False
        self.coordinator_lost = True
        self._sends_everything = True
        self._not_before_ms = now_ms + self._backoff_ms
        self._next_heartbeat_ms = self._not_before_ms

    def on_change_applied(self, change: Change) -> None:
        if self.change is not change:
            return
        self.change = None
        kept = [each for each in self.owned if each not in change.revoked]
        self.owned = tuple(sorted({*kept, *change.assigned}))
        self._must_acknowledge = not change.is_lost

    def on_commit_error(self, code: ErrorCode, now_ms: int) -> None:
        if code in COORDINATOR_LOST:
            self.coordinator_lost = True
        elif self.state is State.STABLE and code in _MEMBERSHIP_LOST:
            self._lose()
        elif code is ErrorCode.STALE_MEMBER_EPOCH:
            self._next_heartbeat_ms = now_ms  # its response has the new epoch

    def on_fatal_error(self, error: KafkaError) -> None:
        self._in_flight = False
        self._fail(error.code, error.why)

    def leave(self, reason: str) -> ConsumerGroupHeartbeatRequest | None:
        """A static member leaves for the time being: its partitions wait for it until its session expires."""
        was_joined = self.state is State.STABLE
        self.state = State.LEFT
        return self._leave_request() if was_joined else None

    def expired_leave_request(self) -> ConsumerGroupHeartbeatRequest | None:
        if not self._must_leave or self._leave_sent:
            return None
        self._leave_sent = True
        return self._leave_request()

    def _leave_request(self) -> ConsumerGroupHeartbeatRequest:
        static = self.settings.instance_id is not None and not self._must_leave
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=STATIC_LEAVE_EPOCH if static else LEAVE_EPOCH,
            instance_id=self.settings.instance_id,
        )

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        everything = self._sends_everything
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.generation,
            instance_id=self.settings.instance_id,
        )
        if everything:
            request.rack_id = self.settings.rack
            request.rebalance_timeout_ms = self.settings.max_poll_interval_ms
            request.subscribed_topic_names = sorted(self._topics)
            request.server_assignor = self.settings.server_assignor
        if everything or self._must_acknowledge:
            request.topic_partitions = self._owned_by_topic()
        self._sends_everything = self._must_acknowledge = False
        return request

    def _owned_by_topic(self) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        topics: dict[str, ConsumerGroupHeartbeatRequestTopicPartitions] = {}
        revoked = () if self.change is None else self.change.revoked
        for each in self.owned:
            if self.change is not None and self.change.is_lost and each in revoked:
                continue
            known = topics.get(each.topic)
            if known is None:
                known = topics[each.topic] = ConsumerGroupHeartbeatRequestTopicPartitions(self._id_of(each.topic))
            known.partitions.append(each.partition)
        return list(topics.values())

    def _assign(self, target: _Target, *, is_last_try: bool) -> None:
        """Topics that are still unknown after a refresh were deleted; the next assignment leaves them out."""
        names = {topic_id: self._name_of(topic_id) for topic_id in target}
        if not is_last_try and any(name is None for name in names.values()):
            self._target = target
            return
        assigned = [
            TopicPartition(name, index)
            for topic_id, indexes in target.items()
            if (name := names[topic_id]) is not None
            for index in indexes
        ]
        revoked = tuple(each for each in self.owned if each not in assigned)
        added = tuple(sorted(each for each in assigned if each not in self.owned))
        self.change = Change(revoked, added) if revoked or added else None
        self._must_acknowledge = self._must_acknowledge or self.change is None

    def _on_error(self, code: ErrorCode, doing: str, now_ms: int) -> None:
        if code in _MEMBERSHIP_LOST:
            self._lose()
        elif code in COORDINATOR_LOST or code.retriable:
            self.coordinator_lost = self.coordinator_lost or code in COORDINATOR_LOST
            self._sends_everything = True
            self._not_before_ms = now_ms + self._backoff_ms
            self._next_heartbeat_ms = self._not_before_ms
        else:
            self._fail(code, doing)

    def _lose(self) -> None:
        self.state = State.UNJOINED
        self.generation = JOIN_EPOCH
        self._target = None
        self._must_acknowledge = False
        self.change = Change(revoked=self.owned, is_lost=True) if self.owned else None

    def _fail(self, code: ErrorCode, doing: str) -> None:
        self.error = KafkaError(code, f"{doing}: group {self.group_id!r}")
        self.state = State.FAILED
        self.change = Change(revoked=self.owned, is_lost=True) if self.owned else None
