"""Records of a consumer group, as Kafka writes them. Topics and partitions are in ascending order."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from strandline.coordinator.consumer.member import Assignment, Member, OwnedPartitions
from strandline.coordinator.records import CoordinatorRecord
from strandline.model.ids import Uuid
from strandline.protocol.messages import group_records as messages


class ResolvedRegex(msgspec.Struct, frozen=True):
    """Topics that match a regular expression, as of a version of the metadata."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def member_record(group_id: str, member: Member) -> CoordinatorRecord:
    value = messages.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=member.classic,
    )
    return CoordinatorRecord(messages.ConsumerGroupMemberMetadataKey(group_id, member.member_id), value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = messages.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(messages.ConsumerGroupMetadataKey(group_id), value)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    partitions = [messages.TopicPartition(topic, sorted(target[topic])) for topic in sorted(target)]
    value = messages.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=partitions)
    return CoordinatorRecord(messages.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    value = messages.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    return CoordinatorRecord(messages.ConsumerGroupTargetAssignmentMetadataKey(group_id), value)


def current_assignment_record(group_id: str, member: Member) -> CoordinatorRecord:
    value = messages.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=int(member.state),
        assigned_partitions=_topic_partitions(member.assigned),
        partitions_pending_revocation=_topic_partitions(member.pending_revocation),
    )
    return CoordinatorRecord(messages.ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id), value)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    value = messages.ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return CoordinatorRecord(messages.ConsumerGroupRegularExpressionKey(group_id, regex), value)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return CoordinatorRecord(messages.ConsumerGroupRegularExpressionKey(group_id, regex), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """In Kafka's order: what a member owns, what it should own, the member."""
    return [
        CoordinatorRecord(messages.ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        CoordinatorRecord(messages.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        CoordinatorRecord(messages.ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]


def _topic_partitions(owned: OwnedPartitions) -> list[messages.TopicPartitions]:
    return [_owned_topic(topic, owned[topic]) for topic in sorted(owned)]


def _owned_topic(topic: Uuid, epochs: Mapping[int, int]) -> messages.TopicPartitions:
    partitions = sorted(epochs)
    return messages.TopicPartitions(topic, partitions, [epochs[each] for each in partitions])
