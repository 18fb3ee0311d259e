"""Classic groups: JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14); DescribeGroups (15), ListGroups (16)
and DeleteGroups (42) of every kind. Decisions are made in `coordinator/`, in the shard of the group.
"""

from __future__ import annotations

import contextlib
from typing import Final

from msgspec.structs import replace

from strandline.coordinator.classic.group import ClassicGroup
from strandline.coordinator.classic.join import join_error
from strandline.coordinator.decision import Decision
from strandline.coordinator.describe import describe_group, list_groups
from strandline.coordinator.groups import Caller
from strandline.coordinator.offset_requests import delete_group
from strandline.handlers.authorized_operations import ALL_GROUP_OPERATIONS
from strandline.handlers.context import BrokerContext, Call
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from strandline.runtime.tasks import YieldCounter, yield_to_loop

_FIRST_VERSION_WITH_NULL_PROTOCOL: Final = 7
_FIRST_VERSION_WITH_GROUP_NOT_FOUND: Final = 6
# Kafka has no limits. In one decision: some milliseconds of work.
_MOST_PROTOCOLS: Final = 1_000
_LEAVES_PER_STEP: Final = 1_000


def _caller(call: Call) -> Caller:
    return Caller(call.client_id, f"/{call.client_host}", call.version)


async def handle_join_group(broker: BrokerContext, call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    caller = _caller(call)
    if len(request.protocols) > _MOST_PROTOCOLS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a member has at most {_MOST_PROTOCOLS} protocols")
    call.park()
    response = await broker.groups.for_key(request.group_id).write(
        lambda machine, token, now: machine.join(request, caller, token, now)
    )
    if response.protocol_name is None and call.version < _FIRST_VERSION_WITH_NULL_PROTOCOL:
        response.protocol_name = ""
    return response


def join_group_error(request: JoinGroupRequest, version: int, code: ErrorCode, why: str) -> JoinGroupResponse:
    response = join_error(code, request.member_id)
    if version < _FIRST_VERSION_WITH_NULL_PROTOCOL:
        response.protocol_name = ""
    return response


async def handle_sync_group(broker: BrokerContext, call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    caller = _caller(call)
    call.park()
    return await broker.groups.for_key(request.group_id).write(
        lambda machine, token, now: machine.sync(request, caller, token, now)
    )


async def handle_heartbeat(broker: BrokerContext, call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    call.park()
    return await broker.groups.for_key(request.group_id).write(
        lambda machine, token, now: machine.heartbeat(request, now)
    )


async def handle_leave_group(broker: BrokerContext, call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    caller = _caller(call)
    call.park()
    if len(request.members) <= _LEAVES_PER_STEP:
        return await _leave(broker, request, caller)
    response = LeaveGroupResponse()
    for start in range(0, len(request.members), _LEAVES_PER_STEP):
        piece = replace(request, members=request.members[start : start + _LEAVES_PER_STEP])
        response.members += (await _leave(broker, piece, caller)).members
        await yield_to_loop()
    return response


async def _leave(broker: BrokerContext, request: LeaveGroupRequest, caller: Caller) -> LeaveGroupResponse:
    return await broker.groups.for_key(request.group_id).write(
        lambda machine, token, now: machine.leave(request, caller, now)
    )


async def handle_describe_groups(
    broker: BrokerContext, call: Call, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    groups, yields = [], YieldCounter(call)
    for group_id in request.groups:
        groups.append(_describe(broker, call, group_id))
        if yields.due(1 + len(groups[-1].members)):
            await yield_to_loop()
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = ALL_GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


def _describe(broker: BrokerContext, call: Call, group_id: str) -> DescribedGroup:
    try:
        group = broker.groups.for_key(group_id).read(lambda machine, at: machine.group(group_id, at))
    except KafkaError as error:
        return DescribedGroup(error_code=error.code, group_id=group_id)
    if not isinstance(group, ClassicGroup):
        is_error = call.version >= _FIRST_VERSION_WITH_GROUP_NOT_FOUND
        code = ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE
        problem = "not found" if group is None else "is not a classic group"
        why = f"Group {group_id} {problem}." if is_error else None
        return DescribedGroup(error_code=code, error_message=why, group_id=group_id, group_state="Dead")
    return describe_group(group)


async def handle_list_groups(broker: BrokerContext, call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    states = frozenset(each.lower() for each in request.states_filter)
    types = frozenset(each.lower() for each in request.types_filter)
    groups: list[ListedGroup] = []
    for shard in broker.groups.active():
        await yield_to_loop()
        with contextlib.suppress(KafkaError):  # of a leadership that has just ended
            groups += shard.read(lambda machine, at: list_groups(machine, at, states, types))
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if broker.groups.is_loading else ErrorCode.NONE
    return ListGroupsResponse(error_code=code, groups=groups)


async def handle_delete_groups(broker: BrokerContext, call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    call.park()
    results, yields = [], YieldCounter(call)
    for group_id in dict.fromkeys(request.groups_names):
        if yields.due():
            await yield_to_loop()
        results.append(await _delete(broker, group_id))
    return DeleteGroupsResponse(results=results)


async def _delete(broker: BrokerContext, group_id: str) -> DeletableGroupResult:
    result = DeletableGroupResult(group_id)
    try:
        await broker.groups.for_key(group_id).write(
            lambda machine, token, now: Decision(result, delete_group(machine, group_id), is_atomic=False)
        )
    except KafkaError as error:
        return DeletableGroupResult(group_id, error.code)
    return result
