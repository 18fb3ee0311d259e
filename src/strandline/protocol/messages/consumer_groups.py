"""Consumer groups with server-side assignment (KIP-848): ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69)."""

from __future__ import annotations

from typing import Annotated

from strandline.model.ids import ZERO_UUID
from strandline.protocol.types import Message, Struct, boolean, field, i8, i16, i32, ignorable, since, string, uuid


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions=(0, 1), flexible=0):
    """Join (epoch 0), stay, leave (-1, or -2 for a static member). Null means unchanged. v1 regular expressions, and
    member ids chosen by the client (KIP-1082)."""

    group_id: string = ""
    member_id: string = ""
    member_epoch: i32 = 0
    instance_id: string | None = None
    rack_id: string | None = None
    rebalance_timeout_ms: i32 = -1
    subscribed_topic_names: list[string] | None = None
    subscribed_topic_regex: Annotated[string | None, since(1)] = None
    server_assignor: string | None = None
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = None


class ConsumerGroupHeartbeatRequestTopicPartitions(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[i32] = []


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions=(0, 1), flexible=0):
    """The assignment is null when it has not changed."""

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = None
    member_id: string | None = None
    member_epoch: i32 = 0
    heartbeat_interval_ms: i32 = 0
    assignment: ConsumerGroupHeartbeatResponseAssignment | None = None


class ConsumerGroupHeartbeatResponseAssignment(Struct):
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] = []


class ConsumerGroupDescribeRequest(Message, api_key=69, versions=(0, 1), flexible=0):
    group_ids: list[string] = []
    include_authorized_operations: boolean = False


class ConsumerGroupDescribeResponse(Message, api_key=69, versions=(0, 1), flexible=0):
    """v1 member type (KIP-1099)."""

    throttle_time_ms: i32 = 0
    groups: list[DescribedGroup] = []


class DescribedGroup(Struct):
    error_code: i16 = 0
    error_message: string | None = None
    group_id: string = ""
    group_state: string = ""
    group_epoch: i32 = 0
    assignment_epoch: i32 = 0
    assignor_name: string = ""
    members: list[Member] = []
    authorized_operations: i32 = -0x80000000


class ConsumerGroupDescribeResponseAssignment(Struct):
    topic_partitions: list[ConsumerGroupDescribeResponseTopicPartitions] = []


class Member(Struct):
    member_id: string = ""
    instance_id: string | None = None
    rack_id: string | None = None
    member_epoch: i32 = 0
    client_id: string = ""
    client_host: string = ""
    subscribed_topic_names: list[string] = []
    subscribed_topic_regex: string | None = None
    assignment: ConsumerGroupDescribeResponseAssignment = field(default_factory=ConsumerGroupDescribeResponseAssignment)
    target_assignment: ConsumerGroupDescribeResponseAssignment = field(
        default_factory=ConsumerGroupDescribeResponseAssignment
    )
    member_type: Annotated[i8, since(1), ignorable] = -1


class ConsumerGroupDescribeResponseTopicPartitions(Struct):
    topic_id: uuid = ZERO_UUID
    topic_name: string = ""
    partitions: list[i32] = []
