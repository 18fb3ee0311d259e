"""JoinGroup (11) of a classic group: new and returning members, dynamic and static.

A dynamic member that does not know its id yet is given one and has to send it with a second request (KIP-394), so that
a client whose first request timed out leaves no member behind. A static member (KIP-345) that returns within its
session keeps its assignment without a rebalance; its predecessor's member id is fenced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from strandline.coordinator.classic.group import ClassicGroup, Member, Protocol, State
from strandline.coordinator.classic.rebalance import (
    ClassicContext,
    SessionTimeout,
    complete_join_if_ready,
    described_members,
    join_response,
    prepare_rebalance,
    rebalance_or_complete_join,
    restart_session,
)
from strandline.coordinator.decision import Completion, Decision, Now, Token, merged
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.groups import JoinGroupRequest, JoinGroupResponse, SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""A new member cannot send heartbeats while it waits; a client that disconnected joins again and is another member."""
_MEMBER_ID_REQUIRED_SINCE: Final = 4
_SKIPS_ASSIGNMENT_SINCE: Final = 9

JoinDecision = Decision[JoinGroupResponse | None]


class Joining(msgspec.Struct, frozen=True):
    """A JoinGroup request as the coordinator sees it."""

    request: JoinGroupRequest
    version: int
    client_id: str
    client_host: str
    token: Token
    new_member_id: Callable[[str], str]
    """A member id that no other member has, with the given prefix."""

    @property
    def rebalance_timeout_ms(self) -> int:
        """Version 0 has none: the session timeout stands for it."""
        timeout_ms = self.request.rebalance_timeout_ms
        return timeout_ms if self.version >= 1 else self.request.session_timeout_ms

    @property
    def protocols(self) -> tuple[Protocol, ...]:
        return tuple(Protocol(each.name, bytes(each.metadata)) for each in self.request.protocols)


