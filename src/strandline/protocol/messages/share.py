"""Share groups (KIP-932): membership (76, 77), fetching and acknowledging (78, 79), their offsets (90-92)."""

from __future__ import annotations

from typing import Annotated

from strandline.model.ids import ZERO_UUID
from strandline.protocol.types import (
    Message,
    Struct,
    Value,
    boolean,
    field,
    i8,
    i16,
    i32,
    i64,
    ignorable,
    records_,
    since,
    string,
    uuid,
)


class ShareGroupHeartbeatRequest(Message, api_key=76, versions=(1, 1), flexible=0):
    group_id: string = ""
    member_id: string = ""
    member_epoch: i32 = 0
    rack_id: string | None = None
    subscribed_topic_names: list[string] | None = None


class ShareGroupHeartbeatResponse(Message, api_key=76, versions=(1, 1), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = None
    member_id: string | None = None
    member_epoch: i32 = 0
    heartbeat_interval_ms: i32 = 0
    assignment: ShareGroupHeartbeatResponseAssignment | None = None


class ShareGroupHeartbeatResponseAssignment(Struct):
    topic_partitions: list[ShareGroupHeartbeatResponseTopicPartitions] = []


class ShareGroupHeartbeatResponseTopicPartitions(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[i32] = []


class ShareGroupDescribeRequest(Message, api_key=77, versions=(1, 1), flexible=0):
    group_ids: list[string] = []
    include_authorized_operations: boolean = False


class ShareGroupDescribeResponse(Message, api_key=77, versions=(1, 1), flexible=0):
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


class ShareGroupDescribeResponseAssignment(Struct):
    topic_partitions: list[ShareGroupDescribeResponseTopicPartitions] = []


class Member(Struct):
    member_id: string = ""
    rack_id: string | None = None
    member_epoch: i32 = 0
    client_id: string = ""
    client_host: string = ""
    subscribed_topic_names: list[string] = []
    assignment: ShareGroupDescribeResponseAssignment = field(default_factory=ShareGroupDescribeResponseAssignment)


class ShareGroupDescribeResponseTopicPartitions(Struct):
    topic_id: uuid = ZERO_UUID
    topic_name: string = ""
    partitions: list[i32] = []


class ShareFetchRequest(Message, api_key=78, versions=(1, 2), flexible=0):
    """v2 acquire mode (KIP-1206) and renewal (KIP-1222). Version 0 (early access) was removed."""

    group_id: string | None = None
    member_id: string | None = ""
    share_session_epoch: i32 = 0
    max_wait_ms: i32 = 0
    min_bytes: i32 = 0
    max_bytes: i32 = 0x7FFFFFFF
    max_records: i32 = 0
    batch_size: i32 = 0
    share_acquire_mode: Annotated[i8, since(2), ignorable] = 0
    is_renew_ack: Annotated[boolean, since(2)] = False
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = []


class FetchTopic(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[FetchPartition] = []


class FetchPartition(Struct):
    partition_index: i32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class AcknowledgementBatch(Struct):
    first_offset: i64 = 0
    last_offset: i64 = 0
    acknowledge_types: list[i8] = []


class ForgottenTopic(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[i32] = []


class ShareFetchResponse(Message, api_key=78, versions=(1, 2), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = None
    acquisition_lock_timeout_ms: i32 = 0
    responses: list[ShareFetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


class ShareFetchableTopicResponse(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[ShareFetchResponsePartitionData] = []


class LeaderIdAndEpoch(Value):
    leader_id: i32 = 0
    leader_epoch: i32 = 0


class ShareFetchResponsePartitionData(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0
    error_message: string | None = None
    acknowledge_error_code: i16 = 0
    acknowledge_error_message: string | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    records: records_ = b""
    acquired_records: list[AcquiredRecords] = []


class AcquiredRecords(Struct):
    first_offset: i64 = 0
    last_offset: i64 = 0
    delivery_count: i16 = 0


class NodeEndpoint(Struct):
    node_id: i32 = 0
    host: string = ""
    port: i32 = 0
    rack: string | None = None


class ShareAcknowledgeRequest(Message, api_key=79, versions=(1, 2), flexible=0):
    """v2 renewal (KIP-1222)."""

    group_id: string | None = None
    member_id: string | None = ""
    share_session_epoch: i32 = 0
    is_renew_ack: Annotated[boolean, since(2)] = False
    topics: list[AcknowledgeTopic] = []


class AcknowledgeTopic(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[AcknowledgePartition] = []


class AcknowledgePartition(Struct):
    partition_index: i32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class ShareAcknowledgeResponse(Message, api_key=79, versions=(1, 2), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = None
    acquisition_lock_timeout_ms: Annotated[i32, since(2), ignorable] = 0
    responses: list[ShareAcknowledgeTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[ShareAcknowledgeResponsePartitionData] = []


class ShareAcknowledgeResponsePartitionData(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0
    error_message: string | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()


class DescribeShareGroupOffsetsRequest(Message, api_key=90, versions=(0, 1), flexible=0):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = []


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: string = ""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = []


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: string = ""
    partitions: list[i32] = []


class DescribeShareGroupOffsetsResponse(Message, api_key=90, versions=(0, 1), flexible=0):
    """v1 lag (KIP-1226)."""

    throttle_time_ms: i32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: string = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    error_code: i16 = 0
    error_message: string | None = None


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: string = ""
    topic_id: uuid = ZERO_UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = []


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: i32 = 0
    start_offset: i64 = 0
    leader_epoch: i32 = 0
    lag: Annotated[i64, since(1), ignorable] = -1
    error_code: i16 = 0
    error_message: string | None = None


class AlterShareGroupOffsetsRequest(Message, api_key=91, versions=(0, 0), flexible=0):
    group_id: string = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = []


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: string = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = []


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: i32 = 0
    start_offset: i64 = 0


class AlterShareGroupOffsetsResponse(Message, api_key=91, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = []


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: string = ""
    topic_id: uuid = ZERO_UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition] = []


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0
    error_message: string | None = None


class DeleteShareGroupOffsetsRequest(Message, api_key=92, versions=(0, 0), flexible=0):
    group_id: string = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = []


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: string = ""


class DeleteShareGroupOffsetsResponse(Message, api_key=92, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: string = ""
    topic_id: uuid = ZERO_UUID
    error_code: i16 = 0
    error_message: string | None = None
