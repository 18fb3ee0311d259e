"""Transactions: AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), WriteTxnMarkers (27), TxnOffsetCommit
(28), and describing and listing them."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, boolean, i8, i16, i32, i64, ignorable, since, string, until


class AddPartitionsToTxnRequest(Message, api_key=24, versions=(0, 5), flexible=3):
    """v3 flexible. Up to v3 it is sent by clients, for one transaction; from v4 by brokers, for several (KIP-890)."""

    transactions: Annotated[list[AddPartitionsToTxnTransaction], since(4)] = []
    v3_and_below_transactional_id: Annotated[string, until(3)] = ""
    v3_and_below_producer_id: Annotated[i64, until(3)] = 0
    v3_and_below_producer_epoch: Annotated[i16, until(3)] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], until(3)] = []


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: string = ""
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    verify_only: boolean = False
    topics: list[AddPartitionsToTxnTopic] = []


class AddPartitionsToTxnTopic(Struct):
    name: string = ""
    partitions: list[i32] = []


class AddPartitionsToTxnResponse(Message, api_key=24, versions=(0, 5), flexible=3):
    """v3 flexible, v4 several transactions."""

    throttle_time_ms: i32 = 0
    error_code: Annotated[i16, since(4), ignorable] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], since(4)] = []
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], until(3)] = []


class AddPartitionsToTxnResult(Struct):
    transactional_id: string = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = []


class AddPartitionsToTxnTopicResult(Struct):
    name: string = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: i32 = 0
    partition_error_code: i16 = 0


class AddOffsetsToTxnRequest(Message, api_key=25, versions=(0, 4), flexible=3):
    """v2 PRODUCER_FENCED, v3 flexible, v4 TRANSACTION_ABORTABLE."""

    transactional_id: string = ""
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    group_id: string = ""


class AddOffsetsToTxnResponse(Message, api_key=25, versions=(0, 4), flexible=3):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0


class EndTxnRequest(Message, api_key=26, versions=(0, 5), flexible=3):
    """v2 PRODUCER_FENCED, v3 flexible, v4 TRANSACTION_ABORTABLE, v5 a new epoch after every transaction (KIP-890)."""

    transactional_id: string = ""
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    committed: boolean = False


class EndTxnResponse(Message, api_key=26, versions=(0, 5), flexible=3):
    """v3 flexible, v5 the next producer id and epoch."""

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    producer_id: Annotated[i64, since(5), ignorable] = -1
    producer_epoch: Annotated[i16, since(5), ignorable] = -1


class WriteTxnMarkersRequest(Message, api_key=27, versions=(1, 2), flexible=1):
    """Sent by the transaction coordinator to leaders. v1 flexible, v2 transaction version (KIP-1228)."""

    markers: list[WritableTxnMarker] = []


class WritableTxnMarker(Struct):
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    transaction_result: boolean = False
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: i32 = 0
    transaction_version: Annotated[i8, since(2), ignorable] = 0


class WritableTxnMarkerTopic(Struct):
    name: string = ""
    partition_indexes: list[i32] = []


class WriteTxnMarkersResponse(Message, api_key=27, versions=(1, 2), flexible=1):
    markers: list[WritableTxnMarkerResult] = []


class WritableTxnMarkerResult(Struct):
    producer_id: i64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WritableTxnMarkerTopicResult(Struct):
    name: string = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0


class TxnOffsetCommitRequest(Message, api_key=28, versions=(0, 5), flexible=3):
    """v2 leader epoch, v3 flexible, with member and generation (KIP-447), v4 TRANSACTION_ABORTABLE, v5 adds the
    group to the transaction by itself (KIP-890)."""

    transactional_id: string = ""
    group_id: string = ""
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    generation_id: Annotated[i32, since(3)] = -1
    member_id: Annotated[string, since(3)] = ""
    group_instance_id: Annotated[string | None, since(3)] = None
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitRequestTopic(Struct):
    name: string = ""
    partitions: list[TxnOffsetCommitRequestPartition] = []


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: i32 = 0
    committed_offset: i64 = 0
    committed_leader_epoch: Annotated[i32, since(2), ignorable] = -1
    committed_metadata: string | None = ""


class TxnOffsetCommitResponse(Message, api_key=28, versions=(0, 5), flexible=3):
    throttle_time_ms: i32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []


class TxnOffsetCommitResponseTopic(Struct):
    name: string = ""
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0


class DescribeTransactionsRequest(Message, api_key=65, versions=(0, 0), flexible=0):
    transactional_ids: list[string] = []


class DescribeTransactionsResponse(Message, api_key=65, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    transaction_states: list[DescribeTransactionsResponseTransactionState] = []


class DescribeTransactionsResponseTransactionState(Struct):
    error_code: i16 = 0
    transactional_id: string = ""
    transaction_state: string = ""
    transaction_timeout_ms: i32 = 0
    transaction_start_time_ms: i64 = 0
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    topics: list[TopicData] = []


class TopicData(Struct):
    topic: string = ""
    partitions: list[i32] = []


class ListTransactionsRequest(Message, api_key=66, versions=(0, 2), flexible=0):
    """v1 older than a duration, v2 by a pattern of ids (KIP-1152)."""

    state_filters: list[string] = []
    producer_id_filters: list[i64] = []
    duration_filter: Annotated[i64, since(1)] = -1
    transactional_id_pattern: Annotated[string | None, since(2)] = None


class ListTransactionsResponse(Message, api_key=66, versions=(0, 2), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    unknown_state_filters: list[string] = []
    transaction_states: list[ListTransactionsResponseTransactionState] = []


class ListTransactionsResponseTransactionState(Struct):
    transactional_id: string = ""
    producer_id: i64 = 0
    transaction_state: string = ""
