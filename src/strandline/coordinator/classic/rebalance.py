"""The join phase of a rebalance: members send JoinGroup and wait until all have, or until the rebalance timeout.

A group that was empty waits `group.initial.rebalance.delay.ms` for more members first, and again while new ones arrive.
The join phase ends with a new generation: each waiting JoinGroup is answered, the leader's with the metadata of all
members. Members that did not rejoin are removed, static ones excepted.
"""

from __future__ import annotations

import msgspec

from strandline.coordinator.classic.group import ClassicGroup, Member, State
from strandline.coordinator.decision import Completion, Decision, Now, Token, merged, nothing
from strandline.coordinator.group_counts import GroupCounts
from strandline.coordinator.settings import GroupSettings
from strandline.coordinator.timers import Timers
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.groups import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse


class JoinTimeout(msgspec.Struct, frozen=True):
    """Timer key: members that have not rejoined by then are removed."""

    group_id: str


class SyncTimeout(msgspec.Struct, frozen=True):
    """Timer key: members that have not sent SyncGroup by then are removed."""

    group_id: str
    generation: int


class SessionTimeout(msgspec.Struct, frozen=True):
    """Timer key: a member, or a pending member id, that was not heard of for its session timeout."""

    group_id: str
    member_id: str


class ClassicContext(msgspec.Struct, frozen=True):
    """What decisions about classic groups need beside the group."""

    timers: Timers
    settings: GroupSettings
    counts: GroupCounts


def rebalance_or_complete_join(context: ClassicContext, group: ClassicGroup, now: Now) -> Decision[None]:
    return (
        prepare_rebalance(context, group, now) if group.can_rebalance else complete_join_if_ready(context, group, now)
    )


def prepare_rebalance(context: ClassicContext, group: ClassicGroup, now: Now) -> Decision[None]:
    decision = nothing()
    if group.state is State.COMPLETING_REBALANCE:
        decision = fail_syncs(context, group, ErrorCode.REBALANCE_IN_PROGRESS, now)
    context.timers.cancel(SyncTimeout(group.group_id, group.generation))
    is_initial = group.state is State.EMPTY
    group.become(State.PREPARING_REBALANCE, now.wall_ms)
    if not is_initial:
        return merged(decision, _complete_join_or_wait(context, group, now))
    delay_ms = context.settings.initial_rebalance_delay_ms
    remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    context.timers.schedule(JoinTimeout(group.group_id), now.ms + delay_ms)
    group.initial_delay = (delay_ms, remaining_ms)
    return decision


def on_join_timeout(context: ClassicContext, group: ClassicGroup, now: Now) -> Decision[None]:
    if group.state is not State.PREPARING_REBALANCE:
        return nothing()
    if group.initial_delay is None:
        return complete_join(context, group, now)
    delay_ms, remaining_ms = group.initial_delay
    group.initial_delay = None
    if group.new_member_added and remaining_ms > 0:
        group.new_member_added = False
        next_delay_ms = min(context.settings.initial_rebalance_delay_ms, remaining_ms)
        group.initial_delay = (next_delay_ms, max(remaining_ms - delay_ms, 0))
        context.timers.schedule(JoinTimeout(group.group_id), now.ms + next_delay_ms)
        return nothing()
    group.new_member_added = False
    return complete_join(context, group, now)


def complete_join_if_ready(context: ClassicContext, group: ClassicGroup, now: Now) -> Decision[None]:
    """Not while a group that was empty waits for its first members."""
    is_ready = (
        group.state is State.PREPARING_REBALANCE and group.previous_state is not State.EMPTY and group.have_all_joined
    )
    return complete_join(context, group, now) if is_ready else nothing()


def _complete_join_or_wait(context: ClassicContext, group: ClassicGroup, now: Now) -> Decision[None]:
    if group.have_all_joined:
        return complete_join(context, group, now)
    context.timers.schedule(JoinTimeout(group.group_id), now.ms + group.rebalance_timeout_ms)
    return nothing()


def complete_join(context: ClassicContext, group: ClassicGroup, now: Now) -> Decision[None]:
    context.timers.cancel(JoinTimeout(group.group_id))
    for member in list(group.members.values()):
        if member.join_token is None and not member.is_static:
            group.remove(member.member_id)
            context.timers.cancel(SessionTimeout(group.group_id, member.member_id))
    if group.members and not group.elect_joined_leader():
        # Only static members are left, and none has rejoined: their sessions decide.
        context.timers.schedule(JoinTimeout(group.group_id), now.ms + group.rebalance_timeout_ms)
        return nothing()
    group.next_generation(now.wall_ms)
    if group.state is State.EMPTY:
        return Decision(None, [group.record()], is_applied=True)
    completed = []
    for member in group.members.values():
        token = group.take_join_token(member)
        if token is not None:
            completed.append(Completion(token, join_response(group, member)))
        member.is_new = False
        restart_session(context, group, member, now)
        group.pending_syncs[member.member_id] = None
    context.timers.schedule(SyncTimeout(group.group_id, group.generation), now.ms + group.rebalance_timeout_ms)
    return Decision(None, completed=completed)


def join_response(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=described_members(group) if group.is_leader(member.member_id) else [],
    )


def described_members(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(member.member_id, member.instance_id, member.metadata_of(group.protocol_name))
        for member in group.members.values()
    ]


def fail_syncs(context: ClassicContext, group: ClassicGroup, code: ErrorCode, now: Now) -> Decision[None]:
    """Clears all assignments; each waiting SyncGroup is answered with `code`."""
    completed = []
    for member in group.members.values():
        member.assignment = b""
        token = take_sync_token(member)
        if token is not None:
            completed.append(Completion(token, SyncGroupResponse(error_code=code)))
            restart_session(context, group, member, now)
    return Decision(None, completed=completed)


def take_sync_token(member: Member) -> Token | None:
    token, member.sync_token = member.sync_token, None
    return token


def restart_session(context: ClassicContext, group: ClassicGroup, member: Member, now: Now) -> None:
    key = SessionTimeout(group.group_id, member.member_id)
    context.timers.schedule(key, now.ms + member.session_timeout_ms)
