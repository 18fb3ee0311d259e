"""Producers: InitProducerId (22), DescribeProducers (61), AllocateProducerIds (67)."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, boolean, i16, i32, i64, since, string


class InitProducerIdRequest(Message, api_key=22, versions=(0, 6), flexible=2):
    """v2 flexible, v3 resumes a producer (KIP-360), v4 PRODUCER_FENCED, v5 TRANSACTION_ABORTABLE (KIP-890), v6
    two-phase commit (KIP-939; marked unstable by Kafka)."""

    transactional_id: string | None = ""
    transaction_timeout_ms: i32 = 0
    producer_id: Annotated[i64, since(3)] = -1
    producer_epoch: Annotated[i16, since(3)] = -1
    enable2_pc: Annotated[boolean, since(6)] = False
    keep_prepared_txn: Annotated[boolean, since(6)] = False


class InitProducerIdResponse(Message, api_key=22, versions=(0, 6), flexible=2):
    """v2 flexible, v6 the transaction that is still prepared."""

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    producer_id: i64 = -1
    producer_epoch: i16 = 0
    ongoing_txn_producer_id: Annotated[i64, since(6)] = -1
    ongoing_txn_producer_epoch: Annotated[i16, since(6)] = -1


class DescribeProducersRequest(Message, api_key=61, versions=(0, 0), flexible=0):
    """The active producers of partitions, for finding hanging transactions (KIP-664)."""

    topics: list[TopicRequest] = []


class TopicRequest(Struct):
    name: string = ""
    partition_indexes: list[i32] = []


class DescribeProducersResponse(Message, api_key=61, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    topics: list[TopicResponse] = []


class TopicResponse(Struct):
    name: string = ""
    partitions: list[PartitionResponse] = []


class PartitionResponse(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0
    error_message: string | None = None
    active_producers: list[ProducerState] = []


class ProducerState(Struct):
    producer_id: i64 = 0
    producer_epoch: i32 = 0
    last_sequence: i32 = -1
    last_timestamp: i64 = -1
    coordinator_epoch: i32 = 0
    current_txn_start_offset: i64 = -1


class AllocateProducerIdsRequest(Message, api_key=67, versions=(0, 0), flexible=0):
    """A block of producer ids for a broker (KIP-730)."""

    broker_id: i32 = 0
    broker_epoch: i64 = -1


class AllocateProducerIdsResponse(Message, api_key=67, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    producer_id_start: i64 = 0
    producer_id_len: i32 = 0
