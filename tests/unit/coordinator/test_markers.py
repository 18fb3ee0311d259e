"""The marker writer: batching per leader, retries, deleted partitions, coordinators that were replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from strandline.coordinator.markers import MarkerWriter
from strandline.coordinator.transaction.ending import WriteMarkers
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from strandline.runtime.tasks import TaskGroup
from strandline.simulation.loop import VirtualLoop

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))


class Leaders:
    """Brokers in memory: partitions have leaders, and each request is answered with the next error codes."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int | None] = {T0: 1, T1: 2, T2: 1}
        self.codes: dict[TopicPartition, list[ErrorCode]] = {}
        self.unreachable: set[int] = set()
        self.requests: list[tuple[int, list[tuple[int, tuple[TopicPartition, ...]]]]] = []
        self.hold: asyncio.Event | None = None

    async def send(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        written = []
        results = []
        for marker in request.markers:
            partitions = tuple(
                TopicPartition(each.name, index) for each in marker.topics for index in each.partition_indexes
            )
            written.append((marker.producer_id, partitions))
            results.append(
                WritableTxnMarkerResult(
                    marker.producer_id,
                    [
                        WritableTxnMarkerTopicResult(
                            each.topic, [WritableTxnMarkerPartitionResult(each.partition, self._code(each))]
                        )
                        for each in partitions
                    ],
                )
            )
        self.requests.append((broker_id, written))
        if self.hold is not None:
            await self.hold.wait()
        if broker_id in self.unreachable:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection was lost")
        return WriteTxnMarkersResponse(results)

    def _code(self, partition: TopicPartition) -> ErrorCode:
        codes = self.codes.get(partition)
        return codes.pop(0) if codes else ErrorCode.NONE


def markers(producer_id: int, *partitions: TopicPartition) -> WriteMarkers:
    return WriteMarkers(f"tx-{producer_id}", producer_id, 1, 5, True, partitions, 2)


def run(scene: Callable[[Leaders, MarkerWriter, list[int]], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        leaders = Leaders()
        completed: list[int] = []
        async with TaskGroup() as tasks:
            await scene(leaders, MarkerWriter(lambda each: leaders.leaders[each], leaders.send, tasks), completed)
            tasks.cancel()

    loop = VirtualLoop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def write(
    writer: MarkerWriter, wanted: WriteMarkers, completed: list[int], is_wanted: Callable[[], bool] = lambda: True
) -> None:
    writer.write(wanted, lambda: completed.append(wanted.producer_id), is_wanted)


def test_a_transaction_is_completed_when_every_leader_has_written_its_markers() -> None:
    async def scene(leaders: Leaders, writer: MarkerWriter, completed: list[int]) -> None:
        write(writer, markers(7, T0, T1, T2), completed)
        assert completed == []
        await asyncio.sleep(0.001)
        assert leaders.requests == [(1, [(7, (T0, T2))]), (2, [(7, (T1,))])]
        assert completed == [7]

    run(scene)


def test_a_transaction_without_partitions_is_completed_at_once() -> None:
    async def scene(leaders: Leaders, writer: MarkerWriter, completed: list[int]) -> None:
        write(writer, markers(7), completed)
        assert completed == [7] and leaders.requests == []

    run(scene)


def test_markers_that_wait_for_the_same_leader_share_the_next_request() -> None:
    async def scene(leaders: Leaders, writer: MarkerWriter, completed: list[int]) -> None:
        leaders.hold = asyncio.Event()
        write(writer, markers(7, T0), completed)
        await asyncio.sleep(0.001)
        write(writer, markers(8, T0), completed)
        write(writer, markers(9, T2), completed)
        leaders.hold.set()
        await asyncio.sleep(0.001)
        assert leaders.requests == [(1, [(7, (T0,))]), (1, [(8, (T0,)), (9, (T2,))])]
        assert completed == [7, 8, 9]

    run(scene)


def test_a_partition_that_has_moved_gets_its_marker_from_the_new_leader() -> None:
    async def scene(leaders: Leaders, writer: MarkerWriter, completed: list[int]) -> None:
        leaders.codes[T0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        write(writer, markers(7, T0, T2), completed)
        await asyncio.sleep(0.001)
        leaders.leaders[T0] = 3
        assert completed == []
        await asyncio.sleep(1)
        assert leaders.requests == [(1, [(7, (T0, T2))]), (3, [(7, (T0,))])]
        assert completed == [7]

    run(scene)


def test_a_leader_that_cannot_be_reached_is_tried_again_until_another_is_elected() -> None:
    async def scene(leaders: Leaders, writer: MarkerWriter, completed: list[int]) -> None:
        leaders.unreachable.add(1)
        write(writer, markers(7, T0), completed)
        await asyncio.sleep(0.5)
        assert 2 < len(leaders.requests) < 10 and completed == []
        leaders.leaders[T0] = -1
        sent = len(leaders.requests)
        await asyncio.sleep(5)
        assert len(leaders.requests) <= sent + 1
        leaders.leaders[T0] = 2
        await asyncio.sleep(2)
        assert completed == [7]

    run(scene)


def test_a_deleted_partition_needs_no_marker() -> None:
    async def scene(leaders: Leaders, writer: MarkerWriter, completed: list[int]) -> None:
        leaders.leaders[T0] = None
        write(writer, markers(7, T0), completed)
        assert completed == [7]
        leaders.codes[T1] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        write(writer, markers(8, T0, T1), completed)
        await asyncio.sleep(0.001)
        assert completed == [7]
        leaders.leaders[T1] = None
        await asyncio.sleep(1)
        assert completed == [7, 8]

    run(scene)


def test_a_partition_with_a_newer_producer_epoch_counts_as_written() -> None:
    async def scene(leaders: Leaders, writer: MarkerWriter, completed: list[int]) -> None:
        leaders.codes[T0] = [ErrorCode.INVALID_PRODUCER_EPOCH]
        write(writer, markers(7, T0), completed)
        await asyncio.sleep(1)
        assert completed == [7] and len(leaders.requests) == 1

    run(scene)


def test_a_newer_coordinator_completes_the_transaction() -> None:
    async def scene(leaders: Leaders, writer: MarkerWriter, completed: list[int]) -> None:
        leaders.codes[T0] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        write(writer, markers(7, T0, T2), completed)
        await asyncio.sleep(5)
        assert completed == [] and len(leaders.requests) == 1

    run(scene)


def test_a_shard_that_was_unloaded_leaves_the_rest_to_its_successor() -> None:
    async def scene(leaders: Leaders, writer: MarkerWriter, completed: list[int]) -> None:
        is_loaded = True
        leaders.unreachable.add(1)
        write(writer, markers(7, T0), completed, lambda: is_loaded)
        await asyncio.sleep(0.001)
        is_loaded = False
        leaders.unreachable.clear()
        await asyncio.sleep(5)
        assert completed == [] and len(leaders.requests) == 1

    run(scene)
