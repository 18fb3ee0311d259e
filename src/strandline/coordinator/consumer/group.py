"""State of one consumer group (KIP-848), on the shard's timeline: built by replaying its records.

Three epochs: the *group epoch* grows with every change of members, subscriptions or subscribed topics; the *assignment
epoch* is the group epoch for which the target assignment was computed; each member has its *member epoch*, which
follows the assignment epoch when the member has revoked what it must.

    Empty        no members
    Assigning    the target assignment is older than the group epoch
    Reconciling  a member is not at its target assignment
    Stable       all are

A partition has at most one owner among the members (`owner`): it is given to its next member only after the previous
one no longer reports it, has left, or was removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from strandline.coordinator.consumer.group_records import (
    ResolvedRegex,
    member_tombstones,
    regex_tombstone,
)
from strandline.coordinator.consumer.member import NO_ASSIGNMENT, Assignment, Member
from strandline.coordinator.records import CoordinatorRecord
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid
from strandline.model.timeline import LATEST, Timeline, TimelineMap
from strandline.protocol.messages import group_records as messages

_EPOCH: Final = "epoch"
_METADATA_HASH: Final = "metadata_hash"
_ASSIGNMENT_EPOCH: Final = "assignment_epoch"
_ASSIGNMENT_TIMESTAMP: Final = "assignment_timestamp_ms"
_HAS_PARTITION_METADATA: Final = "has_partition_metadata"


class State(Enum):
    """Values are the names on the wire."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    type_name: Final = "consumer"
    protocol_type: Final = "consumer"

    def __init__(self, group_id: str, timeline: Timeline) -> None:
        self.group_id = group_id
        self.members: TimelineMap[str, Member] = TimelineMap(timeline)
        self.static_members: TimelineMap[str, str] = TimelineMap(timeline)
        """Member id by instance id."""
        self.targets: TimelineMap[str, Assignment] = TimelineMap(timeline)
        self.regexes: TimelineMap[str, ResolvedRegex] = TimelineMap(timeline)
        self._numbers: TimelineMap[str, int] = TimelineMap(timeline)
        self._owners: TimelineMap[tuple[Uuid, int], str] = TimelineMap(timeline)
        self._topic_subscribers: TimelineMap[str, int] = TimelineMap(timeline)
        self._regex_subscribers: TimelineMap[str, int] = TimelineMap(timeline)
        self._refresh_deadline_ms = 0
        self._refresh_epoch = 0

    def epoch(self, at: int = LATEST) -> int:
        """A new group starts in epoch 1, above the assignment epoch: its first heartbeat computes a target."""
        return self._numbers.get(_EPOCH, at) or 1

    def assignment_epoch(self, at: int = LATEST) -> int:
        return self._numbers.get(_ASSIGNMENT_EPOCH, at) or 0

    @property
    def metadata_hash(self) -> int:
        return self._numbers.get(_METADATA_HASH) or 0

    @property
    def assignment_timestamp_ms(self) -> int:
        """Zero: there is no target assignment yet."""
        return self._numbers.get(_ASSIGNMENT_TIMESTAMP) or 0

    @property
    def has_partition_metadata(self) -> bool:
        """Whether a coordinator before 4.1 left a record of the subscribed topics, which a hash has replaced."""
        return bool(self._numbers.get(_HAS_PARTITION_METADATA))

    def state(self, at: int = LATEST) -> State:
        members = self.members.values(at)
        if not members:
            return State.EMPTY
        assignment_epoch = self.assignment_epoch(at)
        if self.epoch(at) > assignment_epoch:
            return State.ASSIGNING
        is_reconciled = all(member.is_reconciled_to(assignment_epoch) for member in members)
        return State.STABLE if is_reconciled else State.RECONCILING

    def state_name(self, at: int = LATEST) -> str:
        return self.state(at).value

    @property
    def has_members(self) -> bool:
        return len(self.members) > 0

    @property
    def uses_consumer_protocol(self) -> bool:
        return True

    def member(self, member_id: str) -> Member:
        """Raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target(self, member: Member) -> Assignment:
        """Of a static member that returned under a new member id: that of its predecessor."""
        found = self.targets.get(member.member_id)
        if found is None and member.instance_id is not None:
            found = self.targets.get(self.static_members.get(member.instance_id) or "")
        return NO_ASSIGNMENT if found is None else found

    def owner(self, topic_id: Uuid, partition: int) -> str | None:
        return self._owners.get((topic_id, partition))

    def regex_subscribers(self, regex: str) -> int:
        return self._regex_subscribers.get(regex) or 0

    def subscribed_regexes(self) -> list[str]:
        return self._regex_subscribers.keys()

    def subscribed_topics(self, replaced: Iterable[Member] = (), added: Iterable[Member] = ()) -> frozenset[str]:
        """Topics that members subscribe to, by name or by a regular expression that is resolved, after the change."""
        replaced, added = tuple(replaced), tuple(added)
        gone = Counter(topic for member in replaced for topic in member.subscribed_topics)
        names = {topic for topic, count in self._topic_subscribers.items() if count > gone[topic]}
        gone_regexes = Counter(member.subscribed_regex for member in replaced if member.subscribed_regex)
        regexes = {regex for regex, count in self._regex_subscribers.items() if count > gone_regexes[regex]}
        for member in added:
            names.update(member.subscribed_topics)
            if member.subscribed_regex:
                regexes.add(member.subscribed_regex)
        for regex in regexes:
            resolved = self.regexes.get(regex)
            if resolved is not None:
                names |= resolved.topics
        return frozenset(names)

    def topics_of(self, member: Member) -> frozenset[str]:
        """A regular expression that is not resolved yet matches nothing."""
        names = frozenset(member.subscribed_topics)
        resolved = self.regexes.get(member.subscribed_regex) if member.subscribed_regex else None
        return names if resolved is None else names | resolved.topics

    def is_subscribed_to(self, topic: str) -> bool:
        if self._topic_subscribers.get(topic):
            return True
        return any(topic in resolved.topics for resolved in self.regexes.values())

    def may_expire_offsets_of(self, topic: str) -> bool:
        return not self.is_subscribed_to(topic)

    def is_metadata_expired(self, now_ms: int) -> bool:
        """Whether the subscribed topics must be looked at again: they changed, an hour has passed, or the epoch that
        was given the last time has been reverted."""
        return now_ms >= self._refresh_deadline_ms or self.epoch() < self._refresh_epoch

    def refresh_metadata_at(self, deadline_ms: int, epoch: int) -> None:
        self._refresh_deadline_ms, self._refresh_epoch = deadline_ms, epoch

    def request_metadata_refresh(self) -> None:
        self._refresh_deadline_ms = 0

    def replay(self, key: object, value: object) -> None:
        """A record of this group; the value is None for a tombstone."""
        if isinstance(key, messages.ConsumerGroupMetadataKey):
            self._replay_epoch(value)
        elif isinstance(key, messages.ConsumerGroupMemberMetadataKey):
            self._replay_subscription(key.member_id, value)
        elif isinstance(key, messages.ConsumerGroupTargetAssignmentMetadataKey):
            self._replay_target_epoch(value)
        elif isinstance(key, messages.ConsumerGroupTargetAssignmentMemberKey):
            self._replay_target(key.member_id, value)
        elif isinstance(key, messages.ConsumerGroupCurrentMemberAssignmentKey):
            self._replay_current_assignment(key.member_id, value)
        elif isinstance(key, messages.ConsumerGroupRegularExpressionKey):
            self._replay_regex(key.regular_expression, value)
        elif isinstance(key, messages.ConsumerGroupPartitionMetadataKey):
            self._numbers[_HAS_PARTITION_METADATA] = int(value is not None)

    def _replay_epoch(self, value: object) -> None:
        if isinstance(value, messages.ConsumerGroupMetadataValue):
            self._numbers[_EPOCH] = value.epoch
            self._numbers[_METADATA_HASH] = value.metadata_hash

    def _replay_target_epoch(self, value: object) -> None:
        if isinstance(value, messages.ConsumerGroupTargetAssignmentMetadataValue):
            self._numbers[_ASSIGNMENT_EPOCH] = value.assignment_epoch
            self._numbers[_ASSIGNMENT_TIMESTAMP] = value.assignment_timestamp
        else:
            self._numbers[_ASSIGNMENT_EPOCH] = self._numbers[_ASSIGNMENT_TIMESTAMP] = 0

    def _replay_subscription(self, member_id: str, value: object) -> None:
        old = self.members.get(member_id)
        if isinstance(value, messages.ConsumerGroupMemberMetadataValue):
            self._update(old, (old or Member(member_id=member_id)).with_subscription(value))
        elif old is not None:
            self._update(old, None)

    def _replay_current_assignment(self, member_id: str, value: object) -> None:
        old = self.members.get(member_id)
        if isinstance(value, messages.ConsumerGroupCurrentMemberAssignmentValue):
            self._update(old, (old or Member(member_id=member_id)).with_current_assignment(value))
        elif old is not None:
            # The tombstone of the member follows; it keeps its subscription until then.
            self._update(old, old.with_current_assignment(messages.ConsumerGroupCurrentMemberAssignmentValue()))

    def _replay_target(self, member_id: str, value: object) -> None:
        if isinstance(value, messages.ConsumerGroupTargetAssignmentMemberValue):
            self.targets[member_id] = {
                topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions if topic.partitions
            }
        elif member_id in self.targets:
            del self.targets[member_id]

    def _replay_regex(self, regex: str, value: object) -> None:
        if isinstance(value, messages.ConsumerGroupRegularExpressionValue):
            self.regexes[regex] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        elif regex in self.regexes:
            del self.regexes[regex]

    def _update(self, old: Member | None, new: Member | None) -> None:
        """Replaces a member, and what is derived from members."""
        _recount(self._topic_subscribers, old, new, lambda member: member.subscribed_topics)
        _recount(self._regex_subscribers, old, new, _regexes)
        if old is not None and (new is None or _partitions(old) != _partitions(new)):
            for key in _partitions(old):
                if self._owners.get(key) == old.member_id:
                    del self._owners[key]
        if new is not None:
            for key in _partitions(new):
                if self._owners.get(key) != new.member_id:
                    self._owners[key] = new.member_id
        self._update_static_members(old, new)
        if new is not None:
            self.members[new.member_id] = new
        elif old is not None:
            del self.members[old.member_id]

    def _update_static_members(self, old: Member | None, new: Member | None) -> None:
        if new is not None:
            if new.instance_id is not None and self.static_members.get(new.instance_id) != new.member_id:
                self.static_members[new.instance_id] = new.member_id
        elif old is not None and self.static_members.get(old.instance_id or "") == old.member_id:
            del self.static_members[old.instance_id or ""]

    def tombstones(self) -> list[CoordinatorRecord]:
        """Every record of the group, deleted, in Kafka's order."""
        group_id = self.group_id
        member_ids = self.members.keys()
        by_member = [member_tombstones(group_id, member_id) for member_id in member_ids]
        records = [each[0] for each in by_member] + [each[1] for each in by_member]
        records.append(CoordinatorRecord(messages.ConsumerGroupTargetAssignmentMetadataKey(group_id), None))
        records += [each[2] for each in by_member]
        records += [regex_tombstone(group_id, regex) for regex, _ in self.regexes.items()]
        if self.has_partition_metadata:
            records.append(CoordinatorRecord(messages.ConsumerGroupPartitionMetadataKey(group_id), None))
        records.append(CoordinatorRecord(messages.ConsumerGroupMetadataKey(group_id), None))
        return records


def _regexes(member: Member) -> tuple[str, ...]:
    return (member.subscribed_regex,) if member.subscribed_regex else ()


def _partitions(member: Member) -> list[tuple[Uuid, int]]:
    return [
        (topic, partition)
        for owned in (member.assigned, member.pending_revocation)
        for topic, partitions in owned.items()
        for partition in partitions
    ]


def _recount(
    counts: TimelineMap[str, int],
    old: Member | None,
    new: Member | None,
    names: Callable[[Member], tuple[str, ...]],
) -> None:
    before = () if old is None else names(old)
    after = () if new is None else names(new)
    if before == after:
        return
    for name in before:
        count = (counts.get(name) or 0) - 1
        if count > 0:
            counts[name] = count
        else:
            del counts[name]
    for name in after:
        counts[name] = (counts.get(name) or 0) + 1
