"""Fetch (1): record batches from partitions, for consumers, for followers, and for the metadata log."""

from __future__ import annotations

from typing import Annotated

from strandline.model.ids import ZERO_UUID
from strandline.protocol.types import (
    Message,
    Struct,
    Value,
    i8,
    i16,
    i32,
    i64,
    ignorable,
    records_,
    since,
    string,
    tag,
    until,
    uuid,
)


class ReplicaState(Value):
    replica_id: i32 = -1
    replica_epoch: i64 = -1


class FetchRequest(Message, api_key=1, versions=(4, 18), flexible=12):
    """v4 isolation level, v5 log start offset, v7 sessions (KIP-227), v9 leader epoch (KIP-320), v10 zstd, v11 rack
    (KIP-392), v12 flexible and divergence (KIP-595), v13 topic ids (KIP-516), v14 tiered storage error (KIP-405),
    v15 replica state (KIP-903), v17 directory id (KIP-853), v18 high watermark (KIP-1166)."""

    cluster_id: Annotated[string | None, since(12), tag(0), ignorable] = None
    replica_id: Annotated[i32, until(14)] = -1  # -1 a consumer, -2 a debugging consumer
    replica_state: Annotated[ReplicaState, since(15), tag(1)] = ReplicaState()
    max_wait_ms: i32 = 0
    min_bytes: i32 = 0
    max_bytes: i32 = 0x7FFFFFFF
    isolation_level: i8 = 0  # 0 read_uncommitted, 1 read_committed
    session_id: Annotated[i32, since(7), ignorable] = 0
    session_epoch: Annotated[i32, since(7), ignorable] = -1  # 0 new session, -1 no session
    topics: list[FetchTopic] = []
    forgotten_topics_data: Annotated[list[ForgottenTopic], since(7)] = []
    rack_id: Annotated[string, since(11), ignorable] = ""


class FetchTopic(Struct):
    topic: Annotated[string, until(12), ignorable] = ""
    topic_id: Annotated[uuid, since(13), ignorable] = ZERO_UUID
    partitions: list[FetchPartition] = []


class FetchPartition(Struct):
    partition: i32 = 0
    current_leader_epoch: Annotated[i32, since(9), ignorable] = -1
    fetch_offset: i64 = 0
    last_fetched_epoch: Annotated[i32, since(12)] = -1
    log_start_offset: Annotated[i64, since(5), ignorable] = -1
    partition_max_bytes: i32 = 0
    replica_directory_id: Annotated[uuid, since(17), tag(0), ignorable] = ZERO_UUID
    high_watermark: Annotated[i64, since(18), tag(1), ignorable] = 0x7FFF_FFFF_FFFF_FFFF


class ForgottenTopic(Struct):
    topic: Annotated[string, until(12), ignorable] = ""
    topic_id: Annotated[uuid, since(13), ignorable] = ZERO_UUID
    partitions: list[i32] = []


class FetchResponse(Message, api_key=1, versions=(4, 18), flexible=12):
    """v5 log start offset, v7 sessions, v11 preferred read replica, v12 flexible with leader, divergence and
    snapshot hints, v13 topic ids, v16 endpoints of the leaders (KIP-951)."""

    throttle_time_ms: i32 = 0
    error_code: Annotated[i16, since(7), ignorable] = 0
    session_id: Annotated[i32, since(7)] = 0
    responses: list[FetchableTopicResponse] = []
    node_endpoints: Annotated[list[NodeEndpoint], since(16), tag(0)] = []


class FetchableTopicResponse(Struct):
    topic: Annotated[string, until(12), ignorable] = ""
    topic_id: Annotated[uuid, since(13), ignorable] = ZERO_UUID
    partitions: list[PartitionData] = []


class EpochEndOffset(Value):
    epoch: i32 = -1
    end_offset: i64 = -1


class LeaderIdAndEpoch(Value):
    leader_id: i32 = -1
    leader_epoch: i32 = -1


class SnapshotId(Value):
    end_offset: i64 = -1
    epoch: i32 = -1


class PartitionData(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0
    high_watermark: i64 = 0
    last_stable_offset: i64 = -1
    log_start_offset: Annotated[i64, since(5), ignorable] = -1
    diverging_epoch: Annotated[EpochEndOffset, since(12), tag(0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, since(12), tag(1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, since(12), tag(2)] = SnapshotId()
    aborted_transactions: list[AbortedTransaction] | None = []  # null when read_uncommitted
    preferred_read_replica: Annotated[i32, since(11)] = -1
    records: records_ | None = None


class AbortedTransaction(Struct):
    producer_id: i64 = 0
    first_offset: i64 = 0


class NodeEndpoint(Struct):
    node_id: i32 = 0
    host: string = ""
    port: i32 = 0
    rack: string | None = None
