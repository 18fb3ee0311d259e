"""list_offsets"""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, i8, i16, i32, i64, ignorable, since, string


class ListOffsetsRequest(Message, api_key=2, versions=(1, 11), flexible=6):
    replica_id: i32 = 0
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
