"""Produce (0), versions 3-13. Left out: transactional batches, which come with the transaction coordinator: until
then they are refused, since nobody could end a transaction that they begin.

The hot path: no step per record, one append per partition, and no wait unless a high watermark is still behind.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from strandline.handlers.context import BrokerContext, Call
from strandline.handlers.reachable_leaders import leader_addresses
from strandline.log.appending import Appended
from strandline.log.partition_log import PartitionLog
from strandline.log.refusal import InvalidRecords
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
from strandline.runtime.tasks import YieldCounter, yield_to_loop
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


async def handle_produce(broker: BrokerContext, call: Call, request: ProduceRequest) -> ProduceResponse | None:
    if request.acks not in (_ACKS_ALL, 0, 1):
        return failed(request, ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {request.acks}")
    transactional = _has_transactional_records(request)
    if transactional and request.transactional_id is None:
        return failed(
            request,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactional records come without a transactional id",
        )
    production = _Production(broker, call, request, transactional)
    topics: list[TopicProduceResponse] = []
    yields = YieldCounter(call)
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            if yields.due():
                await yield_to_loop()
                production.look_at_the_clock()
            answers.append(production.at_once(topic, data) or await production.after_a_wait(topic, data))
        if answers:
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    if production.pending:
        call.park()
        production.refused |= not await _acknowledged(production.pending, request.timeout_ms)
    if request.acks == 0:
        _close_on_error(topics)
        return None
    response = ProduceResponse(responses=topics)
    if production.refused and call.version >= 10:
        _tell_leaders(broker, call, response)
    return response


def _has_transactional_records(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            if _is_transactional(data.records):
                return True
    return False


def _is_transactional(records: Any) -> bool:
    if records is None or len(records) < HEADER_SIZE or records[MAGIC_AT] != MAGIC:
        return False
    return bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL)


class _Production:
    """One request on its way into the logs. Nearly always nothing has to be waited for before the append.

    The clock is read once for what is appended in one step of the event loop, and again after each wait.
    """

    __slots__ = (
        "_acks",
        "_by_id",
        "_call",
        "_clock",
        "_now_ms",
        "_offload",
        "_partitions",
        "_transactional",
        "_version",
        "_wall_ms",
        "pending",
        "refused",
    )

    def __init__(self, broker: BrokerContext, call: Call, request: ProduceRequest, transactional: bool) -> None:
        self._call = call
        self._version = call.version
        self._acks = request.acks
        self._by_id = call.version >= 13
        self._transactional = transactional
        self._partitions = broker.partitions
        self._clock = broker.world.clock
        self._offload = broker.world.offload
        self.pending: list[_Pending] = []
        self.refused = False
        self.look_at_the_clock()

    def look_at_the_clock(self) -> None:
        self._wall_ms = self._clock.wall_ms()
        self._now_ms = self._clock.now_ms()

    def at_once(self, topic: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse | None:
        """None when it takes a wait: the log is not open yet, or the records must be looked into."""
        log: PartitionLog | None = None
        try:
            partition = self._find(topic, data)
            log = partition.log
            if log is None:
                return None
            records = self._admit(partition, data)
            wall_ms = self._wall_ms
            if is_heavy(records, log.settings, wall_ms):
                return None
            validated = validate(records, log.settings, wall_ms=wall_ms, api_version=self._version)
            appended = partition.append_validated(validated, wall_ms=wall_ms, now_ms=self._now_ms)
        except KafkaError as error:
            return self._refusal(data, error, log)
        return self._answer(data, partition, log, appended)

    async def after_a_wait(self, topic: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse:
        log: PartitionLog | None = None
        try:
            partition = self._find(topic, data)
            log = await partition.ready()
            records = self._admit(partition, data)
            self.look_at_the_clock()
            wall_ms, version = self._wall_ms, self._version
            if is_heavy(records, log.settings, wall_ms):
                work = partial(validate, records, log.settings, wall_ms=wall_ms, api_version=version)
                validated = await self._offload.run(work)
                self.look_at_the_clock()
            else:
                validated = validate(records, log.settings, wall_ms=wall_ms, api_version=version)
            appended = partition.append_validated(validated, wall_ms=self._wall_ms, now_ms=self._now_ms)
        except KafkaError as error:
            self.look_at_the_clock()
            return self._refusal(data, error, log)
        return self._answer(data, partition, log, appended)

    def _find(self, topic: TopicProduceData, data: PartitionProduceData) -> Partition:
        partition = self._partitions.find(topic.name, topic.topic_id, data.index, by_id=self._by_id)
        if partition.topic_partition.topic in INTERNAL_TOPICS and self._call.client_id != "__admin_client":
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "internal topics are written by the brokers only")
        return partition

    def _admit(self, partition: Partition, data: PartitionProduceData) -> memoryview:
        """The records, if this broker may take them now."""
        leader = partition.leader or partition.leading()
        if self._acks == _ACKS_ALL:
            leader.check_enough_replicas()
        records = data.records
        if records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "there is no record batch for this partition")
        if self._transactional and _is_transactional(records):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not served by this release")
        return records if type(records) is memoryview else memoryview(records)  # type: ignore[arg-type]

    def _answer(
        self, data: PartitionProduceData, partition: Partition, log: PartitionLog, appended: Appended
    ) -> PartitionProduceResponse:
        leader = partition.leader
        answer = PartitionProduceResponse(
            data.index, 0, appended.base_offset, appended.log_append_time, log.log_start_offset
        )
        # acks=1 waits too where `flush.messages=1` promised that an answer means "on disk".
        waits = self._acks == _ACKS_ALL or (self._acks == 1 and log.settings.flush_messages == 1)
        if waits and leader is not None and leader.high_watermark.value <= appended.last_offset:
            # Of this leadership, not of the one that may have followed it when the waiting begins.
            self.pending.append(_Pending(answer, leader, appended.last_offset + 1))
        return answer

    def _refusal(
        self, data: PartitionProduceData, error: KafkaError, log: PartitionLog | None
    ) -> PartitionProduceResponse:
        self.refused = True
        answer = PartitionProduceResponse(index=data.index, base_offset=-1, log_append_time_ms=-1)
        answer.error_code = error.code
        answer.error_message = error.why or None
        if log is not None and error.code not in _WITHOUT_LOG_START:
            answer.log_start_offset = log.log_start_offset
        if isinstance(error, InvalidRecords):
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why)
                for index, why in error.record_errors
            ]
        return answer


async def _acknowledged(pending: list[_Pending], timeout_ms: int) -> bool:
    """Whether all of them were; who was not is told so in its answer."""
    wait = Wait(len(pending))
    parts = [wait.reach(one.leader.high_watermark, one.offset) for one in pending]
    await wait.done(timeout_ms)
    well = True
    for one, part in zip(pending, parts, strict=True):
        if part.reached:
            code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if one.leader.lost_replicas else ErrorCode.NONE
        else:
            code = ErrorCode.REQUEST_TIMED_OUT if part.lost is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if code != ErrorCode.NONE:
            well = False
            one.answer.error_code = code
            one.answer.base_offset = -1
            one.answer.log_append_time_ms = -1
    return well


def _close_on_error(topics: list[TopicProduceResponse]) -> None:
    """With acks=0 nothing can be answered; closing is the only way to make the client look again."""
    for topic in topics:
        for answer in topic.partition_responses:
            if answer.error_code != ErrorCode.NONE:
                code = ErrorCode(answer.error_code).name
                raise ConnectionAbortedError(f"acks=0 produce to {topic.name}-{answer.index} failed with {code}")


def _tell_leaders(broker: BrokerContext, call: Call, response: ProduceResponse) -> None:
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
