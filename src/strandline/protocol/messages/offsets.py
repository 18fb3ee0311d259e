"""Committed offsets: OffsetCommit (8), OffsetFetch (9), OffsetDelete (47)."""

from __future__ import annotations

from typing import Annotated

from strandline.model.ids import ZERO_UUID
from strandline.protocol.types import (
    Message,
    Struct,
    between,
    boolean,
    i16,
    i32,
    i64,
    ignorable,
    nullable,
    since,
    string,
    until,
    uuid,
)


class OffsetCommitRequest(Message, api_key=8, versions=(2, 10), flexible=8):
    """v2-4 retention time, v6 leader epoch, v7 static members, v8 flexible, v9 consumer groups (KIP-848), v10 topic
    ids."""

    group_id: string = ""
    generation_id_or_member_epoch: i32 = -1
    member_id: string = ""
    group_instance_id: Annotated[string | None, since(7)] = None
    retention_time_ms: Annotated[i64, until(4), ignorable] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitRequestTopic(Struct):
    name: Annotated[string, until(9), ignorable] = ""
    topic_id: Annotated[uuid, since(10), ignorable] = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequestPartition(Struct):
    partition_index: i32 = 0
    committed_offset: i64 = 0
    committed_leader_epoch: Annotated[i32, since(6), ignorable] = -1
    committed_metadata: string | None = ""


class OffsetCommitResponse(Message, api_key=8, versions=(2, 10), flexible=8):
    """v3 throttle time, v8 flexible, v10 topic ids."""

    throttle_time_ms: Annotated[i32, since(3), ignorable] = 0
    topics: list[OffsetCommitResponseTopic] = []


class OffsetCommitResponseTopic(Struct):
    name: Annotated[string, until(9), ignorable] = ""
    topic_id: Annotated[uuid, since(10), ignorable] = ZERO_UUID
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponsePartition(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0


class OffsetFetchRequest(Message, api_key=9, versions=(1, 10), flexible=6):
    """v2 null means all topics, v6 flexible, v7 only stable offsets (KIP-447), v8 several groups (KIP-709), v9
    member and epoch (KIP-848), v10 topic ids."""

    group_id: Annotated[string, until(7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, until(7), nullable(2)] = []
    groups: Annotated[list[OffsetFetchRequestGroup], since(8)] = []
    require_stable: Annotated[boolean, since(7)] = False


class OffsetFetchRequestTopic(Struct):
    name: string = ""
    partition_indexes: list[i32] = []


class OffsetFetchRequestGroup(Struct):
    group_id: string = ""
    member_id: Annotated[string | None, since(9), ignorable] = None
    member_epoch: Annotated[i32, since(9), ignorable] = -1
    topics: list[OffsetFetchRequestTopics] | None = []


class OffsetFetchRequestTopics(Struct):
    name: Annotated[string, until(9), ignorable] = ""
    topic_id: Annotated[uuid, since(10), ignorable] = ZERO_UUID
    partition_indexes: list[i32] = []


class OffsetFetchResponse(Message, api_key=9, versions=(1, 10), flexible=6):
    """v2 error code, v3 throttle time, v5 leader epoch, v6 flexible, v8 several groups, v10 topic ids."""

    throttle_time_ms: Annotated[i32, since(3), ignorable] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], until(7)] = []
    error_code: Annotated[i16, between(2, 7), ignorable] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], since(8)] = []


class OffsetFetchResponseTopic(Struct):
    name: string = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponsePartition(Struct):
    partition_index: i32 = 0
    committed_offset: i64 = 0
    committed_leader_epoch: Annotated[i32, since(5), ignorable] = -1
    metadata: string | None = ""
    error_code: i16 = 0


class OffsetFetchResponseGroup(Struct):
    group_id: string = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: i16 = 0


class OffsetFetchResponseTopics(Struct):
    name: Annotated[string, until(9), ignorable] = ""
    topic_id: Annotated[uuid, since(10), ignorable] = ZERO_UUID
    partitions: list[OffsetFetchResponsePartitions] = []


class OffsetFetchResponsePartitions(Struct):
    partition_index: i32 = 0
    committed_offset: i64 = 0
    committed_leader_epoch: i32 = -1
    metadata: string | None = ""
    error_code: i16 = 0


class OffsetDeleteRequest(Message, api_key=47, versions=(0, 0)):
    """Never flexible (KIP-496)."""

    group_id: string = ""
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteRequestTopic(Struct):
    name: string = ""
    partitions: list[OffsetDeleteRequestPartition] = []


class OffsetDeleteRequestPartition(Struct):
    partition_index: i32 = 0


class OffsetDeleteResponse(Message, api_key=47, versions=(0, 0)):
    error_code: i16 = 0
    throttle_time_ms: i32 = 0
    topics: list[OffsetDeleteResponseTopic] = []


class OffsetDeleteResponseTopic(Struct):
    name: string = ""
    partitions: list[OffsetDeleteResponsePartition] = []


class OffsetDeleteResponsePartition(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0
