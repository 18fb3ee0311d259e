"""WriteTxnMarkers (27), versions 1-2: a transaction coordinator ends a transaction in partitions that this broker
leads.

Also called by the marker writer of this broker for its own partitions. A marker is a control batch, acknowledged when
it is committed. In a partition of `__consumer_offsets` the group coordinator writes it, since the offsets of the
transaction take effect with it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import Final

from strandline.coordinator.machine import Producer
from strandline.coordinator.partitioning import GROUP_TOPIC
from strandline.handlers.context import BrokerContext, Call
from strandline.log.partition_log import PartitionLog
from strandline.log.validation import Origin, validate
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import ZERO_UUID
from strandline.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from strandline.records.batch import end_transaction_marker
from strandline.runtime.watermark import Wait

_NOT_COORDINATOR: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
_EPOCH_BUMP_VERSION: Final = 2


async def handle_write_txn_markers(
    broker: BrokerContext, call: Call, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    call.park()
    return await write_markers(broker, request)


async def write_markers(broker: BrokerContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    wanted = [
        (marker, topic.name, index)
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    return _response(request, await asyncio.gather(*(_write(broker, *each) for each in wanted)))


def write_txn_markers_error(
    request: WriteTxnMarkersRequest, version: int, code: ErrorCode, why: str
) -> WriteTxnMarkersResponse:
    return _response(request, itertools.repeat(code))


def _response(request: WriteTxnMarkersRequest, codes: Iterable[ErrorCode]) -> WriteTxnMarkersResponse:
    """`codes` in the order of the request's partitions."""
    results = iter(codes)
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [WritableTxnMarkerPartitionResult(index, next(results)) for index in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


async def _write(broker: BrokerContext, marker: WritableTxnMarker, topic: str, index: int) -> ErrorCode:
    try:
        if topic == GROUP_TOPIC:
            await _end_in_group_shard(broker, marker, index)
        else:
            await _append(broker, marker, topic, index)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


async def _end_in_group_shard(broker: BrokerContext, marker: WritableTxnMarker, index: int) -> None:
    _, _, log = await broker.partitions.find_leading(GROUP_TOPIC, ZERO_UUID, index)
    check_not_ended(log, marker)
    producer = Producer(marker.producer_id, marker.producer_epoch)
    try:
        shard = broker.groups.for_partition(index)
        await shard.end_transaction(producer, marker.coordinator_epoch, commit=marker.transaction_result)
    except KafkaError as error:
        if error.code in _NOT_COORDINATOR:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.why) from error
        raise


async def _append(broker: BrokerContext, marker: WritableTxnMarker, topic: str, index: int) -> None:
    partition, leader, log = await broker.partitions.find_leading(topic, ZERO_UUID, index)
    leader.check_enough_replicas()
    check_not_ended(log, marker)
    clock = broker.world.clock
    wall_ms = clock.wall_ms()
    batch = end_transaction_marker(
        commit=marker.transaction_result,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=wall_ms,
    )
    validated = validate(memoryview(batch), log.settings, wall_ms=wall_ms, origin=Origin.COORDINATOR)
    appended = partition.append_as_leader(validated, wall_ms=wall_ms, now_ms=clock.now_ms())
    wait = Wait(1)
    condition = wait.reach(leader.high_watermark, appended.last_offset + 1)
    await wait.done(broker.config.get("request.timeout.ms"))
    if not condition.reached:
        code = ErrorCode.REQUEST_TIMED_OUT if condition.lost is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
        raise KafkaError(code, f"the marker in {partition.topic_partition} is not replicated yet")


def check_not_ended(log: PartitionLog, marker: WritableTxnMarker) -> None:
    """With transaction.version 2 a marker has a newer epoch than the transaction that it ends. An open transaction of
    the marker's own epoch is the next one, and the marker a late duplicate."""
    if marker.transaction_version < _EPOCH_BUMP_VERSION:
        return
    producer = log.producers.get(marker.producer_id)
    if (
        producer is not None
        and producer.transaction_first_offset >= 0
        and producer.producer_epoch == marker.producer_epoch
    ):
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {marker.producer_id} has an open transaction of the marker's epoch {marker.producer_epoch}",
        )
