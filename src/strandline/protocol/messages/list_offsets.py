"""ListOffsets (2): an offset for a timestamp, or for one of the special timestamps."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, i8, i16, i32, i64, ignorable, since, string

# Special timestamps.
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6


class ListOffsetsRequest(Message, api_key=2, versions=(1, 11), flexible=6):
    """v2 isolation level, v4 leader epoch (KIP-320), v6 flexible; special timestamps: v7 the largest (KIP-734), v8
    earliest local (KIP-405), v9 latest tiered (KIP-1005), v11 earliest pending upload (KIP-1023). v10 has a timeout
    (KIP-1075)."""

    replica_id: i32 = 0  # -1 a consumer, -2 a debugging consumer
    isolation_level: Annotated[i8, since(2)] = 0
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Annotated[i32, since(10), ignorable] = 0


class ListOffsetsTopic(Struct):
    name: string = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsPartition(Struct):
    partition_index: i32 = 0
    current_leader_epoch: Annotated[i32, since(4), ignorable] = -1
    timestamp: i64 = 0


class ListOffsetsResponse(Message, api_key=2, versions=(1, 11), flexible=6):
    """v1 one offset per partition, v2 throttle time, v4 leader epoch, v5 OFFSET_NOT_AVAILABLE (KIP-207), v6
    flexible."""

    throttle_time_ms: Annotated[i32, since(2), ignorable] = 0
    topics: list[ListOffsetsTopicResponse] = []


class ListOffsetsTopicResponse(Struct):
    name: string = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsPartitionResponse(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0
    timestamp: i64 = -1
    offset: i64 = -1
    leader_epoch: Annotated[i32, since(4)] = -1
