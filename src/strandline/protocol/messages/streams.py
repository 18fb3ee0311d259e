"""Streams groups (KIP-1071): StreamsGroupHeartbeat (88), StreamsGroupDescribe (89)."""

from __future__ import annotations

from strandline.protocol.types import Message, Struct, Value, boolean, field, i8, i16, i32, i64, string, u16


class StreamsGroupHeartbeatRequest(Message, api_key=88, versions=(0, 0), flexible=0):
    """Join, stay, leave; null means unchanged. The topology is sent when joining."""

    group_id: string = ""
    member_id: string = ""
    member_epoch: i32 = 0
    endpoint_information_epoch: i32 = 0
    instance_id: string | None = None
    rack_id: string | None = None
    rebalance_timeout_ms: i32 = -1
    topology: StreamsGroupHeartbeatRequestTopology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: string | None = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: boolean = False


class StreamsGroupHeartbeatRequestTopology(Struct):
    epoch: i32 = 0
    subtopologies: list[StreamsGroupHeartbeatRequestSubtopology] = []


class StreamsGroupHeartbeatRequestSubtopology(Struct):
    subtopology_id: string = ""
    source_topics: list[string] = []
    source_topic_regex: list[string] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_sink_topics: list[string] = []
    repartition_source_topics: list[TopicInfo] = []
    copartition_groups: list[CopartitionGroup] = []


class TopicInfo(Struct):
    name: string = ""
    partitions: i32 = 0
    replication_factor: i16 = 0
    topic_configs: list[KeyValue] = []


class KeyValue(Struct):
    key: string = ""
    value: string = ""


class CopartitionGroup(Struct):
    source_topics: list[i16] = []
    source_topic_regex: list[i16] = []
    repartition_source_topics: list[i16] = []


class TaskIds(Struct):
    subtopology_id: string = ""
    partitions: list[i32] = []


class Endpoint(Value):
    host: string = ""
    port: u16 = 0


class TaskOffset(Struct):
    subtopology_id: string = ""
    partition: i32 = 0
    offset: i64 = 0


class StreamsGroupHeartbeatResponse(Message, api_key=88, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = None
    member_id: string = ""
    member_epoch: i32 = 0
    heartbeat_interval_ms: i32 = 0
    acceptable_recovery_lag: i32 = 0
    task_offset_interval_ms: i32 = 0
    status: list[Status] | None = []
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    endpoint_information_epoch: i32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None


class Status(Struct):
    status_code: i8 = 0
    status_detail: string = ""


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = Endpoint()
    active_partitions: list[TopicPartition] = []
    standby_partitions: list[TopicPartition] = []


class TopicPartition(Struct):
    topic: string = ""
    partitions: list[i32] = []


class StreamsGroupDescribeRequest(Message, api_key=89, versions=(0, 0), flexible=0):
    group_ids: list[string] = []
    include_authorized_operations: boolean = False


class StreamsGroupDescribeResponse(Message, api_key=89, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    groups: list[DescribedGroup] = []


class DescribedGroup(Struct):
    error_code: i16 = 0
    error_message: string | None = None
    group_id: string = ""
    group_state: string = ""
    group_epoch: i32 = 0
    assignment_epoch: i32 = 0
    topology: StreamsGroupDescribeResponseTopology | None = None
    members: list[Member] = []
    authorized_operations: i32 = -0x80000000


class StreamsGroupDescribeResponseTopology(Struct):
    epoch: i32 = 0
    subtopologies: list[StreamsGroupDescribeResponseSubtopology] | None = None


class StreamsGroupDescribeResponseSubtopology(Struct):
    subtopology_id: string = ""
    source_topics: list[string] = []
    repartition_sink_topics: list[string] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_source_topics: list[TopicInfo] = []


class Assignment(Struct):
    active_tasks: list[TaskIds] = []
    standby_tasks: list[TaskIds] = []
    warmup_tasks: list[TaskIds] = []


class Member(Struct):
    member_id: string = ""
    member_epoch: i32 = 0
    instance_id: string | None = None
    rack_id: string | None = None
    client_id: string = ""
    client_host: string = ""
    topology_epoch: i32 = 0
    process_id: string = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = []
    task_offsets: list[TaskOffset] = []
    task_end_offsets: list[TaskOffset] = []
    assignment: Assignment = field(default_factory=Assignment)
    target_assignment: Assignment = field(default_factory=Assignment)
    is_classic: boolean = False
