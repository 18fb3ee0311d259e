"""TxnOffsetCommit (28), versions 0-5: offsets that take effect when their transaction is committed.

Sent to the group coordinator, which confirms the transaction as a partition leader does for records: its partition of
`__consumer_offsets` is a part of the transaction, added by AddOffsetsToTxn or, from version 5 on, here (KIP-890).
"""

from __future__ import annotations

from typing import Final

from strandline.coordinator.machine import Producer
from strandline.coordinator.offset_requests import commit_transactional_offsets
from strandline.coordinator.partitioning import GROUP_TOPIC
from strandline.handlers.context import BrokerContext, Call
from strandline.handlers.ongoing_transactions import confirm
from strandline.log.partition_log import PartitionLog
from strandline.log.producers import Verification
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import ZERO_UUID, TopicPartition
from strandline.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_FIRST_VERSION_THAT_ADDS: Final = 5
_FIRST_VERSION_WITH_ABORTABLE: Final = 4
_FIRST_VERSION_WITH_LOAD_IN_PROGRESS: Final = 2


async def handle_txn_offset_commit(
    broker: BrokerContext, call: Call, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    known: list[TxnOffsetCommitRequestTopic] = []
    refused: dict[str, list[TxnOffsetCommitResponsePartition]] = {}
    for topic in request.topics:
        info = broker.view.topic(topic.name)
        count = 0 if info is None else info.partition_count
        good = [each for each in topic.partitions if 0 <= each.partition_index < count]
        bad = [each.partition_index for each in topic.partitions if not 0 <= each.partition_index < count]
        if good:
            known.append(TxnOffsetCommitRequestTopic(topic.name, good))
        if bad:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused[topic.name] = [TxnOffsetCommitResponsePartition(index, unknown) for index in bad]
    if request.topics and not known:
        return TxnOffsetCommitResponse(
            topics=[TxnOffsetCommitResponseTopic(name, results) for name, results in refused.items()]
        )
    call.park()
    request.topics = known
    try:
        response = await _commit(broker, call, request)
    except KafkaError as error:
        response = _failed(request, _code_for(error.code, call.version))
    for committed in response.topics:
        committed.partitions = refused.pop(committed.name, []) + committed.partitions
    response.topics += [TxnOffsetCommitResponseTopic(name, results) for name, results in refused.items()]
    return response


async def _commit(broker: BrokerContext, call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    shard = broker.groups.for_key(request.group_id)
    index = shard.topic_partition.partition
    _, _, log = await broker.partitions.find_leading(GROUP_TOPIC, ZERO_UUID, index)
    verification = await _confirmed(broker, call, request, log, shard.topic_partition)
    producer = Producer(request.producer_id, request.producer_epoch)
    if verification is not None and log.producers.verification(producer.producer_id) is not verification:
        is_open = log.producers.has_open_transaction(*producer)
        if not is_open:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the transaction has ended meanwhile")
    return await shard.write_in_transaction(
        producer, lambda machine, now: commit_transactional_offsets(machine, request, now, broker.view.topic_id)
    )


async def _confirmed(
    broker: BrokerContext, call: Call, request: TxnOffsetCommitRequest, log: PartitionLog, partition: TopicPartition
) -> Verification | None:
    producer = (request.producer_id, request.producer_epoch)
    adds = call.version >= _FIRST_VERSION_THAT_ADDS
    if log.producers.has_open_transaction(*producer):
        return None
    if not adds and not broker.config.get("transaction.partition.verification.enable"):
        return None
    verification = log.producers.start_verification(*producer, 0)
    codes = await confirm(broker, request.transactional_id, *producer, [partition], verify_only=not adds)
    code = codes[partition]
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and call.version < _FIRST_VERSION_WITH_ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"the transaction of {request.transactional_id!r} is not confirmed")
    return verification


def _code_for(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.NETWORK_EXCEPTION:
        # Retried by all clients, without looking for another coordinator.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.NOT_COORDINATOR
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_VERSION_WITH_LOAD_IN_PROGRESS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _failed(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name, [TxnOffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )
