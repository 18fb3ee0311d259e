"""SyncGroup (14) of a classic group: the leader's assignment reaches the members of its generation.

Members that ask before the leader wait. The leader's request has the group stored with its assignments; when that is
committed the group is stable and every waiting member is answered.
"""

from __future__ import annotations

from strandline.coordinator.classic.group import ClassicGroup, Member, State
from strandline.coordinator.classic.rebalance import (
    ClassicContext,
    SessionTimeout,
    SyncTimeout,
    fail_syncs,
    prepare_rebalance,
    rebalance_or_complete_join,
    restart_session,
    take_sync_token,
)
from strandline.coordinator.decision import Completion, Decision, Now, Token, merged, nothing
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.groups import SyncGroupRequest, SyncGroupResponse

SyncDecision = Decision[SyncGroupResponse | None]


def sync(
    context: ClassicContext, group: ClassicGroup, request: SyncGroupRequest, token: Token, now: Now
) -> SyncDecision:
    try:
        member = _check(group, request)
    except KafkaError as error:
        return Decision(sync_error(error.code))
    if group.state is State.COMPLETING_REBALANCE:
        member.sync_token = token
        _on_synced(context, group, member)
        if group.is_leader(member.member_id):
            return _store_assignment(context, group, request)
        return Decision(None)
    _on_synced(context, group, member)
    return Decision(_assignment(group, member))


def _check(group: ClassicGroup, request: SyncGroupRequest) -> Member:
    if group.state is State.DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{group.group_id} is being removed")
    member = group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(request.generation_id)
    for asked, known in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name)):
        if asked is not None and asked != known:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{group.group_id} uses {known}, not {asked}")
    if group.state is State.EMPTY:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{group.group_id} has no members")
    if group.state is State.PREPARING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"{group.group_id} is rebalancing")
    return member


def _on_synced(context: ClassicContext, group: ClassicGroup, member: Member) -> None:
    group.pending_syncs.pop(member.member_id, None)
    if not group.pending_syncs:
        context.timers.cancel(SyncTimeout(group.group_id, group.generation))


def _store_assignment(context: ClassicContext, group: ClassicGroup, request: SyncGroupRequest) -> SyncDecision:
    """Members that the leader left out get an empty assignment."""
    assigned = {each.member_id: bytes(each.assignment) for each in request.assignments}
    assignments = {member_id: assigned.get(member_id, b"") for member_id in group.members}
    generation = group.generation

    def is_current() -> bool:
        """A member may have joined, or left, while the record was being committed."""
        return group.state is State.COMPLETING_REBALANCE and group.generation == generation

    def on_committed(now: Now) -> Decision[None]:
        if not is_current():
            return nothing()
        group.become(State.STABLE, now.wall_ms)
        context.counts.completed_rebalances += 1
        completed = []
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            waiting = take_sync_token(member)
            if waiting is not None:
                completed.append(Completion(waiting, _assignment(group, member)))
                restart_session(context, group, member, now)
        return Decision(None, completed=completed)

    def on_append_failed(code: ErrorCode, now: Now) -> Decision[None]:
        if not is_current():
            return nothing()
        failed = fail_syncs(context, group, code, now)
        return merged(failed, rebalance_or_complete_join(context, group, now))

    return Decision(
        None,
        [group.record(assignments)],
        is_applied=True,
        on_committed=on_committed,
        on_append_failed=on_append_failed,
    )


def on_sync_timeout(context: ClassicContext, group: ClassicGroup, generation: int, now: Now) -> Decision[None]:
    """Members of this generation that have not sent SyncGroup are removed."""
    is_concerned = group.state in (State.COMPLETING_REBALANCE, State.STABLE) and group.generation == generation
    if not is_concerned or not group.pending_syncs:
        return nothing()
    for member_id in list(group.pending_syncs):
        group.remove(member_id)
        context.timers.cancel(SessionTimeout(group.group_id, member_id))
    return prepare_rebalance(context, group, now)


def _assignment(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)
