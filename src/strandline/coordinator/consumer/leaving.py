"""Members that leave a consumer group: by request, by session timeout, or because they revoke too slowly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec

from strandline.coordinator.consumer.context import (
    ClassicJoinTimeout,
    ClassicSyncTimeout,
    ConsumerContext,
    ConsumerSession,
    MemberTimer,
    RebalanceTimeout,
)
from strandline.coordinator.consumer.group import ConsumerGroup
from strandline.coordinator.consumer.group_records import (
    current_assignment_record,
    epoch_record,
    member_tombstones,
    regex_tombstone,
)
from strandline.coordinator.consumer.member import NO_PARTITIONS, STATIC_LEAVE_EPOCH, Member, MemberState
from strandline.coordinator.consumer.metadata_hash import metadata_hash
from strandline.coordinator.decision import Now
from strandline.coordinator.records import CoordinatorRecord
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest


def leaving_member(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Member:
    if request.instance_id is None:
        return group.member(request.member_id)
    return check_static_member(group, request.instance_id, request.member_id)


def leave_for_now(group: ConsumerGroup, member: Member) -> list[CoordinatorRecord]:
    """A static member keeps its partitions until its session timeout, and is expected back before."""
    away = msgspec.structs.replace(member, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation=NO_PARTITIONS)
    return [current_assignment_record(group.group_id, away)]


def check_static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> Member:
    """Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def remove_members(
    context: ConsumerContext, group: ConsumerGroup, members: Sequence[Member]
) -> list[CoordinatorRecord]:
    """Records that remove the members, and the next group epoch. Their timers end with them: a timer of a member that
    does not exist does nothing."""
    if not members:
        return []
    group_id = group.group_id
    records: list[CoordinatorRecord] = []
    for member in members:
        records += member_tombstones(group_id, member.member_id)
    regexes = [member.subscribed_regex for member in members if member.subscribed_regex]
    for regex in sorted(set(regexes)):
        if group.regex_subscribers(regex) == regexes.count(regex):
            records.append(regex_tombstone(group_id, regex))
    new_hash = metadata_hash(context.topics, group.subscribed_topics(replaced=members))
    records.append(epoch_record(group_id, group.epoch() + 1, new_hash))
    for member in members:
        for timer in get_args(MemberTimer):
            context.timers.cancel(timer(group_id, member.member_id))
    return records


def timed_out_member(group: ConsumerGroup, key: MemberTimer) -> Member | None:
    """The member that a timer removes, if it still has to be."""
    member = group.members.get(key.member_id)
    if member is None:
        return None
    if isinstance(key, RebalanceTimeout):
        return member if member.state is MemberState.UNREVOKED_PARTITIONS else None
    if isinstance(key, ClassicJoinTimeout | ClassicSyncTimeout):
        return member if member.uses_classic_protocol else None
    return member


def restart_timers(context: ConsumerContext, group: ConsumerGroup, now: Now) -> None:
    """After loading: sessions start again in full, and members that revoke get their whole rebalance timeout."""
    for member in group.members.values():
        restart_session(context, group, member, now)
        if member.state is MemberState.UNREVOKED_PARTITIONS and not member.uses_classic_protocol:
            key = RebalanceTimeout(group.group_id, member.member_id)
            context.timers.schedule(key, now.ms + member.rebalance_timeout_ms)


def restart_session(context: ConsumerContext, group: ConsumerGroup, member: Member, now: Now) -> None:
    if member.classic is not None:
        timeout_ms = member.classic.session_timeout_ms
    else:
        timeout_ms = context.settings(group.group_id).session_timeout_ms
    context.timers.schedule(ConsumerSession(group.group_id, member.member_id), now.ms + timeout_ms)
