"""Produce (0), versions 3-13. Left out: transactional batches, which come with the transaction coordinator: until
then they are refused, since nobody could end a transaction that they begin.

The hot path: no step per record, one append per partition, and no wait unless a high watermark is still behind.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from strandline.handlers.context import Broker, Call
from strandline.handlers.leadership import leader_addresses
from strandline.handlers.turns import Turns, others
from strandline.log.appending import Appended
from strandline.log.partition_log import PartitionLog
from strandline.log.refusal import RecordsRefused
from strandline.log.validation import is_heavy, validate
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import INTERNAL_TOPICS
from strandline.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from strandline.records.batch import ATTRIBUTES_AT, HEADER_SIZE, MAGIC, MAGIC_AT, TRANSACTIONAL
from strandline.replication.leader import Leader
from strandline.replication.partition import Partition
from strandline.runtime.watermark import Wait

_ACKS_ALL = -1
# Errors that say nothing about the partition's log: with the others Kafka tells where it begins.
_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class _Pending(NamedTuple):
    """An append that counts once the high watermark of the leadership that took it has passed it."""

    answer: PartitionProduceResponse
    leader: Leader
    offset: int


async def handle_produce(broker: Broker, call: Call, request: ProduceRequest) -> ProduceResponse | None:
    if request.acks not in (_ACKS_ALL, 0, 1):
        return failed(request, ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {request.acks}")
    if request.transactional_id is None and _has_transactional_records(request):
        return failed(
            request,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactional records come without a transactional id",
        )
    pending: list[_Pending] = []
    topics: list[TopicProduceResponse] = []
    turns = Turns(call)
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            if turns.over():
                await others()
            answers.append(await _produce_to(broker, call, request, topic, data, pending))
        if answers:
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    if pending:
        call.park()
        await _acknowledged(pending, request.timeout_ms)
    if request.acks == 0:
        _close_on_error(topics)
        return None
    response = ProduceResponse(responses=topics)
    if call.version >= 10:
        _tell_leaders(broker, call, response)
    return response


def _has_transactional_records(request: ProduceRequest) -> bool:
    return any(_is_transactional(data.records) for topic in request.topic_data for data in topic.partition_data)


def _is_transactional(records: Any) -> bool:
    if records is None or len(records) < HEADER_SIZE or records[MAGIC_AT] != MAGIC:
        return False
    return bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL)


async def _produce_to(
    broker: Broker,
    call: Call,
    request: ProduceRequest,
    topic: TopicProduceData,
    data: PartitionProduceData,
    pending: list[_Pending],
) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=data.index, base_offset=-1, log_append_time_ms=-1)
    log: PartitionLog | None = None
    try:
        partition = broker.partitions.find(topic.name, topic.topic_id, data.index, by_id=call.version >= 13)
        if partition.topic_partition.topic in INTERNAL_TOPICS and call.client_id != "__admin_client":
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "internal topics are written by the brokers only")
        log = partition.log or await partition.ready()
        if request.acks == _ACKS_ALL:
            partition.leading().check_enough_replicas()
        appended = await _append(broker, call, partition, log, data)
    except KafkaError as error:
        _refuse(answer, error, log)
        return answer
    answer.base_offset = appended.base_offset
    answer.log_append_time_ms = appended.log_append_time
    answer.log_start_offset = log.log_start_offset
    leader = partition.leader
    # acks=1 waits too where `flush.messages=1` promised that an answer means "on disk".
    waits = request.acks == _ACKS_ALL or (request.acks == 1 and log.settings.flush_messages == 1)
    if waits and leader is not None and leader.high_watermark.value <= appended.last_offset:
        # Of this leadership, not of the one that may have followed it when the waiting begins.
        pending.append(_Pending(answer, leader, appended.last_offset + 1))
    return answer


async def _append(
    broker: Broker, call: Call, partition: Partition, log: PartitionLog, data: PartitionProduceData
) -> Appended:
    if data.records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "there is no record batch for this partition")
    records = memoryview(data.records)  # type: ignore[arg-type]  # decoded, so never a slice of a file
    if _is_transactional(records):
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not served by this release")
    clock = broker.world.clock
    wall_ms = clock.wall_ms()
    if not is_heavy(records, log.settings, wall_ms):
        return partition.append(records, api_version=call.version, wall_ms=wall_ms, now_ms=clock.now_ms())
    work = partial(validate, records, log.settings, wall_ms=wall_ms, api_version=call.version)
    validated = await broker.world.offload.run(work)
    return partition.append_validated(validated, wall_ms=clock.wall_ms(), now_ms=clock.now_ms())


async def _acknowledged(pending: list[_Pending], timeout_ms: int) -> None:
    wait = Wait(len(pending))
    parts = [wait.reach(one.leader.high_watermark, one.offset) for one in pending]
    await wait.done(timeout_ms)
    for one, part in zip(pending, parts, strict=True):
        if part.reached:
            code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if one.leader.lost_replicas else ErrorCode.NONE
        else:
            code = ErrorCode.REQUEST_TIMED_OUT if part.lost is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if code != ErrorCode.NONE:
            one.answer.error_code = code
            one.answer.base_offset = -1
            one.answer.log_append_time_ms = -1


def _refuse(answer: PartitionProduceResponse, error: KafkaError, log: PartitionLog | None) -> None:
    answer.error_code = error.code
    answer.error_message = error.why or None
    if log is not None and error.code not in _WITHOUT_LOG_START:
        answer.log_start_offset = log.log_start_offset
    if isinstance(error, RecordsRefused):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why)
            for index, why in error.record_errors
        ]


def _close_on_error(topics: list[TopicProduceResponse]) -> None:
    """With acks=0 nothing can be answered; closing is the only way to make the client look again."""
    for topic in topics:
        for answer in topic.partition_responses:
            if answer.error_code != ErrorCode.NONE:
                code = ErrorCode(answer.error_code).name
                raise ConnectionAbortedError(f"acks=0 produce to {topic.name}-{answer.index} failed with {code}")


def _tell_leaders(broker: Broker, call: Call, response: ProduceResponse) -> None:
    """KIP-951: who leads instead, so that the client need not ask."""
    moved: list[int] = []
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            info = broker.partitions.info(broker.view, topic.name, topic.topic_id, answer.index)
            if info is not None:
                answer.current_leader = LeaderIdAndEpoch(leader_id=info.leader, leader_epoch=info.leader_epoch)
                moved.append(info.leader)
    if moved:
        response.node_endpoints = [NodeEndpoint(*address) for address in leader_addresses(broker, call.listener, moved)]


def failed(request: ProduceRequest, code: ErrorCode, why: str) -> ProduceResponse | None:
    if request.acks == 0:
        raise ConnectionAbortedError(why)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=data.index, error_code=code, base_offset=-1, log_append_time_ms=-1, error_message=why
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
