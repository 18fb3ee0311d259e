"""Frames in, answers out, in order: what one connection may and may not do."""

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
    handlers,
    metadata,
    produce,
    run,
    say_metadata,
    say_produced,
    settle,
)


class Acknowledgements:
    """A Produce handler that appends at once and answers when told, like acks=all."""

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


def test_a_request_that_arrives_byte_by_byte_is_answered() -> None:
    async def scenario() -> None:
        house = await MemoryServer().start(handlers(METADATA=say_metadata))
        wire = house.connect()
        for byte in metadata(7):
            assert wire.received == b""
            wire.send(bytes([byte]))
        assert wire.correlations() == [7]

    run(scenario())


def test_many_requests_in_one_segment_are_answered_in_order_with_one_write() -> None:
    async def scenario() -> None:
        house = await MemoryServer().start(handlers(METADATA=say_metadata, PRODUCE=say_produced))
        wire = house.connect()
        wire.send(b"".join(metadata(n) if n % 3 else produce(n) for n in range(20)))
        assert wire.correlations() == list(range(20))
        assert wire.writes == 1

    run(scenario())


def test_a_flood_of_small_requests_is_served_in_several_steps() -> None:
    async def scenario() -> None:
        house = await MemoryServer().start(handlers(METADATA=say_metadata))
        wire = house.connect()
        wire.send(b"".join(metadata(n) for n in range(500)))
        assert 0 < len(wire.frames()) < 500
        assert wire.muted
        await settle(100)
        assert wire.correlations() == list(range(500))
        assert not wire.muted

    run(scenario())


def test_pipelined_produces_are_appended_in_order_while_earlier_ones_wait() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        house = await MemoryServer().start(handlers(PRODUCE=acks.handle))
        wire = house.connect()
        wire.send(produce(1) + produce(2) + produce(3))
        assert acks.appended == [1, 2, 3]
        acks.acknowledge(3)
        acks.acknowledge(2)
        await settle()
        assert wire.correlations() == []
        acks.acknowledge(1)
        await settle()
        assert wire.correlations() == [1, 2, 3]
        assert wire.writes == 1

    run(scenario())


def test_a_produce_does_not_overtake_one_that_has_not_appended_yet() -> None:
    async def scenario() -> None:
        begun: list[int] = []
        opened = asyncio.get_running_loop().create_future()

        async def handle(call: Call, request: Any) -> ProduceResponse:
            begun.append(call.correlation_id)
            if call.correlation_id == 1:
                await opened  # the log is being opened: no park, nothing appended
            return ProduceResponse()

        house = await MemoryServer().start(handlers(PRODUCE=handle))
        wire = house.connect()
        wire.send(produce(1) + produce(2))
        await settle()
        assert begun == [1]
        opened.set_result(None)
        await settle()
        assert begun == [1, 2]
        assert wire.correlations() == [1, 2]

    run(scenario())


def test_a_produce_that_parks_late_lets_the_next_one_begin() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        opened = asyncio.get_running_loop().create_future()

        async def handle(call: Call, request: Any) -> ProduceResponse:
            await asyncio.shield(opened)
            return await acks.handle(call, request)

        house = await MemoryServer().start(handlers(PRODUCE=handle))
        wire = house.connect()
        wire.send(produce(1) + produce(2) + produce(3))
        await settle()
        assert acks.appended == []
        opened.set_result(None)
        await settle()
        assert acks.appended == [1, 2, 3]
        assert wire.correlations() == []

    run(scenario())


def test_any_other_request_waits_for_all_earlier_answers() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        house = await MemoryServer().start(handlers(PRODUCE=acks.handle, METADATA=say_metadata))
        wire = house.connect()
        wire.send(produce(1) + metadata(2) + produce(3))
        await settle()
        assert acks.appended == [1]
        assert wire.muted
        acks.acknowledge(1)
        await settle()
        assert wire.correlations() == [1, 2]
        assert acks.appended == [1, 3]
        assert not wire.muted

    run(scenario())


def test_a_long_poll_holds_its_own_connection_only() -> None:
    async def scenario() -> None:
        async def poll(call: Call, request: Any) -> FetchResponse:
            call.park()
            await asyncio.sleep(0.5)
            return FetchResponse()

        house = await MemoryServer().start(handlers(FETCH=poll, METADATA=say_metadata))
        waiting, other = house.connect(), house.connect()
        waiting.send(fetch(1) + metadata(2))
        other.send(metadata(3))
        assert other.correlations() == [3]
        await asyncio.sleep(0.499)
        assert waiting.correlations() == []
        await asyncio.sleep(0.002)
        assert waiting.correlations() == [1, 2]

    run(scenario())


def test_a_connection_has_a_bounded_number_of_requests_in_work() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        house = await MemoryServer(ServerSettings(pipelined=4)).start(handlers(PRODUCE=acks.handle))
        wire = house.connect()
        wire.send(b"".join(produce(n) for n in range(10)))
        await settle()
        assert acks.appended == [0, 1, 2, 3]
        assert wire.muted
        acks.acknowledge(0)
        await settle()
        assert acks.appended == [0, 1, 2, 3, 4]

    run(scenario())


def test_when_too_much_is_parked_a_connection_may_hold_one_request() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        house = await MemoryServer(ServerSettings(parked_max_requests=2)).start(handlers(PRODUCE=acks.handle))
        greedy, modest = house.connect(), house.connect()
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


