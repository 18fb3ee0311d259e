"""Writes the markers of ended transactions: one WriteTxnMarkers request at a time per partition leader.

Carries out the `WriteMarkers` effects of the transaction machine. Markers that wait for the same leader share a
request. A partition whose leader moved, failed or lacks replicas is tried again, at its leader of that moment; one that
was deleted needs no marker. When every partition has its marker, `on_written` is called, which completes the
transaction. A shard that was unloaded meanwhile leaves the rest to its successor, which finds the transaction prepared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from strandline.coordinator.transaction.ending import WriteMarkers
from strandline.model.errors import ErrorCode, KafkaError, code_of
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from strandline.runtime.tasks import TaskGroup

logger = logging.getLogger(__name__)

_RETRY_BACKOFF_MS: Final = 20
_MAX_RETRY_BACKOFF_MS: Final = 1_000
_MARKERS_PER_REQUEST: Final = 200
# The marker is written, or must not be: a newer producer epoch has ended the transaction already.
_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})

LeaderOf = Callable[[TopicPartition], int | None]
"""The leader's broker id; -1 while there is no leader; None for a partition that does not exist any more."""
Send = Callable[[int, WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]
"""Sends a request to a broker, which may be this one. Raises KafkaError or OSError."""


class _Pending(msgspec.Struct, eq=False):
    """A transaction with partitions that have no marker yet."""

    markers: WriteMarkers
    unwritten: int
    """How many partitions have no marker yet."""
    on_written: Callable[[], None]
    is_wanted: Callable[[], bool]
    attempts: int = 0


_Queued = tuple[_Pending, list[TopicPartition]]


class MarkerWriter:
    def __init__(self, leader_of: LeaderOf, send: Send, tasks: TaskGroup) -> None:
        self._leader_of = leader_of
        self._send = send
        self._tasks = tasks
        self._queues: dict[int, list[_Queued]] = {}
        """By broker; a broker is in it while a task sends to it."""

    def write(self, markers: WriteMarkers, on_written: Callable[[], None], is_wanted: Callable[[], bool]) -> None:
        """`is_wanted`: whether the shard that decided this still serves."""
        pending = _Pending(markers, len(markers.partitions), on_written, is_wanted)
        if not markers.partitions:
            on_written()
            return
        self._enqueue(pending, list(markers.partitions))

    def _enqueue(self, pending: _Pending, partitions: list[TopicPartition]) -> None:
        if not pending.is_wanted():
            return
        by_leader: dict[int, list[TopicPartition]] = {}
        gone = 0
        for each in partitions:
            leader = self._leader_of(each)
            if leader is None:
                gone += 1
            else:
                by_leader.setdefault(leader, []).append(each)
        without_leader = by_leader.pop(-1, None)
        for leader, led in by_leader.items():
            queue = self._queues.get(leader)
            if queue is None:
                self._queues[leader] = [(pending, led)]
                self._tasks.start(self._send_queue(leader), f"transaction markers to broker {leader}")
            else:
                queue.append((pending, led))
        if without_leader is not None:
            self._retry_later(pending, without_leader)
        if gone:
            self._written(pending, gone)

    async def _send_queue(self, leader: int) -> None:
        """Sends until the queue of this broker is empty."""
        try:
            while queue := self._queues[leader]:
                batch, self._queues[leader] = queue[:_MARKERS_PER_REQUEST], queue[_MARKERS_PER_REQUEST:]
                await self._send_batch(leader, [each for each in batch if each[0].is_wanted()])
        finally:
            del self._queues[leader]

    async def _send_batch(self, leader: int, batch: list[_Queued]) -> None:
        if not batch:
            return
        try:
            response = await self._send(leader, WriteTxnMarkersRequest([_marker(*each) for each in batch]))
        except (KafkaError, OSError) as error:
            logger.info("broker %d did not write %d transaction markers: %s", leader, len(batch), error)
            for pending, partitions in batch:
                self._retry_later(pending, partitions)
            return
        codes = {
            (result.producer_id, topic.name, each.partition_index): code_of(each.error_code)
            for result in response.markers
            for topic in result.topics
            for each in topic.partitions
        }
        for pending, partitions in batch:
            producer_id = pending.markers.producer_id
            self._on_response(
                pending,
                {each: codes.get((producer_id, *each), ErrorCode.UNKNOWN_SERVER_ERROR) for each in partitions},
            )

    def _on_response(self, pending: _Pending, codes: dict[TopicPartition, ErrorCode]) -> None:
        if ErrorCode.TRANSACTION_COORDINATOR_FENCED in codes.values():
            logger.info(
                "the markers of %r are left to a coordinator with a newer epoch", pending.markers.transactional_id
            )
            return
        failed = [each for each, code in codes.items() if code not in _DONE]
        if failed:
            logger.debug("transaction markers are written again: %s", codes)
            self._retry_later(pending, failed)
        if len(failed) < len(codes):
            self._written(pending, len(codes) - len(failed))

    def _written(self, pending: _Pending, count: int) -> None:
        pending.unwritten -= count
        if pending.unwritten == 0 and pending.is_wanted():
            pending.on_written()

    def _retry_later(self, pending: _Pending, partitions: list[TopicPartition]) -> None:
        backoff_ms = min(_RETRY_BACKOFF_MS << min(pending.attempts, 10), _MAX_RETRY_BACKOFF_MS)
        pending.attempts += 1
        asyncio.get_running_loop().call_later(backoff_ms / 1000, self._enqueue, pending, partitions)


def _marker(pending: _Pending, partitions: list[TopicPartition]) -> WritableTxnMarker:
    markers = pending.markers
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return WritableTxnMarker(
        markers.producer_id,
        markers.producer_epoch,
        markers.commit,
        [WritableTxnMarkerTopic(topic, indexes) for topic, indexes in by_topic.items()],
        markers.coordinator_epoch,
        markers.client_version,
    )
