"""Upgrade of a live classic group to a consumer group, and back (`group.consumer.migration.policy`).

A classic group of consumers becomes a consumer group when a member joins with ConsumerGroupHeartbeat: its generation
becomes the group epoch, and every member keeps its subscription and assignment and goes on using the classic protocol
(`classic_members`). It becomes a classic group again when its last member with heartbeats leaves: the group epoch
becomes the generation, and the members are asked to rejoin.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.coordinator.classic.group import ClassicGroup
from strandline.coordinator.classic.group import Member as ClassicMember
from strandline.coordinator.classic.group import Protocol as ClassicGroupProtocol
from strandline.coordinator.classic.group import State as ClassicState
from strandline.coordinator.classic.join import join_error
from strandline.coordinator.classic.rebalance import take_sync_token
from strandline.coordinator.classic.sync import sync_error
from strandline.coordinator.consumer.context import ConsumerContext
from strandline.coordinator.consumer.group import ConsumerGroup
from strandline.coordinator.consumer.group_records import (
    current_assignment_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from strandline.coordinator.consumer.member import Assignment, Member, OwnedPartitions
from strandline.coordinator.consumer.metadata_hash import metadata_hash
from strandline.coordinator.consumer.topics import Topics
from strandline.coordinator.decision import Completion, Now
from strandline.coordinator.records import CoordinatorRecord
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid
from strandline.protocol.codec import decode, encode_bytes
from strandline.protocol.errors import MalformedMessage
from strandline.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from strandline.protocol.messages.group_records import ClassicMemberMetadata, ClassicProtocol


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """What a consumer sends in JoinGroup. A version that is not known is read as the newest known. Raises
    MalformedMessage."""
    version = _version_of(metadata)
    return decode(ConsumerProtocolSubscription, min(version, ConsumerProtocolSubscription.versions[1]), metadata, 2)[0]


def _version_of(data: bytes) -> int:
    if len(data) < 2:
        raise MalformedMessage("there is no version")
    return int.from_bytes(data[:2], "big", signed=True)


def encode_assignment(topics: Topics, assignment: Assignment | OwnedPartitions, metadata: bytes) -> bytes:
    """What a consumer receives in SyncGroup, in the version of its own subscription."""
    partitions = [
        TopicPartition(topic.name, sorted(assignment[topic_id]))
        for topic_id in sorted(assignment)
        if (topic := topics.by_id(topic_id)) is not None
    ]
    try:
        version = min(_version_of(metadata), ConsumerProtocolAssignment.versions[1])
    except MalformedMessage:
        version = 0
    return version.to_bytes(2, "big") + encode_bytes(ConsumerProtocolAssignment(partitions), version)


def _decode_assignment(topics: Topics, data: bytes) -> Assignment:
    """Raises MalformedMessage, or GROUP_ID_NOT_FOUND for the data of an assignor that is not Kafka's."""
    if not data:
        return {}
    version = min(_version_of(data), ConsumerProtocolAssignment.versions[1])
    decoded = decode(ConsumerProtocolAssignment, version, data, 2)[0]
    if decoded.user_data:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "an unsupported custom assignor is in use")
    return {
        topic.topic_id: frozenset(each.partitions)
        for each in decoded.assigned_partitions
        if each.partitions and (topic := topics.by_name(each.topic)) is not None
    }


def check_upgrade(context: ConsumerContext, group: ClassicGroup) -> None:
    """Raises GROUP_ID_NOT_FOUND, as Kafka does."""
    settings = context.settings(group.group_id)
    if not settings.may_upgrade:
        problem = "online upgrade is disabled"
    elif not group.uses_consumer_protocol:
        problem = "the group does not use the consumer embedded protocol"
    elif len(group.members) > settings.max_size:
        problem = "the group size exceeds the consumer group maximum size"
    else:
        return
    raise _cannot_upgrade(group, problem)


def _cannot_upgrade(group: ClassicGroup, problem: str) -> KafkaError:
    why = f"Cannot upgrade classic group {group.group_id} to consumer group because {problem}."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)


def upgrade_records(context: ConsumerContext, group: ClassicGroup, now: Now) -> list[CoordinatorRecord]:
    """The classic group deleted, and a consumer group with the same members and assignments."""
    try:
        members = [_upgraded(context.topics, group, member) for member in group.members.values()]
    except MalformedMessage:
        raise _cannot_upgrade(group, "the embedded consumer protocol is malformed") from None
    names = {topic for member in members for topic in member.subscribed_topics}
    group_id, epoch = group.group_id, group.generation
    targets = {
        member.member_id: {topic: frozenset(partitions) for topic, partitions in member.assigned.items()}
        for member in members
    }
    return [
        group.tombstone(),
        *(member_record(group_id, member) for member in members),
        epoch_record(group_id, epoch, metadata_hash(context.topics, names)),
        *(target_record(group_id, member_id, target) for member_id, target in targets.items()),
        target_epoch_record(group_id, epoch, 0),
        *(current_assignment_record(group_id, member) for member in members),
    ]


def _upgraded(topics: Topics, group: ClassicGroup, member: ClassicMember) -> Member:
    subscription = decode_subscription(member.protocols[0].metadata)
    assigned: dict[Uuid, dict[int, int]] = {
        topic: dict.fromkeys(partitions, group.generation)
        for topic, partitions in _decode_assignment(topics, member.assignment).items()
    }
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMemberMetadata(
            member.session_timeout_ms, [ClassicProtocol(each.name, each.metadata) for each in member.protocols]
        ),
        member_epoch=group.generation,
        previous_member_epoch=group.generation,
        assigned=assigned,
    )


def fail_waiting(group: ClassicGroup) -> list[Completion]:
    """Requests that wait in the classic group that is upgraded: their members rejoin."""
    completed = []
    for member in group.members.values():
        if member.join_token is not None:
            error = join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            completed.append(Completion(member.join_token, error))
            member.join_token = None
        token = take_sync_token(member)
        if token is not None:
            completed.append(Completion(token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS)))
    return completed


def may_downgrade(context: ConsumerContext, group: ConsumerGroup, leaving: Sequence[Member], max_size: int) -> bool:
    """Whether only members of the classic protocol are left, and may be a classic group."""
    gone = {member.member_id for member in leaving}
    left = [member for member in group.members.values() if member.member_id not in gone]
    is_classic = bool(left) and all(member.uses_classic_protocol for member in left)
    return is_classic and context.settings(group.group_id).may_downgrade and len(left) <= max_size


def downgraded(context: ConsumerContext, group: ConsumerGroup, leaving: Sequence[Member], now: Now) -> ClassicGroup:
    """The members that stay, as a classic group in the generation of the group epoch."""
    gone = {member.member_id for member in leaving}
    classic = ClassicGroup(group.group_id, now.wall_ms)
    for member in group.members.values():
        if member.member_id not in gone:
            classic.add(_downgraded(member), None, group.protocol_type)
    classic.generation = group.epoch()
    classic.protocol_name = classic.select_protocol()
    classic.previous_state, classic.state = ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE
    for each in classic.members.values():
        target = group.targets.get(each.member_id) or {}
        each.assignment = encode_assignment(context.topics, target, each.metadata_of(classic.protocol_name))
    return classic


def _downgraded(member: Member) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=tuple(
            ClassicGroupProtocol(each.name, bytes(each.metadata)) for each in member.classic.supported_protocols
        ),
    )
