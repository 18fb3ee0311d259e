"""One connection: the order of requests and responses, muting, limits and idle time."""

from __future__ import annotations

import asyncio
import gc
import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.protocol.messages.fetch import FetchResponse
from strandline.protocol.messages.produce import ProduceResponse
from strandline.server.requests import Call
from strandline.server.settings import ServerSettings
from unit.server.memory_server import (
    MemoryServer,
    fetch,
    handle_metadata,
    handle_produce,
    handlers,
    metadata,
    produce,
    run,
    settle,
)


class Acknowledgements:
    """A Produce handler that appends at once and responds on `acknowledge`, like acks=all."""

    def __init__(self) -> None:
        self.appended: list[int] = []
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def handle(self, call: Call, request: Any) -> ProduceResponse:
        self.appended.append(call.correlation_id)
        call.park()
        self._waiting[call.correlation_id] = future = asyncio.get_running_loop().create_future()
        await future
        return ProduceResponse()

    def acknowledge(self, correlation: int) -> None:
        self._waiting.pop(correlation).set_result(None)


def test_a_request_that_arrives_byte_by_byte_gets_its_response() -> None:
    async def scenario() -> None:
        server = await MemoryServer().start(handlers(METADATA=handle_metadata))
        connection = server.connect()
        for byte in metadata(7):
            assert connection.received == b""
            connection.send(bytes([byte]))
        assert connection.correlations() == [7]

    run(scenario())


def test_responses_to_many_requests_in_one_segment_are_sent_in_order_with_one_write() -> None:
    async def scenario() -> None:
        server = await MemoryServer().start(handlers(METADATA=handle_metadata, PRODUCE=handle_produce))
        connection = server.connect()
        connection.send(b"".join(metadata(n) if n % 3 else produce(n) for n in range(20)))
        assert connection.correlations() == list(range(20))
        assert connection.writes == 1

    run(scenario())


def test_a_flood_of_small_requests_is_served_in_several_steps() -> None:
    async def scenario() -> None:
        server = await MemoryServer().start(handlers(METADATA=handle_metadata))
        connection = server.connect()
        connection.send(b"".join(metadata(n) for n in range(500)))
        assert 0 < len(connection.frames()) < 500
        assert connection.muted
        await settle(100)
        assert connection.correlations() == list(range(500))
        assert not connection.muted

    run(scenario())


def test_pipelined_produces_are_appended_in_order_while_earlier_ones_wait() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        server = await MemoryServer().start(handlers(PRODUCE=acks.handle))
        connection = server.connect()
        connection.send(produce(1) + produce(2) + produce(3))
        assert acks.appended == [1, 2, 3]
        acks.acknowledge(3)
        acks.acknowledge(2)
        await settle()
        assert connection.correlations() == []
        acks.acknowledge(1)
        await settle()
        assert connection.correlations() == [1, 2, 3]
        assert connection.writes == 1

    run(scenario())


def test_a_produce_does_not_overtake_one_that_has_not_appended_yet() -> None:
    async def scenario() -> None:
        started: list[int] = []
        opened = asyncio.get_running_loop().create_future()

        async def handle(call: Call, request: Any) -> ProduceResponse:
            started.append(call.correlation_id)
            if call.correlation_id == 1:
                await opened  # the log is being opened: no park, nothing appended
            return ProduceResponse()

        server = await MemoryServer().start(handlers(PRODUCE=handle))
        connection = server.connect()
        connection.send(produce(1) + produce(2))
        await settle()
        assert started == [1]
        opened.set_result(None)
        await settle()
        assert started == [1, 2]
        assert connection.correlations() == [1, 2]

    run(scenario())


def test_the_next_produce_starts_when_the_one_before_it_parks() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        opened = asyncio.get_running_loop().create_future()

        async def handle(call: Call, request: Any) -> ProduceResponse:
            await asyncio.shield(opened)
            return await acks.handle(call, request)

        server = await MemoryServer().start(handlers(PRODUCE=handle))
        connection = server.connect()
        connection.send(produce(1) + produce(2) + produce(3))
        await settle()
        assert acks.appended == []
        opened.set_result(None)
        await settle()
        assert acks.appended == [1, 2, 3]
        assert connection.correlations() == []

    run(scenario())


def test_any_request_but_produce_waits_for_all_earlier_responses() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        server = await MemoryServer().start(handlers(PRODUCE=acks.handle, METADATA=handle_metadata))
        connection = server.connect()
        connection.send(produce(1) + metadata(2) + produce(3))
        await settle()
        assert acks.appended == [1]
        assert connection.muted
        acks.acknowledge(1)
        await settle()
        assert connection.correlations() == [1, 2]
        assert acks.appended == [1, 3]
        assert not connection.muted

    run(scenario())


