"""Produce (0), versions 3-13. Left out: transactional batches, which come with the transaction coordinator.

The hot path: no step per record, one append per partition, and no wait unless a high watermark is still behind.
"""

from __future__ import annotations

from functools import partial

from strandline.handlers.context import Broker, Call
from strandline.handlers.leadership import leader_addresses
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
from strandline.replication.partition import Partition
from strandline.runtime.watermark import Part, Wait

_ACKS_ALL = -1


async def handle_produce(broker: Broker, call: Call, request: ProduceRequest) -> ProduceResponse | None:
    if request.acks not in (_ACKS_ALL, 0, 1):
        return failed(request, ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {request.acks}")
    pending: list[tuple[PartitionProduceResponse, Partition, int]] = []
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            answers.append(await _append(broker, call, request, topic, data, pending))
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


async def _append(
    broker: Broker,
    call: Call,
    request: ProduceRequest,
    topic: TopicProduceData,
    data: PartitionProduceData,
    pending: list[tuple[PartitionProduceResponse, Partition, int]],
) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=data.index, base_offset=-1, log_append_time_ms=-1)
    try:
        partition = broker.partitions.find(topic.name, topic.topic_id, data.index, by_id=call.version >= 13)
        if partition.topic_partition.topic in INTERNAL_TOPICS and call.client_id != "__admin_client":
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "internal topics are written by the brokers only")
        log = partition.log or await partition.ready()
        if data.records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "there is no record batch for this partition")
        clock = broker.world.clock
        records = memoryview(data.records)  # type: ignore[arg-type]  # decoded, so never a slice of a file
        if is_heavy(records, log.settings):
            work = partial(validate, records, log.settings, wall_ms=clock.wall_ms(), api_version=call.version)
            validated = await broker.world.offload.run(work)
            appended = partition.append_validated(validated, wall_ms=clock.wall_ms(), now_ms=clock.now_ms())
        else:
            appended = partition.append(
                records, api_version=call.version, wall_ms=clock.wall_ms(), now_ms=clock.now_ms()
            )
    except RecordsRefused as refused:
        _refuse(answer, refused)
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why)
            for index, why in refused.record_errors
        ]
    except KafkaError as error:
        _refuse(answer, error)
    else:
        answer.base_offset = appended.base_offset
        answer.log_append_time_ms = appended.log_append_time
        answer.log_start_offset = log.log_start_offset
        if request.acks != 0:
            leader = partition.leader
            # acks=1 waits too where `flush.messages=1` promised that an answer means "on disk".
            waits = request.acks == _ACKS_ALL or log.settings.flush_messages == 1
            if waits and leader is not None and leader.high_watermark.value <= appended.last_offset:
                pending.append((answer, partition, appended.last_offset + 1))
    return answer


async def _acknowledged(pending: list[tuple[PartitionProduceResponse, Partition, int]], timeout_ms: int) -> None:
    wait = Wait(len(pending))
    parts: list[tuple[PartitionProduceResponse, Part | None]] = [
        (answer, wait.reach(partition.leader.high_watermark, offset) if partition.leader is not None else None)
        for answer, partition, offset in pending
    ]
    await wait.done(timeout_ms)
    for answer, part in parts:
        if part is not None and part.reached:
            continue
        lost = part is None or part.lost is not None
        answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if lost else ErrorCode.REQUEST_TIMED_OUT
        answer.base_offset = -1
        answer.log_append_time_ms = -1


def _refuse(answer: PartitionProduceResponse, error: KafkaError) -> None:
    answer.error_code = error.code
    answer.error_message = error.why or None
    answer.log_start_offset = -1


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
