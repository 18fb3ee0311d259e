"""ConsumerGroupDescribe (69): a consumer group as it is committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strandline.coordinator.consumer.group import ConsumerGroup
from strandline.coordinator.consumer.member import Member
from strandline.coordinator.consumer.target import preferred_assignor
from strandline.coordinator.consumer.topics import Topics
from strandline.model.ids import Uuid
from strandline.protocol.messages import consumer_groups as messages

_CLASSIC = 0
_CONSUMER = 1


def describe_consumer_group(
    group: ConsumerGroup, at: int, topics: Topics, default_assignor: str
) -> messages.DescribedGroup:
    return messages.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name(at),
        group_epoch=group.epoch(at),
        assignment_epoch=group.assignment_epoch(at),
        assignor_name=preferred_assignor(group, at) or default_assignor,
        members=[_described(group, member, at, topics) for member in group.members.values(at)],
    )


def _described(group: ConsumerGroup, member: Member, at: int, topics: Topics) -> messages.Member:
    return messages.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex,
        assignment=_assignment(member.assigned, topics),
        target_assignment=_assignment(group.targets.get(member.member_id, at) or {}, topics),
        member_type=_CLASSIC if member.uses_classic_protocol else _CONSUMER,
    )


def _assignment(
    partitions: Mapping[Uuid, Iterable[int]], topics: Topics
) -> messages.ConsumerGroupDescribeResponseAssignment:
    """Topics that were deleted are left out."""
    return messages.ConsumerGroupDescribeResponseAssignment(
        [
            messages.ConsumerGroupDescribeResponseTopicPartitions(topic_id, topic.name, sorted(partitions[topic_id]))
            for topic_id in sorted(partitions)
            if (topic := topics.by_id(topic_id)) is not None
        ]
    )
