"""Produce (0): record batches for partitions, and their offsets."""

from __future__ import annotations

from typing import Annotated

from strandline.model.ids import ZERO_UUID
from strandline.protocol.types import (
    Message,
    Struct,
    Value,
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


class ProduceRequest(Message, api_key=0, versions=(3, 13), flexible=9):
    """v7 zstd (KIP-110), v9 flexible, v11 TRANSACTION_ABORTABLE (KIP-890), v12 adds partitions to the transaction by
    itself (KIP-890), v13 topic ids (KIP-516). Versions before 3 were removed (KIP-896)."""

    transactional_id: string | None = None
    acks: i16 = 0  # -1 all in-sync replicas, 0 no response, 1 the leader
    timeout_ms: i32 = 0
    topic_data: list[TopicProduceData] = []


class TopicProduceData(Struct):
    name: Annotated[string, until(12), ignorable] = ""
    topic_id: Annotated[uuid, since(13), ignorable] = ZERO_UUID
    partition_data: list[PartitionProduceData] = []


class PartitionProduceData(Struct):
    index: i32 = 0
    records: records_ | None = None


class ProduceResponse(Message, api_key=0, versions=(3, 13), flexible=9):
    """v4 KAFKA_STORAGE_ERROR, v5 log start offset, v8 errors per record (KIP-467), v9 flexible, v10 the current leader
    with NOT_LEADER_OR_FOLLOWER (KIP-951), v13 topic ids."""

    responses: list[TopicProduceResponse] = []
    throttle_time_ms: i32 = 0
    node_endpoints: Annotated[list[NodeEndpoint], since(10), tag(0)] = []


class TopicProduceResponse(Struct):
    name: Annotated[string, until(12), ignorable] = ""
    topic_id: Annotated[uuid, since(13), ignorable] = ZERO_UUID
    partition_responses: list[PartitionProduceResponse] = []


class LeaderIdAndEpoch(Value):
    leader_id: i32 = -1
    leader_epoch: i32 = -1


class PartitionProduceResponse(Struct):
    index: i32 = 0
    error_code: i16 = 0
    base_offset: i64 = 0
    log_append_time_ms: i64 = -1
    log_start_offset: Annotated[i64, since(5), ignorable] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], since(8), ignorable] = []
    error_message: Annotated[string | None, since(8), ignorable] = None
    current_leader: Annotated[LeaderIdAndEpoch, since(10), tag(0)] = LeaderIdAndEpoch()


class BatchIndexAndErrorMessage(Struct):
    batch_index: i32 = 0
    batch_index_error_message: string | None = None


class NodeEndpoint(Struct):
    node_id: i32 = 0
    host: string = ""
    port: i32 = 0
    rack: string | None = None