def test_a_long_poll_blocks_its_own_connection_only() -> None:
    async def scenario() -> None:
        async def poll(call: Call, request: Any) -> FetchResponse:
            call.park()
            await asyncio.sleep(0.5)
            return FetchResponse()

        server = await MemoryServer().start(handlers(FETCH=poll, METADATA=handle_metadata))
        waiting, other = server.connect(), server.connect()
        waiting.send(fetch(1) + metadata(2))
        other.send(metadata(3))
        assert other.correlations() == [3]
        await asyncio.sleep(0.499)
        assert waiting.correlations() == []
        await asyncio.sleep(0.002)
        assert waiting.correlations() == [1, 2]

    run(scenario())


def test_a_connection_has_a_bounded_number_of_requests_in_flight() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        server = await MemoryServer(ServerSettings(pipelined=4)).start(handlers(PRODUCE=acks.handle))
        connection = server.connect()
        connection.send(b"".join(produce(n) for n in range(10)))
        await settle()
        assert acks.appended == [0, 1, 2, 3]
        assert connection.muted
        acks.acknowledge(0)
        await settle()
        assert acks.appended == [0, 1, 2, 3, 4]

    run(scenario())


def test_above_the_limit_of_parked_requests_a_connection_may_have_one_in_flight() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        server = await MemoryServer(ServerSettings(parked_max_requests=2)).start(handlers(PRODUCE=acks.handle))
        greedy, modest = server.connect(), server.connect()
        greedy.send(produce(1) + produce(2) + produce(3))
        modest.send(produce(4) + produce(5))
        await settle()
        assert acks.appended == [1, 2, 4]
        for n in (1, 2):
            acks.acknowledge(n)
        await settle()
        assert acks.appended == [1, 2, 4, 3]
        acks.acknowledge(4)
        await settle()
        assert acks.appended == [1, 2, 4, 3, 5]

    run(scenario())


