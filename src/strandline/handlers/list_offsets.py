"""ListOffsets (2), versions 1-11. There is no tiered storage: earliest-local equals earliest, latest-tiered and
earliest-pending-upload are -1, as in Apache Kafka for a topic without remote storage.
"""

from __future__ import annotations

from collections import Counter

from strandline.handlers.context import BrokerContext, Call
from strandline.log.partition_log import PartitionLog
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import ZERO_UUID
from strandline.protocol.messages.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from strandline.replication.leader import Leader
from strandline.runtime.tasks import YieldCounter, yield_to_loop

_SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_CONSUMER = -1
_READ_UNCOMMITTED = 0
_READ_COMMITTED = 1


async def handle_list_offsets(broker: BrokerContext, call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    if request.isolation_level not in (_READ_UNCOMMITTED, _READ_COMMITTED):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no isolation level {request.isolation_level}")
    mentions = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    topics: dict[str, ListOffsetsTopicResponse] = {}
    yields = YieldCounter(call)
    for topic in request.topics:
        for partition in topic.partitions:
            if yields.due():
                await yield_to_loop()
            times = mentions.pop((topic.name, partition.partition_index), 0)
            if times == 0:
                continue  # a duplicate, rejected at its first mention
            response = ListOffsetsPartitionResponse(partition_index=partition.partition_index)
            try:
                if times > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names the partition more than once")
                await _list_offset(broker, call, request, topic.name, partition, response)
                if call.version < 4:
                    response.leader_epoch = -1
            except KafkaError as error:
                response.error_code = error.code
            named = topics.setdefault(topic.name, ListOffsetsTopicResponse(name=topic.name))
            named.partitions.append(response)
    return ListOffsetsResponse(topics=list(topics.values()))


async def _list_offset(
    broker: BrokerContext,
    call: Call,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsPartition,
    response: ListOffsetsPartitionResponse,
) -> None:
    timestamp = wanted.timestamp
    if timestamp < EARLIEST_PENDING_UPLOAD or call.version < _SINCE_VERSION.get(timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"version {call.version} has no timestamp {timestamp}")
    _, leader, log = await broker.partitions.find_leading(
        topic, ZERO_UUID, wanted.partition_index, wanted.current_leader_epoch
    )
    upper = _upper_offset(request, leader, log)
    if timestamp == LATEST:
        _check_high_watermark_known(request, call, leader)
        response.offset = upper
        response.leader_epoch = leader.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        response.offset = log.log_start_offset
        response.leader_epoch = log.epochs.epoch_for(response.offset)
    elif timestamp >= 0 or timestamp == MAX_TIMESTAMP:
        if timestamp == MAX_TIMESTAMP:
            found = await broker.world.offload.run(log.max_timestamp_offset, upper)
        else:
            found = await broker.world.offload.run(log.offset_for_timestamp, timestamp, upper)
        if found is None:
            _check_high_watermark_known(request, call, leader)
        else:
            response.offset, response.timestamp = found.offset, found.timestamp
            response.leader_epoch = found.leader_epoch


def _check_high_watermark_known(request: ListOffsetsRequest, call: Call, leader: Leader) -> None:
    """The high watermark of a new leader may be behind the previous leader's: a consumer must not see it fall."""
    if request.replica_id == _CONSUMER and not leader.is_high_watermark_known:
        code = ErrorCode.OFFSET_NOT_AVAILABLE if call.version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
        raise KafkaError(code, "the high watermark has not reached the start of the leader epoch yet")


def _upper_offset(request: ListOffsetsRequest, leader: Leader, log: PartitionLog) -> int:
    if request.replica_id != _CONSUMER:
        return log.log_end_offset
    if request.isolation_level == _READ_COMMITTED:
        return leader.last_stable_offset.value
    return leader.high_watermark.value
