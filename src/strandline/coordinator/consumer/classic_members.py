"""Members of a consumer group that use the classic protocol, while the group is being upgraded or downgraded.

JoinGroup does what a heartbeat of the new protocol does: it updates the member, computes the target and reconciles; the
partitions in its subscription are those that it owns. The generation of such a member is its member epoch. SyncGroup
returns the assignment; Heartbeat asks the member to rejoin when it has something to revoke or to gain.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from strandline.coordinator.classic.join import Joining, join_error
from strandline.coordinator.consumer.context import ClassicJoinTimeout, ClassicSyncTimeout, ConsumerContext
from strandline.coordinator.consumer.group import ConsumerGroup
from strandline.coordinator.consumer.group_records import member_record
from strandline.coordinator.consumer.heartbeat import (
    Jobs,
    next_target,
    reconcile_member,
    static_member,
    update_metadata,
)
from strandline.coordinator.consumer.leaving import check_static_member, restart_session
from strandline.coordinator.consumer.member import Assignment, Member, MemberState
from strandline.coordinator.consumer.migration import decode_subscription, encode_assignment
from strandline.coordinator.consumer.topics import Topics
from strandline.coordinator.decision import Decision, Now
from strandline.coordinator.records import CoordinatorRecord
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.errors import MalformedMessage
from strandline.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from strandline.protocol.messages.group_records import ClassicMemberMetadata, ClassicProtocol
from strandline.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)

_CONSUMER: Final = "consumer"
_MEMBER_ID_REQUIRED_SINCE: Final = 4


def join(
    context: ConsumerContext, jobs: Jobs, group: ConsumerGroup, joining: Joining, now: Now
) -> Decision[JoinGroupResponse | None]:
    request = joining.request
    member_id = request.member_id or joining.new_member_id(joining.client_id)
    settings = context.settings(group.group_id)
    if len(group.members) >= settings.max_size and member_id not in group.members:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"{group.group_id} has {settings.max_size} members")
    subscription = _check_protocols(group, request)
    needs_id = joining.version >= _MEMBER_ID_REQUIRED_SINCE and request.group_instance_id is None
    if not request.member_id and needs_id:
        return Decision(join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    records: list[CoordinatorRecord] = []
    if request.group_instance_id is None:
        member = group.members.get(member_id) or Member(member_id=member_id)
    elif request.member_id:
        member = check_static_member(group, request.group_instance_id, member_id)
    else:
        member = static_member(group, request.group_instance_id, member_id, records, uses_classic_protocol=True)
    updated = _updated(member, joining, subscription)
    if updated != member:
        records.append(member_record(group.group_id, updated))
    has_new_topics = updated.subscribed_topics != member.subscribed_topics
    epoch = update_metadata(context, group, member, updated, records, now, is_bumped=has_new_topics)
    target = next_target(context, jobs, group, epoch, member, updated, records, now)
    owned = _owned(context.topics, subscription)
    reconciled = reconcile_member(
        context, group, updated, target, owned, records, now, has_subscription_changed=has_new_topics
    )
    restart_session(context, group, reconciled, now)
    context.timers.cancel(ClassicJoinTimeout(group.group_id, member_id))
    sync_deadline_ms = now.ms + updated.rebalance_timeout_ms
    context.timers.schedule(ClassicSyncTimeout(group.group_id, member_id), sync_deadline_ms)
    response = JoinGroupResponse(
        generation_id=reconciled.member_epoch,
        protocol_type=_CONSUMER,
        protocol_name=request.protocols[0].name,
        member_id=member_id,
    )
    return Decision(response, records)


def _check_protocols(group: ConsumerGroup, request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """Raises INCONSISTENT_GROUP_PROTOCOL unless the member shares a protocol with every member of the classic
    protocol, and its first subscription can be read."""
    classic = [member.classic for member in group.members.values() if member.classic is not None]
    counts = Counter(each.name for metadata in classic for each in metadata.supported_protocols)
    is_supported = any(counts[each.name] == len(classic) for each in request.protocols)
    if request.protocol_type != _CONSUMER or not is_supported:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {request.member_id}'s protocols are not supported."
        )
    try:
        return decode_subscription(bytes(request.protocols[0].metadata))
    except MalformedMessage:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "Malformed embedded consumer protocol.") from None


def _updated(member: Member, joining: Joining, subscription: ConsumerProtocolSubscription) -> Member:
    request = joining.request
    return msgspec.structs.replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        server_assignor=None,
        subscribed_topics=tuple(sorted(set(subscription.topics))),
        client_id=joining.client_id,
        client_host=joining.client_host,
        classic=ClassicMemberMetadata(
            request.session_timeout_ms, [ClassicProtocol(each.name, each.metadata) for each in joining.protocols]
        ),
    )


def _owned(topics: Topics, subscription: ConsumerProtocolSubscription) -> Assignment:
    return {
        topic.topic_id: frozenset(each.partitions)
        for each in subscription.owned_partitions
        if (topic := topics.by_name(each.topic)) is not None
    }


def sync(
    context: ConsumerContext, group: ConsumerGroup, request: SyncGroupRequest, now: Now
) -> Decision[SyncGroupResponse | None]:
    member = classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    assert member.classic is not None
    protocol = member.classic.supported_protocols[0]
    names = (request.protocol_type in (None, _CONSUMER), request.protocol_name in (None, protocol.name))
    if not all(names):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{group.group_id} uses {_CONSUMER}, {protocol.name}")
    if group.epoch() > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_rejoin(context, group, member, now)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"{group.group_id} has a new epoch")
    context.timers.cancel(ClassicSyncTimeout(group.group_id, member.member_id))
    restart_session(context, group, member, now)
    assignment = encode_assignment(context.topics, member.assigned, protocol.metadata)
    return Decision(SyncGroupResponse(protocol_type=_CONSUMER, protocol_name=protocol.name, assignment=assignment))


def heartbeat(
    context: ConsumerContext, group: ConsumerGroup, request: HeartbeatRequest, now: Now
) -> Decision[HeartbeatResponse | None]:
    member = classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    restart_session(context, group, member, now)
    must_rejoin = (
        member.member_epoch < group.epoch()
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not _is_waiting_for_others(group, member))
    )
    if not must_rejoin:
        return Decision(HeartbeatResponse())
    _expect_rejoin(context, group, member, now)
    return Decision(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))


def _is_waiting_for_others(group: ConsumerGroup, member: Member) -> bool:
    return any(
        partition not in member.assigned.get(topic, ()) and group.owner(topic, partition) is not None
        for topic, partitions in group.target(member).items()
        for partition in partitions
    )


def _expect_rejoin(context: ConsumerContext, group: ConsumerGroup, member: Member, now: Now) -> None:
    key = ClassicJoinTimeout(group.group_id, member.member_id)
    if key not in context.timers:
        context.timers.schedule(key, now.ms + member.rebalance_timeout_ms)


def classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID; a member that uses ConsumerGroupHeartbeat is unknown here."""
    member = group.member(member_id) if instance_id is None else check_static_member(group, instance_id, member_id)
    if not member.uses_classic_protocol:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    return member


def leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    """An administrator removes a static member by its instance id alone."""
    if not identity.member_id and identity.group_instance_id is not None:
        member = group.static_member(identity.group_instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {identity.group_instance_id} is unknown.")
        return member
    return classic_member(group, identity.member_id, identity.group_instance_id)


def _check_generation(member: Member, generation: int) -> None:
    if generation != member.member_epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation} is not equal to the member epoch {member.member_epoch}.",
        )
