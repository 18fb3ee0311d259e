"""The request queue: slots, parking, bounds, and the lane of the controller."""

from __future__ import annotations

import asyncio
from typing import Any

from strandline.protocol.messages.fetch import FetchResponse
from strandline.protocol.messages.metadata import MetadataResponse
from strandline.protocol.messages.produce import ProduceResponse
from strandline.server.requests import Call
from strandline.server.settings import ServerSettings
from unit.server.memory_server import MemoryServer, fetch, handlers, metadata, produce, run, say_metadata, settle

PARKED = "strandline.server:type=Requests,name=ParkedRequests"
PARKED_BYTES = "strandline.server:type=Requests,name=ParkedBytes"
QUEUED = "kafka.network:type=RequestChannel,name=RequestQueueSize"
QUEUED_BYTES = "strandline.server:type=Requests,name=QueuedBytes"


class Slow:
    """A handler that decides slowly: it keeps its slot until told to go on."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._waiting: list[asyncio.Future[None]] = []

    async def handle(self, call: Call, request: Any) -> MetadataResponse:
        self.begun.append(f"{call.listener} {call.correlation_id}")
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future
        return MetadataResponse()

    def let_go(self, count: int = 1) -> None:
        for _ in range(count):
            self._waiting.pop(0).set_result(None)


def test_a_thousand_parked_produces_and_long_polls_leave_others_unaffected() -> None:
    async def scenario() -> None:
        released = asyncio.get_running_loop().create_future()

        async def wait_for_replicas(call: Call, request: Any) -> ProduceResponse:
            call.park()
            await asyncio.shield(released)
            return ProduceResponse()

        async def wait_for_data(call: Call, request: Any) -> FetchResponse:
            call.park()
            await asyncio.shield(released)
            return FetchResponse()

        table = handlers(PRODUCE=wait_for_replicas, FETCH=wait_for_data, METADATA=say_metadata)
        house = await MemoryServer(ServerSettings(handlers=8)).start(table)
        producers = [house.connect(f"10.0.0.{n % 200}") for n in range(1000)]
        consumers = [house.connect(f"10.0.1.{n % 200}") for n in range(1000)]
        for n, wire in enumerate(producers):
            wire.send(produce(n))
        for n, wire in enumerate(consumers):
            wire.send(fetch(n))
        assert house.number(PARKED) == 2000
        assert house.number(QUEUED) == 0
        other = house.connect("10.0.2.1")
        for n in range(50):
            other.send(metadata(n))
            assert other.correlations() == list(range(n + 1)), "answered at once, in the same step"
        released.set_result(None)
        await settle()
        assert [wire.correlations() for wire in producers] == [[n] for n in range(1000)]
        assert [wire.correlations() for wire in consumers] == [[n] for n in range(1000)]
        assert house.number(PARKED) == 0
        assert house.number(PARKED_BYTES) == 0
        assert house.number(QUEUED_BYTES) == 0

    run(scenario())


def test_no_more_requests_are_decided_at_once_than_there_are_handlers() -> None:
    async def scenario() -> None:
        slow = Slow()
        house = await MemoryServer(ServerSettings(handlers=2)).start(handlers(METADATA=slow.handle))
        wires = [house.connect() for _ in range(5)]
        for n, wire in enumerate(wires):
            wire.send(metadata(n))
        await settle()
        assert slow.begun == ["CLIENTS 0", "CLIENTS 1"]
        assert house.number(QUEUED) == 3
        slow.let_go()
        await settle()
        assert slow.begun == ["CLIENTS 0", "CLIENTS 1", "CLIENTS 2"]
        assert wires[0].correlations() == [0]

    run(scenario())


def test_more_handlers_take_effect_at_once_and_fewer_as_calls_end() -> None:
    async def scenario() -> None:
        slow = Slow()
        house = await MemoryServer(ServerSettings(handlers=1)).start(handlers(METADATA=slow.handle))
        for n in range(6):
            house.connect().send(metadata(n))
        await settle()
        house.server.resize(3)
        await settle()
        assert len(slow.begun) == 3
        house.server.resize(1)
        slow.let_go(2)
        await settle()
        assert len(slow.begun) == 3
        slow.let_go()
        await settle()
        assert len(slow.begun) == 4

    run(scenario())


def test_work_of_the_controller_is_served_first() -> None:
    async def scenario() -> None:
        slow = Slow()
        table = handlers(METADATA=slow.handle)
        house = await MemoryServer(ServerSettings(handlers=1)).start(table, table)
        for n in range(3):
            house.connect().send(metadata(n))
        house.connect(port=2).send(metadata(9))
        await settle()
        slow.let_go()
        await settle()
        slow.let_go()
        await settle()
        assert slow.begun == ["CLIENTS 0", "CONTROLLER 9", "CLIENTS 1"]

    run(scenario())


def test_a_full_queue_mutes_connections_and_room_unmutes_them() -> None:
    async def scenario() -> None:
        slow = Slow()
        table = handlers(METADATA=slow.handle)
        house = await MemoryServer(ServerSettings(handlers=1, queued_max_requests=2)).start(table, table)
        wires = [house.connect() for _ in range(6)]
        for n, wire in enumerate(wires):
            wire.send(metadata(n))
        await settle()
        assert [wire.muted for wire in wires] == [False, False, False, True, True, True]
        assert house.number(QUEUED) == 2
        controller = house.connect(port=2)
        controller.send(metadata(9))
        assert not controller.muted, "its lane has room of its own"
        for _ in range(7):
            await settle()
            slow.let_go()
        await settle()
        assert [wire.correlations() for wire in wires] == [[n] for n in range(6)]
        assert not any(wire.muted for wire in wires)
        assert slow.begun[1] == "CONTROLLER 9"

    run(scenario())


def test_too_many_queued_bytes_mute_connections_until_some_are_gone() -> None:
    async def scenario() -> None:
        slow = Slow()
        limit = ServerSettings(handlers=8, queued_max_request_bytes=100)
        house = await MemoryServer(limit).start(handlers(METADATA=slow.handle))
        wires = [house.connect() for _ in range(3)]
        for n, wire in enumerate(wires):
            wire.send(metadata(n, client_id="x" * 100))
        await settle()
        assert slow.begun == ["CLIENTS 0"]
        assert [wire.muted for wire in wires] == [False, True, True]
        slow.let_go()
        await settle()
        assert slow.begun == ["CLIENTS 0", "CLIENTS 1"]
        slow.let_go()
        await settle()
        slow.let_go()
        await settle()
        assert house.number(QUEUED_BYTES) == 0
        assert [wire.correlations() for wire in wires] == [[0], [1], [2]]

    run(scenario())


def test_a_large_frame_is_not_taken_in_while_too_many_bytes_are_queued() -> None:
    async def scenario() -> None:
        slow = Slow()
        limit = ServerSettings(handlers=8, queued_max_request_bytes=100_000)
        house = await MemoryServer(limit).start(handlers(METADATA=slow.handle))
        first, second = house.connect(), house.connect()
        large = metadata(1, client_id="x" * 30_000)
        big = (200_000).to_bytes(4, "big") + large[4:] + b"\0" * (200_000 - len(large) + 4)
        first.send(big)
        assert slow.begun == ["CLIENTS 1"]
        assert house.number(QUEUED_BYTES) == 200_000
        second.send(big)
        await settle()
        assert second.muted
        assert second.unsent_bytes > 100_000
        slow.let_go()
        await settle()
        assert not second.muted
        assert slow.begun == ["CLIENTS 1", "CLIENTS 1"]
        slow.let_go()
        await settle()
        assert house.number(QUEUED_BYTES) == 0

    run(scenario())


def test_a_frame_is_counted_once_while_another_waits_behind_it() -> None:
    async def scenario() -> None:
        slow = Slow()
        house = await MemoryServer().start(handlers(METADATA=slow.handle))
        wire = house.connect()
        start = metadata(1)[4:]
        frame = (50_000).to_bytes(4, "big") + start + bytes(50_000 - len(start))
        wire.send(frame[:30_000])
        wire.send(frame[30_000:] + metadata(2))
        assert slow.begun == ["CLIENTS 1"]
        assert house.number(QUEUED_BYTES) == 50_000

    run(scenario())


def test_a_frame_that_waits_is_read_on_when_another_one_is_given_up() -> None:
    async def scenario() -> None:
        settings = ServerSettings(queued_max_request_bytes=100_000)
        house = await MemoryServer(settings).start(handlers(METADATA=say_metadata))
        first, second = house.connect(), house.connect()
        start = metadata(1)[4:]
        frame = (200_000).to_bytes(4, "big") + start + bytes(200_000 - len(start))
        first.send(frame[:150_000])
        second.send(frame)
        await settle()
        assert second.muted
        first.reset()
        await settle()
        assert second.correlations() == [1]

    run(scenario())


def test_frames_above_the_limit_of_bytes_are_served_one_after_the_other() -> None:
    async def scenario() -> None:
        slow = Slow()
        limit = ServerSettings(handlers=8, queued_max_request_bytes=100_000)
        house = await MemoryServer(limit).start(handlers(METADATA=slow.handle))
        wires = [house.connect() for _ in range(5)]
        start = metadata(1)[4:]
        frame = (150_000).to_bytes(4, "big") + start + bytes(150_000 - len(start))
        for begin in range(0, len(frame), 10_000):
            for wire in wires:
                wire.send(frame[begin : begin + 10_000])
        for _ in range(5):
            await settle()
            assert house.number(QUEUED_BYTES) < 100_000 + 5 * 150_000
            assert 1 <= len(slow.begun) <= 5
            slow.let_go()
        await settle()
        assert [wire.correlations() for wire in wires] == [[1]] * 5
        assert house.number(QUEUED_BYTES) == 0

    run(scenario())


def test_a_connection_lost_in_the_middle_of_a_frame_gives_its_bytes_back() -> None:
    async def scenario() -> None:
        house = await MemoryServer().start(handlers(METADATA=say_metadata))
        wire = house.connect()
        wire.send((1_000_000).to_bytes(4, "big") + b"x" * 500_000)
        assert house.number(QUEUED_BYTES) >= 500_000
        wire.reset()
        assert house.number(QUEUED_BYTES) == 0

    run(scenario())


def test_a_handler_that_finishes_without_waiting_costs_no_task() -> None:
    async def scenario() -> None:
        before = len(asyncio.all_tasks())
        seen: list[int] = []

        async def handle(call: Call, request: Any) -> MetadataResponse:
            seen.append(len(asyncio.all_tasks()))
            return MetadataResponse()

        house = await MemoryServer().start(handlers(METADATA=handle))
        background = len(asyncio.all_tasks())
        house.connect().send(metadata(1))
        assert seen == [background]
        assert before < background

    run(scenario())
