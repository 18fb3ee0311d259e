"""A member of a classic group: which request it sends next, and which partitions it may read. A core; `consumer` is its
shell.

    UNJOINED ──JoinGroup──▶ JOINING ──SyncGroup──▶ SYNCING ──assignment──▶ STABLE ──rebalance──▶ UNJOINED
    any state ──leave──▶ LEFT,  any state ──an error that retries cannot solve──▶ FAILED

The shell sends `next_request` to the coordinator, one request at a time, and hands the response to `on_response`. When
the partitions of the member have to change, `change` says how; the application is notified, commits, and the shell
calls `on_change_applied`. Invariant: JoinGroup is sent only after the application has given up what the protocol
demands, which is everything with an eager assignor, and with `cooperative-sticky` alone only the partitions that the
group leader took away (KIP-429). The member that leads the group assigns the partitions of all members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from strandline.client.core.assignment_change import Change
from strandline.client.core.assignors import COOPERATIVE_STICKY, Subscriber, assign
from strandline.client.core.consumer_payloads import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from strandline.client.settings import GroupSettings
from strandline.model.errors import ErrorCode, KafkaError, code_of
from strandline.model.ids import TopicPartition
from strandline.protocol.errors import MalformedMessage
from strandline.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from strandline.protocol.types import Message

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1


class State(Enum):
    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    LEFT = "left"
    FAILED = "failed"


LEGAL_MOVES = {
    State.UNJOINED: {State.JOINING},
    State.JOINING: {State.SYNCING, State.UNJOINED},
    State.SYNCING: {State.STABLE, State.UNJOINED},
    State.STABLE: {State.UNJOINED},
    State.LEFT: set(),
    State.FAILED: set(),
}
_FROM_ANY_STATE = {State.LEFT, State.FAILED}

COORDINATOR_LOST = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_MEMBERSHIP_LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class GroupMember:
    def __init__(
        self, group_id: str, topics: Iterable[str], settings: GroupSettings, now_ms: int, backoff_ms: int
    ) -> None:
        self.group_id = group_id
        self.settings = settings
        self.state = State.UNJOINED
        self.member_id = ""
        self.generation = NO_GENERATION
        self.owned: tuple[TopicPartition, ...] = ()
        self.change: Change | None = None
        self.error: KafkaError | None = None
        """Why the member has failed."""
        self.coordinator_lost = False
        """The shell looks the coordinator up again before the next request."""
        self._topics = tuple(dict.fromkeys(topics))
        self._is_cooperative = settings.assignors == (COOPERATIVE_STICKY,)
        self._backoff_ms = backoff_ms
        self._not_before_ms = now_ms
        self._next_heartbeat_ms = now_ms
        self._last_poll_ms = now_ms
        self._rejoin = False
        self._must_leave = False
        self._in_flight = False
        self._owned_generation = NO_GENERATION
        self._protocol = ""
        self._joined: list[Subscriber] | None = None
        """The members to whom this one, as the leader, assigns partitions."""
        self._counts: dict[str, int] | None = None
        self._reason: str | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        return self._topics

    @property
    def wanted_counts(self) -> tuple[str, ...]:
        """Topics whose partition counts the leader needs before it can assign."""
        if self.state is not State.SYNCING or self._joined is None or self._counts is not None:
            return ()
        return tuple(sorted({topic for each in self._joined for topic in each.topics}))

    @property
    def leads(self) -> bool:
        return self.state is State.STABLE and self._joined is not None

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replaces the subscription; the member rejoins with it."""
        topics = tuple(dict.fromkeys(topics))
        if topics != self._topics:
            self._topics = topics
            self._start_rejoin("the subscription has changed")

    def on_poll(self, now_ms: int) -> None:
        """The application polls: it processes records, and rebalances do not wait for it."""
        self._last_poll_ms = now_ms
        self._must_leave = False

    def next_request(self, now_ms: int) -> Message | None:
        """The request to send now; its response, or that there is none, has to be reported before the next one."""
        if self._in_flight or self.error is not None or now_ms < self._not_before_ms:
            return None
        if self._has_stopped_polling(now_ms):
            return None
        request: Message | None = None
        if self.state is State.UNJOINED or (self.state is State.STABLE and self._rejoin):
            request = self._join() or self._heartbeat(now_ms)
        elif self.state is State.SYNCING and not self.wanted_counts:
            request = self._sync()
        elif self.state is State.STABLE:
            request = self._heartbeat(now_ms)
        self._in_flight = request is not None
        return request

    def next_wakeup_ms(self) -> int | None:
        """The time at which `next_request` may have a request, if nothing else happens before."""
        if self._in_flight or self.error is not None or self.state in _FROM_ANY_STATE or self._must_leave:
            return None
        if self.state is State.STABLE:
            limit_ms = self._last_poll_ms + self.settings.max_poll_interval_ms
            return max(self._not_before_ms, min(self._next_heartbeat_ms, limit_ms))
        return self._not_before_ms if self.change is None else None

    def on_response(self, response: Message, now_ms: int) -> None:
        self._in_flight = False
        self._not_before_ms = now_ms
        if isinstance(response, JoinGroupResponse):
            self._on_join(response, now_ms)
        elif isinstance(response, SyncGroupResponse):
            self._on_sync(response, now_ms)
        elif isinstance(response, HeartbeatResponse):
            self._on_heartbeat(code_of(response.error_code), now_ms)

    def on_no_response(self, now_ms: int) -> None:
        """The connection ended or timed out: the coordinator may have changed, or the request may have been lost."""
        self._in_flight = False
        self.coordinator_lost = True
        self._not_before_ms = now_ms + self._backoff_ms
        if self.state is State.JOINING or self.state is State.SYNCING:
            self._become(State.UNJOINED)

    def on_partition_counts(self, counts: Mapping[str, int]) -> None:
        """The partitions of the topics that the group subscribes to: on request, and again when they have changed."""
        counts = dict(counts)
        if self.leads and self._counts is not None and counts != self._counts:
            self._start_rejoin("the partitions of the subscribed topics have changed")
        self._counts = counts

    @property
    def group_topics(self) -> tuple[str, ...]:
        """The topics of all members, if this one leads the group."""
        return tuple(sorted({topic for each in self._joined or () for topic in each.topics}))

    def on_change_applied(self, change: Change) -> None:
        """The application has given up and taken over the partitions of this change, unless it was replaced."""
        if self.change is not change:
            return
        self.change = None
        kept = [each for each in self.owned if each not in change.revoked]
        self.owned = tuple(sorted({*kept, *change.assigned}))
        self._owned_generation = self.generation if self.owned else NO_GENERATION
        if change.revoked and not change.is_lost and self._is_cooperative:
            self._start_rejoin("partitions were revoked, so that another member can receive them")

    def on_commit_error(self, code: ErrorCode, now_ms: int) -> None:
        """A commit was rejected: its error says as much about the membership as that of a heartbeat."""
        if code in COORDINATOR_LOST:
            self.coordinator_lost = True
        elif self.state is State.STABLE:
            self._on_heartbeat(code, now_ms)

    def on_fatal_error(self, error: KafkaError) -> None:
        """The coordinator cannot be used, for example because it does not serve groups."""
        self._in_flight = False
        self._fail(error.code, error.why)

    def leave(self, reason: str) -> LeaveGroupRequest | None:
        """Ends the membership. A static member sends nothing: it keeps its partitions until its session expires."""
        joined = self.member_id and self.state not in _FROM_ANY_STATE
        self._become(State.LEFT)
        return self._leave_request(reason) if joined and self.settings.instance_id is None else None

    def _leave_request(self, reason: str) -> LeaveGroupRequest:
        identity = MemberIdentity(self.member_id, self.settings.instance_id, reason)
        return LeaveGroupRequest(group_id=self.group_id, members=[identity])

    def _has_stopped_polling(self, now_ms: int) -> bool:
        """Ends the membership if the application has not polled for too long: other members take over."""
        if self.state is State.STABLE and now_ms - self._last_poll_ms >= self.settings.max_poll_interval_ms:
            self._must_leave = True
            self._lose()
        return self._must_leave

    @property
    def stopped_polling(self) -> bool:
        return self._must_leave

    def expired_leave_request(self) -> LeaveGroupRequest | None:
        """The request that notifies the coordinator, once, after the poll interval has passed."""
        if not self._must_leave or not self.member_id or self.settings.instance_id is not None:
            return None
        request = self._leave_request("the application has stopped polling")
        self.member_id = ""
        return request

    def _start_rejoin(self, reason: str) -> None:
        self._rejoin = True
        self._reason = reason

    def _join(self) -> JoinGroupRequest | None:
        if self.change is None and self.owned and not self._is_cooperative:
            self.change = Change(revoked=self.owned)
        if self.change is not None:
            return None
        if self.state is State.STABLE:
            self._become(State.UNJOINED)
        self._become(State.JOINING)
        self._rejoin, self._joined, self._counts = False, None, None
        subscriber = Subscriber(self.member_id, self._topics, self.owned, self._owned_generation)
        payload = encode_subscription(subscriber, self.settings.rack)
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.settings.session_timeout_ms,
            rebalance_timeout_ms=self.settings.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name, payload) for name in self.settings.assignors],
            reason=self._reason,
        )

    def _sync(self) -> SyncGroupRequest:
        assignments: list[SyncGroupRequestAssignment] = []
        if self._joined is not None:
            assigned = assign(self._protocol, self._joined, self._counts or {})
            assignments = [
                SyncGroupRequestAssignment(member_id, encode_assignment(partitions))
                for member_id, partitions in assigned.items()
            ]
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=assignments,
        )

    def _heartbeat(self, now_ms: int) -> HeartbeatRequest | None:
        """The next heartbeat, also while the application has not revoked its partitions yet: the session continues."""
        if self.state is not State.STABLE or now_ms < self._next_heartbeat_ms:
            return None
        self._next_heartbeat_ms = now_ms + self.settings.heartbeat_interval_ms
        return HeartbeatRequest(self.group_id, self.generation, self.member_id, self.settings.instance_id)

    def _on_join(self, response: JoinGroupResponse, now_ms: int) -> None:
        if self.state is not State.JOINING:
            return  # the member has left meanwhile
        code = code_of(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self._become(State.UNJOINED)
            return
        if code is not ErrorCode.NONE:
            self._on_error(code, "joining", now_ms)
            return
        self.member_id, self.generation = response.member_id, response.generation_id
        self._protocol = response.protocol_name or ""
        self._reason = None
        if response.leader == response.member_id and not response.skip_assignment:
            try:
                self._joined = [
                    decode_subscription(each.metadata, each.member_id, each.group_instance_id)
                    for each in response.members
                ]
            except MalformedMessage as error:
                self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the subscription of a member is invalid: {error}")
                return
        self._become(State.SYNCING)

    def _on_sync(self, response: SyncGroupResponse, now_ms: int) -> None:
        if self.state is not State.SYNCING:
            return
        code = code_of(response.error_code)
        if code is not ErrorCode.NONE:
            self._on_error(code, "receiving the assignment", now_ms)
            return
        try:
            assigned = decode_assignment(response.assignment)
        except MalformedMessage as error:
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the assignment of the leader is invalid: {error}")
            return
        self._become(State.STABLE)
        self._next_heartbeat_ms = now_ms + self.settings.heartbeat_interval_ms
        revoked = tuple(each for each in self.owned if each not in assigned)
        added = tuple(each for each in assigned if each not in self.owned)
        if revoked or added:
            self.change = Change(revoked, added)
        else:
            self._owned_generation = self.generation

    def _on_heartbeat(self, code: ErrorCode, now_ms: int) -> None:
        if self.state is not State.STABLE or code is ErrorCode.NONE:
            return
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._start_rejoin("the group is rebalancing")
        else:
            self._on_error(code, "sending a heartbeat", now_ms)

    def _on_error(self, code: ErrorCode, doing: str, now_ms: int) -> None:
        if code in _MEMBERSHIP_LOST:
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self._lose()
            return
        if code in COORDINATOR_LOST:
            self.coordinator_lost = True
        elif code is not ErrorCode.REBALANCE_IN_PROGRESS and not code.retriable:
            self._fail(code, doing)
            return
        self._not_before_ms = now_ms + (0 if code is ErrorCode.REBALANCE_IN_PROGRESS else self._backoff_ms)
        if self.state is State.JOINING or self.state is State.SYNCING:
            self._become(State.UNJOINED)

    def _lose(self) -> None:
        """The coordinator has removed this member: its partitions may belong to other members already."""
        if self.state is not State.UNJOINED:
            self._become(State.UNJOINED)
        self.generation = NO_GENERATION
        self._joined = None
        if self.owned:
            self.change = Change(revoked=self.owned, is_lost=True)
        else:
            self.change = None

    def _fail(self, code: ErrorCode, doing: str) -> None:
        self.error = KafkaError(code, f"{doing}: group {self.group_id!r}")
        self._become(State.FAILED)
        self.change = Change(revoked=self.owned, is_lost=True) if self.owned else None

    def _become(self, state: State) -> None:
        assert state in LEGAL_MOVES[self.state] or state in _FROM_ANY_STATE, f"{self.state} to {state}"
        self.state = state
