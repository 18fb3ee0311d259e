"""OffsetForLeaderEpoch (23): the end offset of a leader epoch, for consumers that validate their position."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, i16, i32, i64, ignorable, since, string


class OffsetForLeaderEpochRequest(Message, api_key=23, versions=(2, 4), flexible=4):
    """v2 current leader epoch (KIP-320), v3 replica id (KIP-392), v4 flexible."""

    replica_id: Annotated[i32, since(3), ignorable] = -2
    topics: list[OffsetForLeaderTopic] = []


class OffsetForLeaderTopic(Struct):
    topic: string = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderPartition(Struct):
    partition: i32 = 0
    current_leader_epoch: i32 = -1
    leader_epoch: i32 = 0


class OffsetForLeaderEpochResponse(Message, api_key=23, versions=(2, 4), flexible=4):
    throttle_time_ms: i32 = 0
    topics: list[OffsetForLeaderTopicResult] = []


class OffsetForLeaderTopicResult(Struct):
    topic: string = ""
    partitions: list[EpochEndOffset] = []


class EpochEndOffset(Struct):
    error_code: i16 = 0
    partition: i32 = 0
    leader_epoch: i32 = -1
    end_offset: i64 = -1
