"""Produce (0), versions 3-13.

The hot path: no step per record, one append per partition, and no wait unless the high watermark has to rise first.
Only the first transactional batch of a producer in a partition waits for the transaction coordinator.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

import msgspec

from strandline.handlers.context import BrokerContext, Call
from strandline.handlers.ongoing_transactions import NotConfirmed
from strandline.handlers.reachable_leaders import election_decided, leader_addresses
from strandline.handlers.transactional_produce import ConfirmedTransactions, is_transactional
from strandline.log.appending import Appended
from strandline.log.partition_log import PartitionLog
from strandline.log.validation import InvalidRecords, Validated, is_heavy, validate
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
from strandline.replication.leader import Leader
from strandline.replication.partition import Partition
from strandline.runtime.tasks import YieldCounter, yield_to_loop
from strandline.runtime.watermark import Wait

_ACKS_ALL = -1
# Errors of which Kafka does not report the log start offset.
_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class _Unacknowledged(msgspec.Struct, frozen=True):
    """An append that is acknowledged when the high watermark of its leader epoch has reached `offset`."""

    response: PartitionProduceResponse
    leader: Leader
    offset: int


class _Blocked(msgspec.Struct, frozen=True):
    """An append that has to wait: for its log to be opened, or for its batch to be validated in a thread."""

    log: PartitionLog | None
    until: Coroutine[Any, Any, PartitionLog | Validated]


async def handle_produce(broker: BrokerContext, call: Call, request: ProduceRequest) -> ProduceResponse | None:
    if request.acks not in (_ACKS_ALL, 0, 1):
        return produce_error(
            request, call.version, ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {request.acks}"
        )
    confirmed: ConfirmedTransactions | None = None
    if _has_transactional_records(request):
        if request.transactional_id is None:
            return produce_error(
                request,
                call.version,
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactional records come without a transactional id",
            )
        confirmed = await ConfirmedTransactions.of(broker, call, request)
    appends = _Appends(broker, call, request, confirmed)
    topics: list[TopicProduceResponse] = []
    yields = YieldCounter(call)
    for topic in request.topic_data:
        responses: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            if yields.due():
                await yield_to_loop()
                appends.read_clock()
            outcome = appends.append(topic, data)
            if isinstance(outcome, _Blocked):
                outcome = await appends.append_when_unblocked(topic, data, outcome)
            responses.append(outcome)
        if responses:
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=responses))
    if appends.unacknowledged:
        call.park()
        appends.failed |= not await _acknowledge(appends.unacknowledged, request.timeout_ms)
    if request.acks == 0:
        _close_on_error(topics)
        return None
    response = ProduceResponse(responses=topics)
    if appends.failed and call.version >= 10:
        leaders = _add_leader_hints(broker, call, response)
        if broker.lost_leaders and await election_decided(broker, call, leaders):
            _add_leader_hints(broker, call, response)
    return response


def _has_transactional_records(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            if is_transactional(data.records):
                return True
    return False


class _Appends:
    """The appends of one request.

    The clock is read once for all appends of one step of the event loop, and again after each wait.
    """

    __slots__ = (
        "_acks",
        "_by_id",
        "_call",
        "_clock",
        "_confirmed",
        "_now_ms",
        "_offload",
        "_partitions",
        "_version",
        "_wall_ms",
        "failed",
        "unacknowledged",
    )

    def __init__(
        self, broker: BrokerContext, call: Call, request: ProduceRequest, confirmed: ConfirmedTransactions | None
    ) -> None:
        self._call = call
        self._version = call.version
        self._acks = request.acks
        self._by_id = call.version >= 13
        self._confirmed = confirmed
        self._partitions = broker.partitions
        self._clock = broker.world.clock
        self._offload = broker.world.offload
        self.unacknowledged: list[_Unacknowledged] = []
        self.failed = False
        self.read_clock()

    def read_clock(self) -> None:
        self._wall_ms = self._clock.wall_ms()
        self._now_ms = self._clock.now_ms()

    def append(
        self, topic: TopicProduceData, data: PartitionProduceData, validated: Validated | None = None
    ) -> PartitionProduceResponse | _Blocked:
        """Validates and appends one partition's batch without waiting, unless that is impossible (`_Blocked`).

        `validated`: the batch was validated in a thread; everything else is checked again after that wait."""
        log: PartitionLog | None = None
        try:
            partition = self._find(topic, data)
            log = partition.log
            if log is None:
                return _Blocked(None, partition.ready())
            records = self._admit(partition, data)
            if validated is None:
                wall_ms, settings = self._wall_ms, log.settings
                if is_heavy(records, settings, wall_ms):
                    work = partial(validate, records, settings, wall_ms=wall_ms, api_version=self._version)
                    return _Blocked(log, self._offload.run(work))
                validated = validate(records, settings, wall_ms=wall_ms, api_version=self._version)
            if self._confirmed is not None:
                self._confirmed.check(partition.topic_partition, log, validated.header)
            appended = partition.append_as_leader(validated, wall_ms=self._wall_ms, now_ms=self._now_ms)
        except KafkaError as error:
            return self._error(data, error, log)
        return self._appended(data, partition, log, appended)

    async def append_when_unblocked(
        self, topic: TopicProduceData, data: PartitionProduceData, blocked: _Blocked
    ) -> PartitionProduceResponse:
        while True:
            try:
                result = await blocked.until
            except KafkaError as error:
                self.read_clock()
                return self._error(data, error, blocked.log)
            self.read_clock()
            outcome = self.append(topic, data, result if isinstance(result, Validated) else None)
            if not isinstance(outcome, _Blocked):
                return outcome
            blocked = outcome

    def _find(self, topic: TopicProduceData, data: PartitionProduceData) -> Partition:
        partition = self._partitions.find(topic.name, topic.topic_id, data.index, by_id=self._by_id)
        if partition.topic_partition.topic in INTERNAL_TOPICS and self._call.client_id != "__admin_client":
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "only brokers write to internal topics")
        return partition

    def _admit(self, partition: Partition, data: PartitionProduceData) -> memoryview:
        """The records, if this broker may append them now."""
        leader = partition.leader or partition.leading()
        if self._acks == _ACKS_ALL:
            leader.check_enough_replicas()
        records = data.records
        if records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "there is no record batch for this partition")
        return records if type(records) is memoryview else memoryview(records)  # type: ignore[arg-type]

    def _appended(
        self, data: PartitionProduceData, partition: Partition, log: PartitionLog, appended: Appended
    ) -> PartitionProduceResponse:
        leader = partition.leader
        response = PartitionProduceResponse(
            data.index, 0, appended.base_offset, appended.log_append_time, log.log_start_offset
        )
        # With `flush.messages=1` a response to acks=1 means "on disk", so that it has to wait too.
        waits = self._acks == _ACKS_ALL or (self._acks == 1 and log.settings.flush_messages == 1)
        if waits and leader is not None and leader.high_watermark.value <= appended.last_offset:
            # This leader epoch's watermark: another epoch may have begun when the wait starts.
            self.unacknowledged.append(_Unacknowledged(response, leader, appended.last_offset + 1))
        return response

    def _error(
        self, data: PartitionProduceData, error: KafkaError, log: PartitionLog | None
    ) -> PartitionProduceResponse:
        self.failed = True
        response = PartitionProduceResponse(index=data.index, base_offset=-1, log_append_time_ms=-1)
        response.error_code = error.code
        response.error_message = error.why or None
        if log is not None and error.code not in _WITHOUT_LOG_START and not isinstance(error, NotConfirmed):
            response.log_start_offset = log.log_start_offset
        if isinstance(error, InvalidRecords):
            response.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why)
                for index, why in error.record_errors
            ]
        return response


async def _acknowledge(unacknowledged: list[_Unacknowledged], timeout_ms: int) -> bool:
    """Waits until the high watermarks have passed all appends, or the timeout; sets the errors of those that were not
    acknowledged. False when there are any."""
    wait = Wait(len(unacknowledged))
    conditions = [wait.reach(append.leader.high_watermark, append.offset) for append in unacknowledged]
    await wait.done(timeout_ms)
    acknowledged = True
    for append, condition in zip(unacknowledged, conditions, strict=True):
        if condition.reached:
            code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if append.leader.lost_replicas else ErrorCode.NONE
        else:
            code = ErrorCode.REQUEST_TIMED_OUT if condition.lost is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if code != ErrorCode.NONE:
            acknowledged = False
            append.response.error_code = code
            append.response.base_offset = -1
            append.response.log_append_time_ms = -1
    return acknowledged


def _close_on_error(topics: list[TopicProduceResponse]) -> None:
    """A request with acks=0 has no response: closing the connection makes the client refresh its metadata."""
    for topic in topics:
        for response in topic.partition_responses:
            if response.error_code != ErrorCode.NONE:
                code = ErrorCode(response.error_code).name
                raise ConnectionAbortedError(f"acks=0 produce to {topic.name}-{response.index} failed with {code}")


def _add_leader_hints(broker: BrokerContext, call: Call, response: ProduceResponse) -> list[int]:
    """KIP-951: the current leaders, so that the client need not request metadata. Returns their ids."""
    moved: list[int] = []
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            info = broker.partitions.committed_info(topic.name, topic.topic_id, partition.index)
            if info is not None:
                partition.current_leader = LeaderIdAndEpoch(leader_id=info.leader, leader_epoch=info.leader_epoch)
                moved.append(info.leader)
    if moved:
        response.node_endpoints = [NodeEndpoint(*address) for address in leader_addresses(broker, call.listener, moved)]
    return moved


def produce_error(request: ProduceRequest, version: int, code: ErrorCode, why: str) -> ProduceResponse | None:
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
