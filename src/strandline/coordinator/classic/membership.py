"""Heartbeat (12), LeaveGroup (13), and members that were not heard of for their session timeout."""

from __future__ import annotations

from strandline.coordinator.classic.group import ClassicGroup, Member, State
from strandline.coordinator.classic.join import join_error
from strandline.coordinator.classic.rebalance import (
    ClassicContext,
    SessionTimeout,
    complete_join_if_ready,
    rebalance_or_complete_join,
    restart_session,
    take_sync_token,
)
from strandline.coordinator.decision import Completion, Decision, Now, merged, nothing
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupResponse,
)


def heartbeat(
    context: ClassicContext, group: ClassicGroup, request: HeartbeatRequest, now: Now
) -> Decision[HeartbeatResponse | None]:
    if group.state is State.DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{group.group_id} is being removed")
    member = group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(request.generation_id)
    if group.state is State.EMPTY:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{group.group_id} has no members")
    restart_session(context, group, member, now)
    # A member that has to rejoin learns it here; in CompletingRebalance it has rejoined already.
    is_rebalancing = group.state is State.PREPARING_REBALANCE
    return Decision(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE))


def leave(
    context: ClassicContext, group: ClassicGroup, identities: list[MemberIdentity], now: Now
) -> Decision[LeaveGroupResponse | None]:
    """One result per member; the group rebalances once."""
    if group.state is State.DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{group.group_id} is being removed")
    results = []
    decision: Decision[LeaveGroupResponse | None] = Decision(None)
    has_left = False
    for identity in identities:
        code = ErrorCode.NONE
        try:
            removed = _leaving(group, identity)
        except KafkaError as error:
            code = error.code
        else:
            has_left = True
            if removed is None:
                group.remove(identity.member_id)
                context.timers.cancel(SessionTimeout(group.group_id, identity.member_id))
            else:
                decision.completed += remove_member(context, group, removed)
        results.append(MemberResponse(identity.member_id, identity.group_instance_id, code))
    decision.response = LeaveGroupResponse(members=results)
    return merged(decision, _after_removal(context, group, now)) if has_left else decision


def _leaving(group: ClassicGroup, identity: MemberIdentity) -> Member | None:
    """The member that leaves; None for a pending member id."""
    if identity.group_instance_id is None:
        if identity.member_id in group.pending_joins:
            return None
        return group.check_member(identity.member_id, None)
    known_id = group.static_members.get(identity.group_instance_id)
    if known_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {identity.group_instance_id}")
    # An administrator removes a static member by its instance id alone.
    if identity.member_id:
        return group.check_member(identity.member_id, identity.group_instance_id)
    return group.members[known_id]


def remove_member(context: ClassicContext, group: ClassicGroup, member: Member) -> list[Completion]:
    """Its waiting requests are answered UNKNOWN_MEMBER_ID."""
    context.timers.cancel(SessionTimeout(group.group_id, member.member_id))
    completed = []
    token = group.take_join_token(member)
    if token is not None:
        completed.append(Completion(token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, "")))
    token = take_sync_token(member)
    if token is not None:
        completed.append(Completion(token, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)))
    group.remove(member.member_id)
    return completed


def on_session_timeout(context: ClassicContext, group: ClassicGroup, member_id: str, now: Now) -> Decision[None]:
    if group.state is State.DEAD:
        return nothing()
    if member_id in group.pending_joins:
        group.remove(member_id)
        return complete_join_if_ready(context, group, now)
    member = group.members.get(member_id)
    if member is None:
        return nothing()
    if not member.is_new and (member.join_token is not None or member.sync_token is not None):
        # Its connection is blocked by the request that waits, so no heartbeat can arrive.
        restart_session(context, group, member, now)
        return nothing()
    decision = Decision(None, completed=remove_member(context, group, member))
    return merged(decision, _after_removal(context, group, now))


def _after_removal(context: ClassicContext, group: ClassicGroup, now: Now) -> Decision[None]:
    if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
        return rebalance_or_complete_join(context, group, now)
    return complete_join_if_ready(context, group, now)
