"""Topics: CreateTopics (19), DeleteTopics (20), DeleteRecords (21), CreatePartitions (37), DescribeTopicPartitions
(75)."""

from __future__ import annotations

from typing import Annotated

from strandline.model.ids import ZERO_UUID
from strandline.protocol.types import (
    Message,
    Struct,
    boolean,
    i8,
    i16,
    i32,
    i64,
    ignorable,
    nullable,
    since,
    string,
    tag,
    until,
    uuid,
)


class CreateTopicsRequest(Message, api_key=19, versions=(2, 7), flexible=5):
    """v4 -1 means the broker's default (KIP-464), v5 flexible, v6 may be throttled (KIP-599)."""

    topics: list[CreatableTopic] = []
    timeout_ms: i32 = 60000
    validate_only: boolean = False


class CreatableTopic(Struct):
    name: string = ""
    num_partitions: i32 = 0  # -1 with assignments, or for the default
    replication_factor: i16 = 0  # -1 with assignments, or for the default
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreatableReplicaAssignment(Struct):
    partition_index: i32 = 0
    broker_ids: list[i32] = []


class CreatableTopicConfig(Struct):
    name: string = ""
    value: string | None = ""


class CreateTopicsResponse(Message, api_key=19, versions=(2, 7), flexible=5):
    """v5 flexible, the resulting configs (KIP-525), v7 topic id."""

    throttle_time_ms: i32 = 0
    topics: list[CreatableTopicResult] = []


class CreatableTopicResult(Struct):
    name: string = ""
    topic_id: Annotated[uuid, since(7), ignorable] = ZERO_UUID
    error_code: i16 = 0
    error_message: string | None = ""
    topic_config_error_code: Annotated[i16, since(5), tag(0), ignorable] = 0
    num_partitions: Annotated[i32, since(5), ignorable] = -1
    replication_factor: Annotated[i16, since(5), ignorable] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, since(5), ignorable] = []


class CreatableTopicConfigs(Struct):
    name: string = ""
    value: string | None = ""
    read_only: boolean = False
    config_source: i8 = -1
    is_sensitive: boolean = False


class DeleteTopicsRequest(Message, api_key=20, versions=(1, 6), flexible=4):
    """v4 flexible, v6 by name or by id (KIP-516)."""

    topics: Annotated[list[DeleteTopicState], since(6)] = []
    topic_names: Annotated[list[string], until(5), ignorable] = []
    timeout_ms: i32 = 0


class DeleteTopicState(Struct):
    name: string | None = None
    topic_id: uuid = ZERO_UUID


class DeleteTopicsResponse(Message, api_key=20, versions=(1, 6), flexible=4):
    """v4 flexible, v5 message, v6 topic id, whose name may then be null."""

    throttle_time_ms: i32 = 0
    responses: list[DeletableTopicResult] = []


class DeletableTopicResult(Struct):
    name: Annotated[string | None, nullable(6)] = ""
    topic_id: Annotated[uuid, since(6), ignorable] = ZERO_UUID
    error_code: i16 = 0
    error_message: Annotated[string | None, since(5), ignorable] = None


class CreatePartitionsRequest(Message, api_key=37, versions=(0, 3), flexible=2):
    """v2 flexible, v3 may be throttled (KIP-599)."""

    topics: list[CreatePartitionsTopic] = []
    timeout_ms: i32 = 0
    validate_only: boolean = False


class CreatePartitionsTopic(Struct):
    name: string = ""
    count: i32 = 0
    assignments: list[CreatePartitionsAssignment] | None = []


class CreatePartitionsAssignment(Struct):
    broker_ids: list[i32] = []


class CreatePartitionsResponse(Message, api_key=37, versions=(0, 3), flexible=2):
    throttle_time_ms: i32 = 0
    results: list[CreatePartitionsTopicResult] = []


class CreatePartitionsTopicResult(Struct):
    name: string = ""
    error_code: i16 = 0
    error_message: string | None = None


class DescribeTopicPartitionsRequest(Message, api_key=75, versions=(0, 0), flexible=0):
    """A page of partitions from a cursor on, topics in order of their names (KIP-966)."""

    topics: list[TopicRequest] = []
    response_partition_limit: i32 = 2000
    cursor: Cursor | None = None


class TopicRequest(Struct):
    name: string = ""


class Cursor(Struct):
    topic_name: string = ""
    partition_index: i32 = 0


class DescribeTopicPartitionsResponse(Message, api_key=75, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: i16 = 0
    name: string | None = ""
    topic_id: uuid = ZERO_UUID
    is_internal: boolean = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: i32 = -0x80000000


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: i16 = 0
    partition_index: i32 = 0
    leader_id: i32 = 0
    leader_epoch: i32 = -1
    replica_nodes: list[i32] = []
    isr_nodes: list[i32] = []
    eligible_leader_replicas: list[i32] | None = None
    last_known_elr: list[i32] | None = None
    offline_replicas: list[i32] = []


class DeleteRecordsRequest(Message, api_key=21, versions=(0, 2), flexible=2):
    """Deletes the records before an offset; -1 means the high watermark. v2 flexible."""

    topics: list[DeleteRecordsTopic] = []
    timeout_ms: i32 = 0


class DeleteRecordsTopic(Struct):
    name: string = ""
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsPartition(Struct):
    partition_index: i32 = 0
    offset: i64 = 0


class DeleteRecordsResponse(Message, api_key=21, versions=(0, 2), flexible=2):
    throttle_time_ms: i32 = 0
    topics: list[DeleteRecordsTopicResult] = []


class DeleteRecordsTopicResult(Struct):
    name: string = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsPartitionResult(Struct):
    partition_index: i32 = 0
    low_watermark: i64 = 0
    error_code: i16 = 0
