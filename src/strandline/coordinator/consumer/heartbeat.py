"""ConsumerGroupHeartbeat (68) of a member that joins or stays.

1. The member is created or updated (record 5). The group epoch grows (record 3) when a subscription or the subscribed
   topics have changed.
2. The target assignment is computed when it is older than the group epoch (records 7 and 6).
3. The member takes its next step towards the target (record 8), and learns its assignment when that has changed or when
   it sent a full request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from strandline.coordinator.consumer.context import ConsumerContext, RebalanceTimeout
from strandline.coordinator.consumer.group import ConsumerGroup
from strandline.coordinator.consumer.group_records import (
    current_assignment_record,
    epoch_record,
    member_record,
    member_tombstones,
    target_record,
)
from strandline.coordinator.consumer.leaving import check_static_member, restart_session
from strandline.coordinator.consumer.member import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Assignment,
    Member,
    MemberState,
    OwnedPartitions,
    is_subset,
)
from strandline.coordinator.consumer.metadata_hash import metadata_hash
from strandline.coordinator.consumer.reconciliation import Target, reconcile
from strandline.coordinator.consumer.regexes import (
    METADATA_REFRESH_INTERVAL_MS,
    RegexChange,
    RegexJob,
    update_regexes,
)
from strandline.coordinator.consumer.target import (
    ASSIGNORS,
    TargetJob,
    compute_at_once,
    is_large,
    may_compute,
    start_job,
)
from strandline.coordinator.decision import Decision, Now
from strandline.coordinator.records import CoordinatorRecord
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid
from strandline.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
)
from strandline.protocol.messages.group_records import ConsumerGroupPartitionMetadataKey

_MEMBER_ID_CHOSEN_BY_CLIENT_SINCE: Final = 1


class Jobs(msgspec.Struct):
    """Work of this shard that is done in slices, by group id."""

    targets: dict[str, TargetJob] = msgspec.field(default_factory=dict)
    regexes: dict[str, RegexJob] = msgspec.field(default_factory=dict)


class Identity(msgspec.Struct, frozen=True):
    """The client of a heartbeat, as it is stored with the member."""

    member_id: str
    client_id: str
    client_host: str


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Iterable[str]) -> None:
    """Raises INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if version >= _MEMBER_ID_CHOSEN_BY_CLIENT_SINCE or epoch > 0 or epoch == LEAVE_EPOCH:
        _require(bool(request.member_id), "MemberId can't be empty.")
    _require(bool(request.group_id), "GroupId can't be empty.")
    _require(request.instance_id is None or bool(request.instance_id), "InstanceId can't be empty.")
    _require(request.rack_id is None or bool(request.rack_id), "RackId can't be empty.")
    if epoch == 0:
        _require(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        _require(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
        _require(
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif epoch == STATIC_LEAVE_EPOCH:
        _require(request.instance_id is not None, "InstanceId can't be null.")
    _require(epoch >= STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
    supported = [name for name in assignors if name in ASSIGNORS]
    if request.server_assignor is not None and request.server_assignor not in supported:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(supported)}.",
        )


def _require(is_valid: bool, why: str) -> None:
    if not is_valid:
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def heartbeat(
    context: ConsumerContext,
    jobs: Jobs,
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    identity: Identity,
    now: Now,
) -> Decision[ConsumerGroupHeartbeatResponse | None]:
    settings = context.settings(group.group_id)
    if len(group.members) >= settings.max_size and identity.member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {settings.max_size} members.",
        )
    records: list[CoordinatorRecord] = []
    owned = _owned(request)
    member = _member(group, request, identity.member_id, owned, records)
    updated = _updated(member, request, identity)
    if updated != member:
        records.append(member_record(group.group_id, updated))
    has_new_topics = updated.subscribed_topics != member.subscribed_topics
    regex = update_regexes(context, jobs.regexes, group, member, updated, records, now)
    is_bumped = has_new_topics or regex is RegexChange.RESOLVED
    epoch = update_metadata(context, group, member, updated, records, now, is_bumped=is_bumped)
    target_epoch, target = next_target(context, jobs, group, epoch, member, updated, records, now)
    reconciled = reconcile_member(
        context,
        group,
        updated,
        (target_epoch, target),
        owned,
        records,
        now,
        has_subscription_changed=has_new_topics or regex is not RegexChange.NONE,
    )
    restart_session(context, group, reconciled, now)
    response = ConsumerGroupHeartbeatResponse(
        member_id=reconciled.member_id,
        member_epoch=reconciled.member_epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
    )
    if _is_full(request) or reconciled.assigned != member.assigned:
        response.assignment = _response_assignment(reconciled.assigned)
    return Decision(response, records)


def _owned(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    if request.topic_partitions is None:
        return None
    return {topic.topic_id: frozenset(topic.partitions) for topic in request.topic_partitions}


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member said everything: it joins, or does not know what the coordinator has received."""
    has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.member_epoch == 0 or (
        request.rebalance_timeout_ms != -1 and has_subscription and request.topic_partitions is not None
    )


def _response_assignment(assigned: OwnedPartitions) -> ConsumerGroupHeartbeatResponseAssignment:
    return ConsumerGroupHeartbeatResponseAssignment(
        [ConsumerGroupHeartbeatRequestTopicPartitions(topic, sorted(assigned[topic])) for topic in sorted(assigned)]
    )


def _member(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    owned: Assignment | None,
    records: list[CoordinatorRecord],
) -> Member:
    """The member that sent the request, or a new one when it joins. Checks its epoch."""
    is_joining = request.member_epoch == 0
    if request.instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            return Member(member_id=member_id) if is_joining else group.member(member_id)
        check_member_epoch(member, request.member_epoch, owned)
        return member
    if is_joining:
        return static_member(group, request.instance_id, member_id, records, uses_classic_protocol=False)
    member = check_static_member(group, request.instance_id, member_id)
    check_member_epoch(member, request.member_epoch, owned)
    return member


def check_member_epoch(member: Member, epoch: int, owned: Assignment | None) -> None:
    """Raises FENCED_MEMBER_EPOCH. A member that repeats a heartbeat, since it did not receive its new epoch, has the
    previous one and owns nothing that it was not given."""
    if epoch == 0 or epoch == member.member_epoch:
        return
    if epoch == member.previous_member_epoch and epoch < member.member_epoch and is_subset(owned, member.assigned):
        return
    comparison = "greater" if epoch > member.member_epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def static_member(
    group: ConsumerGroup,
    instance_id: str,
    member_id: str,
    records: list[CoordinatorRecord],
    *,
    uses_classic_protocol: bool,
) -> Member:
    """A static member that joins. It takes the place of a member with its instance id that has left for now (epoch
    -2); otherwise that instance is still in use: UNRELEASED_INSTANCE_ID."""
    known = group.static_member(instance_id)
    if known is None:
        return group.members.get(member_id) or Member(member_id=member_id)
    both_use_heartbeats = not uses_classic_protocol and not known.uses_classic_protocol
    if both_use_heartbeats and known.member_epoch != STATIC_LEAVE_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {known.member_id} member.",
        )
    returned = msgspec.structs.replace(known, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    records += member_tombstones(group.group_id, known.member_id)
    records.append(member_record(group.group_id, returned))
    records.append(target_record(group.group_id, member_id, group.target(known)))
    records.append(current_assignment_record(group.group_id, returned))
    return returned


def _updated(member: Member, request: ConsumerGroupHeartbeatRequest, identity: Identity) -> Member:
    """What the request says; null and -1 mean unchanged."""
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return msgspec.structs.replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        subscribed_topics=member.subscribed_topics if names is None else tuple(sorted(set(names))),
        subscribed_regex=member.subscribed_regex if regex is None else regex,
        client_id=identity.client_id,
        client_host=identity.client_host,
        classic=None,
    )


def update_metadata(
    context: ConsumerContext,
    group: ConsumerGroup,
    member: Member,
    updated: Member,
    records: list[CoordinatorRecord],
    now: Now,
    *,
    is_bumped: bool,
) -> int:
    """The group epoch after the change; it also grows when the subscribed topics are not as they were."""
    epoch = group.epoch()
    if not is_bumped and not group.is_metadata_expired(now.ms):
        return epoch
    # A static member that returns under a new member id replaces its predecessor.
    known = group.members.get(member.member_id) or group.static_member(updated.instance_id)
    replaced = [] if known is None else [known]
    names = group.subscribed_topics(replaced=replaced, added=[updated])
    new_hash = metadata_hash(context.topics, names)
    if is_bumped or new_hash != group.metadata_hash:
        epoch += 1
        records.append(epoch_record(group.group_id, epoch, new_hash))
    group.refresh_metadata_at(now.ms + METADATA_REFRESH_INTERVAL_MS, epoch)
    if group.has_partition_metadata:
        records.append(CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group.group_id), None))
    return epoch


def next_target(
    context: ConsumerContext,
    jobs: Jobs,
    group: ConsumerGroup,
    epoch: int,
    member: Member,
    updated: Member,
    records: list[CoordinatorRecord],
    now: Now,
) -> tuple[int, Assignment]:
    """The target assignment of the member, and its epoch: the one known, or a new one for a new group epoch."""
    if epoch > group.assignment_epoch() and may_compute(context, group, now):
        if not is_large(context, group):
            new_records, target = compute_at_once(context, group, epoch, member, updated, now)
            records += new_records
            return epoch, target
        start_job(context, jobs.targets, group, now)
    return group.assignment_epoch(), group.target(updated)


def reconcile_member(
    context: ConsumerContext,
    group: ConsumerGroup,
    member: Member,
    target: tuple[int, Assignment],
    owned: Assignment | None,
    records: list[CoordinatorRecord],
    now: Now,
    *,
    has_subscription_changed: bool,
) -> Member:
    epoch, assignment = target
    if not has_subscription_changed and member.is_reconciled_to(epoch):
        return member
    names = group.topics_of(member)

    def is_subscribed_to(topic_id: Uuid) -> bool:
        topic = context.topics.by_id(topic_id)
        return topic is not None and topic.name in names

    reconciled = reconcile(
        member,
        Target(epoch, assignment, group.owner, is_subscribed_to),
        owned,
        has_subscription_changed=has_subscription_changed,
    )
    if reconciled == member:
        return member
    records.append(current_assignment_record(group.group_id, reconciled))
    if not reconciled.uses_classic_protocol:
        key = RebalanceTimeout(group.group_id, member.member_id)
        if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
            context.timers.schedule(key, now.ms + reconciled.rebalance_timeout_ms)
        else:
            context.timers.cancel(key)
    return reconciled