def test_a_request_without_a_response_does_not_hold_back_later_responses() -> None:
    async def scenario() -> None:
        server = await MemoryServer().start(handlers(PRODUCE=handle_produce))
        connection = server.connect()
        connection.send(produce(1, acks=0) + produce(2) + produce(3, acks=0))
        assert connection.correlations() == [2]
        assert not connection.closing

    run(scenario())


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_frame_of_an_invalid_size_closes_the_connection(size: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        server = await MemoryServer(ServerSettings(max_request_bytes=1000)).start(handlers(METADATA=handle_metadata))
        connection, other = server.connect(), server.connect()
        connection.send(struct.pack(">i", size) + b"x" * 50)
        await settle()
        assert connection.lost
        other.send(metadata(1))
        assert other.correlations() == [1]

    run(scenario())
    assert len([record for record in caplog.records if "10.0.0.1" in record.getMessage()]) == 1


def test_responses_to_requests_before_a_protocol_violation_are_still_sent() -> None:
    async def scenario() -> None:
        server = await MemoryServer().start(handlers(METADATA=handle_metadata))
        connection = server.connect()
        connection.send(metadata(1) + struct.pack(">i", -1))
        await settle()
        assert connection.lost
        assert connection.correlations() == [1]

    run(scenario())


def test_an_idle_connection_is_closed_and_an_active_one_is_not() -> None:
    async def scenario() -> None:
        server = await MemoryServer(ServerSettings(max_idle_ms=60_000)).start(handlers(METADATA=handle_metadata))
        idle, active = server.connect(), server.connect()
        for n in range(3):
            await asyncio.sleep(30)
            active.send(metadata(n))
        assert idle.lost
        assert not active.closing
        await asyncio.sleep(62)
        assert active.lost
        assert server.number("kafka.server:type=socket-server-metrics,name=connection-count") == 0

    run(scenario())


def test_a_connection_with_a_request_in_flight_is_not_idle() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        server = await MemoryServer(ServerSettings(max_idle_ms=1_000)).start(handlers(PRODUCE=acks.handle))
        connection = server.connect()
        connection.send(produce(1))
        await asyncio.sleep(10)
        assert not connection.closing
        acks.acknowledge(1)
        await settle()
        assert connection.correlations() == [1]

    run(scenario())


def test_the_idle_time_starts_with_the_response() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        server = await MemoryServer(ServerSettings(max_idle_ms=10_000)).start(handlers(PRODUCE=acks.handle))
        connection = server.connect()
        connection.send(produce(1))
        await asyncio.sleep(60)
        acks.acknowledge(1)
        await asyncio.sleep(8)
        assert not connection.closing
        await asyncio.sleep(4)
        assert connection.lost

    run(scenario())


def test_an_incomplete_frame_times_out() -> None:
    async def scenario() -> None:
        server = await MemoryServer(ServerSettings(frame_timeout_ms=5_000)).start(handlers(METADATA=handle_metadata))
        stuck, trickling, slow = server.connect(), server.connect(), server.connect()
        whole = metadata(1, client_id="x" * 30)
        stuck.send(whole[:3])
        slow.send(whole[:10])
        for byte in whole[:8]:
            trickling.send(bytes([byte]))
            await asyncio.sleep(0.5)
        slow.send(whole[10:])
        await asyncio.sleep(3)
        assert stuck.lost
        assert trickling.lost
        assert not slow.closing
        assert slow.correlations() == [1]

    run(scenario())


def test_requests_sent_before_the_client_disconnected_are_still_served() -> None:
    async def scenario() -> None:
        appended: list[int] = []

        async def handle(call: Call, request: Any) -> None:
            appended.append(call.correlation_id)

        server = await MemoryServer().start(handlers(PRODUCE=handle))
        connection = server.connect()
        connection.send(b"".join(produce(n, acks=0) for n in range(100)))
        connection.finish()
        await settle(100)
        assert appended == list(range(100))
        assert connection.lost

    run(scenario())


def test_responses_are_still_sent_to_a_client_that_has_shut_down_its_sending_side() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        server = await MemoryServer().start(handlers(PRODUCE=acks.handle))
        connection = server.connect()
        connection.send(produce(1))
        connection.finish()
        await settle()
        assert not connection.closing
        acks.acknowledge(1)
        await settle()
        assert connection.correlations() == [1]
        assert connection.lost

    run(scenario())


def test_a_lost_connection_cancels_its_long_poll_but_not_its_produce() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        cancelled: list[int] = []

        async def poll(call: Call, request: Any) -> FetchResponse:
            call.park()
            try:
                await asyncio.sleep(500)
            except asyncio.CancelledError:
                cancelled.append(call.correlation_id)
                raise
            return FetchResponse()

        server = await MemoryServer().start(handlers(FETCH=poll, PRODUCE=acks.handle))
        consumer, producer, leaving = server.connect(), server.connect(), server.connect()
        consumer.send(fetch(1))
        producer.send(produce(2))
        leaving.send(fetch(3))
        consumer.reset()
        producer.reset()
        leaving.finish()
        await settle()
        assert cancelled == [1, 3]
        assert leaving.lost
        assert server.number("strandline.server:type=Requests,name=ParkedRequests") == 1
        acks.acknowledge(2)
        await settle()
        assert server.number("strandline.server:type=Requests,name=ParkedRequests") == 0

    run(scenario())


def test_a_connection_whose_client_does_not_read_responses_is_muted() -> None:
    async def scenario() -> None:
        async def handle_large(call: Call, request: Any) -> Any:
            response = await handle_metadata(call, request)
            response.cluster_id = "x" * 10_000
            return response

        server = await MemoryServer().start(handlers(METADATA=handle_large))
        stalled, other = server.connect(), server.connect()
        stalled.reading = False
        for n in range(1000):
            stalled.send(metadata(n))
            await asyncio.sleep(0)
        assert stalled.muted
        assert stalled.most_buffered < 600_000
        other.send(metadata(1))
        assert other.correlations() == [1]
        stalled.read_everything()
        await settle(2000)
        assert stalled.correlations() == list(range(1000))

    run(scenario())


@pytest.fixture
def traced() -> Iterator[None]:
    """Without the cyclic collector, which runs after many objects, not after large ones."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


@pytest.mark.usefixtures("traced")
def test_the_buffers_of_a_lost_connection_are_freed() -> None:
    async def scenario() -> None:
        server = await MemoryServer().start(handlers(METADATA=handle_metadata))
        connections = [server.connect() for _ in range(4)]
        before, _ = tracemalloc.get_traced_memory()
        for connection in connections:
            connection.send(struct.pack(">i", 50_000_000) + bytes(3_000_000))
            connection.reset()
        await settle()
        held, peak = tracemalloc.get_traced_memory()
        assert peak - before > 3_000_000 > 1_000_000 > held - before

    run(scenario())
