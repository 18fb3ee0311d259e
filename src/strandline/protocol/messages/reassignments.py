"""Moving replicas: AlterPartitionReassignments (45), ListPartitionReassignments (46)."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, boolean, i16, i32, ignorable, since, string


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions=(0, 1), flexible=0):
    """Null replicas cancel a reassignment (KIP-455). v1 may forbid changing the replication factor (KIP-860)."""

    timeout_ms: i32 = 60000
    allow_replication_factor_change: Annotated[boolean, since(1)] = True
    topics: list[ReassignableTopic] = []


class ReassignableTopic(Struct):
    name: string = ""
    partitions: list[ReassignablePartition] = []


class ReassignablePartition(Struct):
    partition_index: i32 = 0
    replicas: list[i32] | None = None


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions=(0, 1), flexible=0):
    throttle_time_ms: i32 = 0
    allow_replication_factor_change: Annotated[boolean, since(1), ignorable] = True
    error_code: i16 = 0
    error_message: string | None = ""
    responses: list[ReassignableTopicResponse] = []


class ReassignableTopicResponse(Struct):
    name: string = ""
    partitions: list[ReassignablePartitionResponse] = []


class ReassignablePartitionResponse(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0
    error_message: string | None = ""


class ListPartitionReassignmentsRequest(Message, api_key=46, versions=(0, 0), flexible=0):
    """Null topics means all."""

    timeout_ms: i32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class ListPartitionReassignmentsTopics(Struct):
    name: string = ""
    partition_indexes: list[i32] = []


class ListPartitionReassignmentsResponse(Message, api_key=46, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = ""
    topics: list[OngoingTopicReassignment] = []


class OngoingTopicReassignment(Struct):
    name: string = ""
    partitions: list[OngoingPartitionReassignment] = []


class OngoingPartitionReassignment(Struct):
    partition_index: i32 = 0
    replicas: list[i32] = []
    adding_replicas: list[i32] = []
    removing_replicas: list[i32] = []