def test_a_request_without_an_answer_leaves_no_gap() -> None:
    async def scenario() -> None:
        house = await MemoryServer().start(handlers(PRODUCE=say_produced))
        wire = house.connect()
        wire.send(produce(1, acks=0) + produce(2) + produce(3, acks=0))
        assert wire.correlations() == [2]
        assert not wire.closing

    run(scenario())


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_frame_of_an_impossible_size_closes_the_connection(size: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        house = await MemoryServer(ServerSettings(max_request_bytes=1000)).start(handlers(METADATA=say_metadata))
        wire, other = house.connect(), house.connect()
        wire.send(struct.pack(">i", size) + b"x" * 50)
        await settle()
        assert wire.lost
        other.send(metadata(1))
        assert other.correlations() == [1]

    run(scenario())
    assert len([record for record in caplog.records if "10.0.0.1" in record.getMessage()]) == 1


def test_answers_given_before_a_violation_still_leave() -> None:
    async def scenario() -> None:
        house = await MemoryServer().start(handlers(METADATA=say_metadata))
        wire = house.connect()
        wire.send(metadata(1) + struct.pack(">i", -1))
        await settle()
        assert wire.lost
        assert wire.correlations() == [1]

    run(scenario())


def test_an_idle_connection_is_closed_and_an_active_one_is_not() -> None:
    async def scenario() -> None:
        house = await MemoryServer(ServerSettings(max_idle_ms=60_000)).start(handlers(METADATA=say_metadata))
        idle, active = house.connect(), house.connect()
        for n in range(3):
            await asyncio.sleep(30)
            active.send(metadata(n))
        assert idle.lost
        assert not active.closing
        await asyncio.sleep(62)
        assert active.lost
        assert house.number("kafka.server:type=socket-server-metrics,name=connection-count") == 0

    run(scenario())


def test_a_connection_whose_request_is_in_work_is_not_idle() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        house = await MemoryServer(ServerSettings(max_idle_ms=1_000)).start(handlers(PRODUCE=acks.handle))
        wire = house.connect()
        wire.send(produce(1))
        await asyncio.sleep(10)
        assert not wire.closing
        acks.acknowledge(1)
        await settle()
        assert wire.correlations() == [1]

    run(scenario())


def test_a_long_wait_is_followed_by_the_usual_idle_time() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        house = await MemoryServer(ServerSettings(max_idle_ms=10_000)).start(handlers(PRODUCE=acks.handle))
        wire = house.connect()
        wire.send(produce(1))
        await asyncio.sleep(60)
        acks.acknowledge(1)
        await asyncio.sleep(8)
        assert not wire.closing
        await asyncio.sleep(4)
        assert wire.lost

    run(scenario())


def test_a_frame_that_was_begun_must_be_finished_in_time() -> None:
    async def scenario() -> None:
        house = await MemoryServer(ServerSettings(frame_timeout_ms=5_000)).start(handlers(METADATA=say_metadata))
        stuck, trickling, slow = house.connect(), house.connect(), house.connect()
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


def test_what_was_sent_before_the_client_left_is_still_served() -> None:
    async def scenario() -> None:
        appended: list[int] = []

        async def handle(call: Call, request: Any) -> None:
            appended.append(call.correlation_id)

        house = await MemoryServer().start(handlers(PRODUCE=handle))
        wire = house.connect()
        wire.send(b"".join(produce(n, acks=0) for n in range(100)))
        wire.finish()
        await settle(100)
        assert appended == list(range(100))
        assert wire.lost

    run(scenario())


def test_answers_in_work_when_the_client_stops_sending_are_still_delivered() -> None:
    async def scenario() -> None:
        acks = Acknowledgements()
        house = await MemoryServer().start(handlers(PRODUCE=acks.handle))
        wire = house.connect()
        wire.send(produce(1))
        wire.finish()
        await settle()
        assert not wire.closing
        acks.acknowledge(1)
        await settle()
        assert wire.correlations() == [1]
        assert wire.lost

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

        house = await MemoryServer().start(handlers(FETCH=poll, PRODUCE=acks.handle))
        consumer, producer, leaving = house.connect(), house.connect(), house.connect()
        consumer.send(fetch(1))
        producer.send(produce(2))
        leaving.send(fetch(3))
        consumer.reset()
        producer.reset()
        leaving.finish()
        await settle()
        assert cancelled == [1, 3]
        assert leaving.lost
        assert house.number("strandline.server:type=Requests,name=ParkedRequests") == 1
        acks.acknowledge(2)
        await settle()
        assert house.number("strandline.server:type=Requests,name=ParkedRequests") == 0

    run(scenario())


def test_a_client_that_does_not_read_its_answers_is_not_read_from() -> None:
    async def scenario() -> None:
        async def answer(call: Call, request: Any) -> Any:
            response = await say_metadata(call, request)
            response.cluster_id = "x" * 10_000
            return response

        house = await MemoryServer().start(handlers(METADATA=answer))
        deaf, other = house.connect(), house.connect()
        deaf.reading = False
        for n in range(1000):
            deaf.send(metadata(n))
            await asyncio.sleep(0)
        assert deaf.muted
        assert deaf.most_buffered < 600_000
        other.send(metadata(1))
        assert other.correlations() == [1]
        deaf.read_everything()
        await settle(2000)
        assert deaf.correlations() == list(range(1000))

    run(scenario())


@pytest.fixture
def traced() -> Iterator[None]:
    """Without a collector: a cycle of objects is looked for when many have come, not when they are large."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


@pytest.mark.usefixtures("traced")
def test_a_connection_that_is_lost_leaves_no_frame_behind() -> None:
    async def scenario() -> None:
        house = await MemoryServer().start(handlers(METADATA=say_metadata))
        wires = [house.connect() for _ in range(4)]
        before, _ = tracemalloc.get_traced_memory()
        for wire in wires:
            wire.send(struct.pack(">i", 50_000_000) + bytes(3_000_000))
            wire.reset()
        await settle()
        held, peak = tracemalloc.get_traced_memory()
        assert peak - before > 3_000_000 > 1_000_000 > held - before

    run(scenario())
