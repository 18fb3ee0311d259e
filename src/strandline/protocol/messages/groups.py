"""Classic groups: JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14), and describing, listing, deleting
groups."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import (
    Message,
    Struct,
    boolean,
    bytes_,
    i16,
    i32,
    ignorable,
    nullable,
    since,
    string,
    until,
)


class JoinGroupRequest(Message, api_key=11, versions=(0, 9), flexible=6):
    """v1 rebalance timeout, v4 a join without a member id is rejected with one (KIP-394), v5 static members (KIP-345),
    v6 flexible, v8 reason (KIP-800)."""

    group_id: string = ""
    session_timeout_ms: i32 = 0
    rebalance_timeout_ms: Annotated[i32, since(1), ignorable] = -1
    member_id: string = ""
    group_instance_id: Annotated[string | None, since(5)] = None
    protocol_type: string = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: Annotated[string | None, since(8), ignorable] = None


class JoinGroupRequestProtocol(Struct):
    name: string = ""
    metadata: bytes_ = b""


class JoinGroupResponse(Message, api_key=11, versions=(0, 9), flexible=6):
    """v2 throttle time, v5 static members, v6 flexible, v7 protocol type, v9 the leader may skip assigning
    (KIP-814)."""

    throttle_time_ms: Annotated[i32, since(2), ignorable] = 0
    error_code: i16 = 0
    generation_id: i32 = -1
    protocol_type: Annotated[string | None, since(7), ignorable] = None
    protocol_name: Annotated[string | None, nullable(7)] = ""
    leader: string = ""
    skip_assignment: Annotated[boolean, since(9)] = False
    member_id: string = ""
    members: list[JoinGroupResponseMember] = []


class JoinGroupResponseMember(Struct):
    member_id: string = ""
    group_instance_id: Annotated[string | None, since(5), ignorable] = None
    metadata: bytes_ = b""


class SyncGroupRequest(Message, api_key=14, versions=(0, 5), flexible=4):
    """v3 static members, v4 flexible, v5 protocol type and name (KIP-559)."""

    group_id: string = ""
    generation_id: i32 = 0
    member_id: string = ""
    group_instance_id: Annotated[string | None, since(3)] = None
    protocol_type: Annotated[string | None, since(5), ignorable] = None
    protocol_name: Annotated[string | None, since(5), ignorable] = None
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupRequestAssignment(Struct):
    member_id: string = ""
    assignment: bytes_ = b""


class SyncGroupResponse(Message, api_key=14, versions=(0, 5), flexible=4):
    """v1 throttle time, v4 flexible, v5 protocol type and name."""

    throttle_time_ms: Annotated[i32, since(1), ignorable] = 0
    error_code: i16 = 0
    protocol_type: Annotated[string | None, since(5), ignorable] = None
    protocol_name: Annotated[string | None, since(5), ignorable] = None
    assignment: bytes_ = b""


class HeartbeatRequest(Message, api_key=12, versions=(0, 4), flexible=4):
    """v3 static members, v4 flexible."""

    group_id: string = ""
    generation_id: i32 = 0
    member_id: string = ""
    group_instance_id: Annotated[string | None, since(3)] = None


class HeartbeatResponse(Message, api_key=12, versions=(0, 4), flexible=4):
    """v1 throttle time, v4 flexible."""

    throttle_time_ms: Annotated[i32, since(1), ignorable] = 0
    error_code: i16 = 0


class LeaveGroupRequest(Message, api_key=13, versions=(0, 5), flexible=4):
    """v3 several members at once (KIP-345), v4 flexible, v5 reason (KIP-800)."""

    group_id: string = ""
    member_id: Annotated[string, until(2)] = ""
    members: Annotated[list[MemberIdentity], since(3)] = []


class MemberIdentity(Struct):
    member_id: string = ""
    group_instance_id: string | None = None
    reason: Annotated[string | None, since(5), ignorable] = None


class LeaveGroupResponse(Message, api_key=13, versions=(0, 5), flexible=4):
    """v1 throttle time, v3 a result per member, v4 flexible."""

    throttle_time_ms: Annotated[i32, since(1), ignorable] = 0
    error_code: i16 = 0
    members: Annotated[list[MemberResponse], since(3)] = []


class MemberResponse(Struct):
    member_id: string = ""
    group_instance_id: string | None = ""
    error_code: i16 = 0


class DescribeGroupsRequest(Message, api_key=15, versions=(0, 6), flexible=5):
    """v3 authorized operations (KIP-430), v5 flexible."""

    groups: list[string] = []
    include_authorized_operations: Annotated[boolean, since(3)] = False


class DescribeGroupsResponse(Message, api_key=15, versions=(0, 6), flexible=5):
    """v1 throttle time, v3 authorized operations, v4 static members, v5 flexible, v6 GROUP_ID_NOT_FOUND (KIP-1043)."""

    throttle_time_ms: Annotated[i32, since(1), ignorable] = 0
    groups: list[DescribedGroup] = []


class DescribedGroup(Struct):
    error_code: i16 = 0
    error_message: Annotated[string | None, since(6)] = None
    group_id: string = ""
    group_state: string = ""
    protocol_type: string = ""
    protocol_data: string = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Annotated[i32, since(3)] = -0x80000000


class DescribedGroupMember(Struct):
    member_id: string = ""
    group_instance_id: Annotated[string | None, since(4), ignorable] = None
    client_id: string = ""
    client_host: string = ""
    member_metadata: bytes_ = b""
    member_assignment: bytes_ = b""


class ListGroupsRequest(Message, api_key=16, versions=(0, 5), flexible=3):
    """v3 flexible, v4 filter by state (KIP-518), v5 by type (KIP-848)."""

    states_filter: Annotated[list[string], since(4)] = []
    types_filter: Annotated[list[string], since(5)] = []


class ListGroupsResponse(Message, api_key=16, versions=(0, 5), flexible=3):
    throttle_time_ms: Annotated[i32, since(1), ignorable] = 0
    error_code: i16 = 0
    groups: list[ListedGroup] = []


class ListedGroup(Struct):
    group_id: string = ""
    protocol_type: string = ""
    group_state: Annotated[string, since(4), ignorable] = ""
    group_type: Annotated[string, since(5), ignorable] = ""


class DeleteGroupsRequest(Message, api_key=42, versions=(0, 2), flexible=2):
    """v2 flexible."""

    groups_names: list[string] = []


class DeleteGroupsResponse(Message, api_key=42, versions=(0, 2), flexible=2):
    throttle_time_ms: i32 = 0
    results: list[DeletableGroupResult] = []


class DeletableGroupResult(Struct):
    group_id: string = ""
    error_code: i16 = 0