def join(context: ClassicContext, group: ClassicGroup, joining: Joining, now: Now) -> JoinDecision:
    request = joining.request
    if not _has_room_for(context, group, request.member_id):
        # As in Kafka, a member that comes too late to a full group does not stay in it.
        group.remove(request.member_id)
        context.timers.cancel(SessionTimeout(group.group_id, request.member_id))
        return _error(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    if group.state is State.DEAD:
        return _error(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
    if not group.supports(request.protocol_type, [each.name for each in request.protocols]) or not request.protocols:
        return _error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
    if request.member_id:
        return _join_known(context, group, joining, now)
    if request.group_instance_id is None:
        return _join_new_dynamic(context, group, joining, now)
    return _join_new_static(context, group, joining, request.group_instance_id, now)


def _has_room_for(context: ClassicContext, group: ClassicGroup, member_id: str) -> bool:
    if group.state in (State.EMPTY, State.DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is State.PREPARING_REBALANCE:
        # Members that have not rejoined may be gone, so only those that have count.
        return (member is not None and member.join_token is not None) or group.joining < context.settings.max_size
    return member is not None or len(group.members) < context.settings.max_size


def _join_new_dynamic(context: ClassicContext, group: ClassicGroup, joining: Joining, now: Now) -> JoinDecision:
    member_id = joining.new_member_id(joining.client_id)
    if joining.version < _MEMBER_ID_REQUIRED_SINCE:
        return _add_member(context, group, joining, member_id, now)
    group.pending_joins[member_id] = None
    context.timers.schedule(SessionTimeout(group.group_id, member_id), now.ms + joining.request.session_timeout_ms)
    return _error(ErrorCode.MEMBER_ID_REQUIRED, member_id)


def _join_new_static(
    context: ClassicContext, group: ClassicGroup, joining: Joining, instance_id: str, now: Now
) -> JoinDecision:
    member_id = joining.new_member_id(instance_id)
    known_id = group.static_members.get(instance_id)
    if known_id is None:
        return _add_member(context, group, joining, member_id, now)
    return _replace_static_member(context, group, joining, group.members[known_id], member_id, now)


def _join_known(context: ClassicContext, group: ClassicGroup, joining: Joining, now: Now) -> JoinDecision:
    request = joining.request
    if request.member_id in group.pending_joins and request.group_instance_id is None:
        return _add_member(context, group, joining, request.member_id, now)
    try:
        member = group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        return _error(error.code, request.member_id)
    is_unchanged = member.protocols == joining.protocols
    if group.state is State.PREPARING_REBALANCE:
        return _update_member(context, group, joining, member, now)
    if group.state is State.COMPLETING_REBALANCE:
        # The member may not have seen the response to its join.
        return (
            Decision(join_response(group, member))
            if is_unchanged
            else _update_member(context, group, joining, member, now)
        )
    if group.state is State.STABLE:
        if group.is_leader(member.member_id) or not is_unchanged:
            return _update_member(context, group, joining, member, now)
        return Decision(join_response(group, member))
    return _error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)


def _add_member(
    context: ClassicContext, group: ClassicGroup, joining: Joining, member_id: str, now: Now
) -> JoinDecision:
    if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
        group.new_member_added = True
    member = Member(
        member_id=member_id,
        instance_id=joining.request.group_instance_id,
        client_id=joining.client_id,
        client_host=joining.client_host,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        session_timeout_ms=joining.request.session_timeout_ms,
        protocols=joining.protocols,
        is_new=True,
    )
    group.add(member, joining.token, joining.request.protocol_type)
    context.timers.schedule(SessionTimeout(group.group_id, member_id), now.ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
    return merged(Decision(None), rebalance_or_complete_join(context, group, now))


def _update_member(
    context: ClassicContext, group: ClassicGroup, joining: Joining, member: Member, now: Now
) -> JoinDecision:
    _take_over(group, member, joining)
    return merged(Decision(None), rebalance_or_complete_join(context, group, now))


def _take_over(group: ClassicGroup, member: Member, joining: Joining) -> None:
    group.set_protocols(member, joining.protocols)
    group.wait_in_join(member, joining.token)
    member.rebalance_timeout_ms = joining.rebalance_timeout_ms
    member.session_timeout_ms = joining.request.session_timeout_ms


def _replace_static_member(
    context: ClassicContext, group: ClassicGroup, joining: Joining, member: Member, member_id: str, now: Now
) -> JoinDecision:
    """The instance has restarted: the member gets a new id, and requests under the old one are fenced."""
    old_leader_id = group.leader_id or ""
    before = replace(member)
    decision: JoinDecision = Decision(None)
    for token, response in (
        (member.join_token, join_error(ErrorCode.FENCED_INSTANCE_ID, member.member_id)),
        (member.sync_token, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)),
    ):
        if token is not None:
            decision.completed.append(Completion(token, response))
    member.sync_token = None
    context.timers.cancel(SessionTimeout(group.group_id, member.member_id))
    group.rename_static(member, member_id)
    _take_over(group, member, joining)
    restart_session(context, group, member, now)
    if group.state is State.STABLE:
        if group.select_protocol() == group.protocol_name:
            group.wait_in_join(member, None)
            return merged(decision, _keep_generation(context, group, joining, member, before, old_leader_id))
        return merged(decision, rebalance_or_complete_join(context, group, now))
    if group.state is State.COMPLETING_REBALANCE:
        return merged(decision, prepare_rebalance(context, group, now))
    return merged(decision, complete_join_if_ready(context, group, now))


def _keep_generation(
    context: ClassicContext,
    group: ClassicGroup,
    joining: Joining,
    member: Member,
    before: Member,
    old_leader_id: str,
) -> Decision[None]:
    """No rebalance: the group is stored with the new member id, and the member gets its assignment with SyncGroup."""
    response = join_response(group, member)
    if joining.version >= _SKIPS_ASSIGNMENT_SINCE:
        is_leader = group.is_leader(member.member_id)
        response = replace(response, skip_assignment=is_leader, members=described_members(group) if is_leader else [])
    else:
        # Were it told that it leads, it would compute an assignment that no other member asks for.
        response = replace(response, leader=old_leader_id, members=[])

    def restore(code: ErrorCode, now: Now) -> Decision[None]:
        if group.members.get(member.member_id) is not member:
            return Decision(None)
        context.timers.cancel(SessionTimeout(group.group_id, member.member_id))
        group.set_protocols(member, before.protocols)
        member.rebalance_timeout_ms = before.rebalance_timeout_ms
        member.session_timeout_ms = before.session_timeout_ms
        group.rename_static(member, before.member_id)
        restart_session(context, group, member, now)
        return Decision(None)

    return Decision(
        None,
        [group.record()],
        [Completion(joining.token, response)],
        is_applied=True,
        on_append_failed=restore,
    )


def _error(code: ErrorCode, member_id: str) -> JoinDecision:
    return Decision(join_error(code, member_id))


def join_error(code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, generation_id=-1, protocol_name=None, member_id=member_id)
