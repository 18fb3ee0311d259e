"""State of one classic group.

    from \\ to            Empty  Preparing  Completing  Stable  Dead
    Empty                  ·       x           ·          ·      x
    PreparingRebalance     x       ·           x          ·      x
    CompletingRebalance    ·       x           ·          x      x
    Stable                 ·       x           ·          ·      x
    Dead                   ·       ·           ·          ·      ·

The record of a group (members, their subscriptions and assignments) is written when the leader's assignment arrives,
when the group becomes empty, and when a static member returns under a new member id. Everything else (members that wait
in a join, pending members) is not replicated: after a failover members join again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

import msgspec

from strandline.coordinator.decision import Token
from strandline.coordinator.records import CoordinatorRecord
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.codec import decode
from strandline.protocol.errors import MalformedMessage
from strandline.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from strandline.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class State(Enum):
    """Values are the names on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL_MOVES: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.EMPTY, State.COMPLETING_REBALANCE, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.PREPARING_REBALANCE, State.STABLE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset(),
}


class Protocol(msgspec.Struct, frozen=True):
    name: str
    metadata: bytes


class Member(msgspec.Struct, kw_only=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    """In the member's order of preference."""
    assignment: bytes = b""
    join_token: Token | None = None
    """Of the JoinGroup that waits for the join phase to end."""
    sync_token: Token | None = None
    """Of the SyncGroup that waits for the leader's assignment."""
    is_new: bool = False
    """Until its first generation is complete: it does not know its member id yet and cannot send heartbeats."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata_of(self, protocol_name: str | None) -> bytes:
        return next((each.metadata for each in self.protocols if each.name == protocol_name), b"")

    def vote(self, candidates: frozenset[str]) -> str:
        return next(each.name for each in self.protocols if each.name in candidates)


class ClassicGroup:
    type_name: Final = "classic"

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.previous_state = State.DEAD
        self.state_timestamp_ms = now_ms
        """Wall time of the last transition."""
        self.protocol_type: str | None = None
        """None for a group that only commits offsets."""
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.generation = 0
        self.members: dict[str, Member] = {}
        """In the order in which they joined."""
        self.static_members: dict[str, str] = {}
        """Member id by instance id."""
        self.pending_joins: dict[str, None] = {}
        """Member ids that were handed out with MEMBER_ID_REQUIRED and have not joined yet."""
        self.pending_syncs: dict[str, None] = {}
        """Members of this generation that have not sent SyncGroup yet."""
        self.new_member_added = False
        """Since the initial rebalance delay was last started."""
        self.initial_delay: tuple[int, int] | None = None
        """While an empty group waits for its first members: this delay, and how long it may be prolonged by, in ms."""
        self.joining = 0
        """Number of members that wait in JoinGroup."""
        self._support: dict[str, int] = {}
        """Number of members that support each protocol."""

    def become(self, state: State, now_ms: int) -> None:
        assert state in LEGAL_MOVES[self.state], f"{self.group_id}: {self.state.value} to {state.value}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms

    def state_name(self, at: int) -> str:
        """A state is not replicated: it is the same at every moment."""
        return self.state.value

    @property
    def has_members(self) -> bool:
        return bool(self.members)

    @property
    def can_rebalance(self) -> bool:
        return State.PREPARING_REBALANCE in LEGAL_MOVES[self.state]

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def have_all_joined(self) -> bool:
        return not self.pending_joins and self.joining == len(self.members)

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def add(self, member: Member, token: Token | None, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_support(member, 1)
        self.wait_in_join(member, token)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_support(member, -1)
            self.take_join_token(member)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        return member

    def wait_in_join(self, member: Member, token: Token | None) -> None:
        """Replaces the token of an earlier request, whose client has sent another one."""
        self.joining += (token is not None) - (member.join_token is not None)
        member.join_token = token

    def take_join_token(self, member: Member) -> Token | None:
        token = member.join_token
        self.wait_in_join(member, None)
        return token

    def set_protocols(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        self._count_support(member, -1)
        member.protocols = protocols
        self._count_support(member, 1)

    def _count_support(self, member: Member, step: int) -> None:
        for name in dict.fromkeys(each.name for each in member.protocols):
            count = self._support.get(name, 0) + step
            if count:
                self._support[name] = count
            else:
                del self._support[name]

    def rename_static(self, member: Member, member_id: str) -> None:
        """A static member returned under a new member id; it keeps its place in the order of members."""
        assert member.instance_id is not None
        old_id = member.member_id
        member.member_id = member_id
        self.members = {each.member_id: each for each in self.members.values()}
        self.static_members[member.instance_id] = member_id
        if self.is_leader(old_id):
            self.leader_id = member_id

    def elect_joined_leader(self) -> bool:
        """Makes sure that the leader has rejoined. False when no member has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join_token is not None:
            return True
        joined = next((member for member in self.members.values() if member.join_token is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols can join: the same type, and one protocol that all members support."""
        if not self.members:
            return bool(protocol_type) and bool(list(names))
        return self.protocol_type == protocol_type and any(
            self._support.get(name) == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Each member votes for its first protocol among those that all support; most votes win."""
        candidates = frozenset(name for name, count in self._support.items() if count == len(self.members))
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def next_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.become(State.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.leader_id = None
            self.become(State.EMPTY, now_ms)

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Raises FENCED_INSTANCE_ID or UNKNOWN_MEMBER_ID."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id}")
            if known != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID, f"instance {instance_id} has rejoined under another member id"
                )
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{self.group_id} has no member {member_id}")
        return member

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION, f"{self.group_id} is in generation {self.generation}, not {generation}"
            )

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Of a group of consumers with members; a subscription that cannot be read counts as one to every topic."""
        if not self.members or not self.uses_consumer_protocol:
            return False
        subscriptions = [subscribed_topics(member.metadata_of(self.protocol_name)) for member in self.members.values()]
        return any(topics is None or topic in topics for topics in subscriptions)

    def may_expire_offsets_of(self, topic: str) -> bool:
        if self.protocol_type is None or self.state is State.EMPTY:
            return True
        is_stable = self.state is State.STABLE and self.uses_consumer_protocol
        return is_stable and not self.is_subscribed_to(topic)

    def record(self, assignments: Mapping[str, bytes] | None = None) -> CoordinatorRecord:
        """With the assignments given, or those that members have."""
        members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_of(self.protocol_name),
                assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        ]
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.state_timestamp_ms,
            members=members,
        )
        return CoordinatorRecord(GroupMetadataKey(self.group_id), value)

    def tombstone(self) -> CoordinatorRecord:
        return CoordinatorRecord(GroupMetadataKey(self.group_id), None)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [self.tombstone()]

    @classmethod
    def of_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        group = cls(group_id, value.current_state_timestamp)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.leader_id = value.leader
        for each in value.members:
            member = Member(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout_ms=each.rebalance_timeout if each.rebalance_timeout >= 0 else each.session_timeout,
                session_timeout_ms=each.session_timeout,
                protocols=(Protocol(value.protocol or "", each.subscription),),
                assignment=each.assignment,
            )
            group.members[member.member_id] = member
            group._count_support(member, 1)
            if member.instance_id is not None:
                group.static_members[member.instance_id] = member.member_id
        if group.members:
            group.state = State.STABLE
        return group


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics in a consumer's subscription (ConsumerProtocolSubscription). None when it cannot be read."""
    try:
        version = int.from_bytes(metadata[:2], "big", signed=True)
        newest = ConsumerProtocolSubscription.versions[1]
        subscription, _ = decode(ConsumerProtocolSubscription, min(version, newest), metadata, 2)
    except MalformedMessage:
        return None
    return frozenset(subscription.topics)
