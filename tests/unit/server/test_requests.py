"""The request queue: handler slots, parking, limits, and the queue of the controller listener."""

from __future__ import annotations

import asyncio
from typing import Any

from strandline.protocol.messages.fetch import FetchResponse
from strandline.protocol.messages.metadata import MetadataResponse
from strandline.protocol.messages.produce import ProduceResponse
from strandline.server.requests import Call
from strandline.server.settings import ServerSettings
from unit.server.memory_server import MemoryServer, fetch, handle_metadata, handlers, metadata, produce, run, settle

PARKED = "strandline.server:type=Requests,name=ParkedRequests"
PARKED_BYTES = "strandline.server:type=Requests,name=ParkedBytes"
QUEUED = "kafka.network:type=RequestChannel,name=RequestQueueSize"
QUEUED_BYTES = "strandline.server:type=Requests,name=QueuedBytes"


class Slow:
    """A handler that keeps its slot until `finish`."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self._waiting: list[asyncio.Future[None]] = []

    async def handle(self, call: Call, request: Any) -> MetadataResponse:
        self.started.append(f"{call.listener} {call.correlation_id}")
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future
        return MetadataResponse()

    def finish(self, count: int = 1) -> None:
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

        table = handlers(PRODUCE=wait_for_replicas, FETCH=wait_for_data, METADATA=handle_metadata)
        server = await MemoryServer(ServerSettings(handlers=8)).start(table)
        producers = [server.connect(f"10.0.0.{n % 200}") for n in range(1000)]
        consumers = [server.connect(f"10.0.1.{n % 200}") for n in range(1000)]
        for n, connection in enumerate(producers):
            connection.send(produce(n))
        for n, connection in enumerate(consumers):
            connection.send(fetch(n))
        assert server.number(PARKED) == 2000
        assert server.number(QUEUED) == 0
        other = server.connect("10.0.2.1")
        for n in range(50):
            other.send(metadata(n))
            assert other.correlations() == list(range(n + 1)), "in the same step"
        released.set_result(None)
        await settle()
        assert [connection.correlations() for connection in producers] == [[n] for n in range(1000)]
        assert [connection.correlations() for connection in consumers] == [[n] for n in range(1000)]
        assert server.number(PARKED) == 0
        assert server.number(PARKED_BYTES) == 0
        assert server.number(QUEUED_BYTES) == 0

    run(scenario())


def test_no_more_requests_run_at_once_than_there_are_handler_slots() -> None:
    async def scenario() -> None:
        slow = Slow()
        server = await MemoryServer(ServerSettings(handlers=2)).start(handlers(METADATA=slow.handle))
        connections = [server.connect() for _ in range(5)]
        for n, connection in enumerate(connections):
            connection.send(metadata(n))
        await settle()
        assert slow.started == ["CLIENTS 0", "CLIENTS 1"]
        assert server.number(QUEUED) == 3
        slow.finish()
        await settle()
        assert slow.started == ["CLIENTS 0", "CLIENTS 1", "CLIENTS 2"]
        assert connections[0].correlations() == [0]

    run(scenario())


def test_more_slots_take_effect_at_once_and_fewer_as_calls_end() -> None:
    async def scenario() -> None:
        slow = Slow()
        server = await MemoryServer(ServerSettings(handlers=1)).start(handlers(METADATA=slow.handle))
        for n in range(6):
            server.connect().send(metadata(n))
        await settle()
        server.inner.resize(3)
        await settle()
        assert len(slow.started) == 3
        server.inner.resize(1)
        slow.finish(2)
        await settle()
        assert len(slow.started) == 3
        slow.finish()
        await settle()
        assert len(slow.started) == 4

    run(scenario())


def test_requests_of_the_controller_listener_are_served_first() -> None:
    async def scenario() -> None:
        slow = Slow()
        table = handlers(METADATA=slow.handle)
        server = await MemoryServer(ServerSettings(handlers=1)).start(table, table)
        for n in range(3):
            server.connect().send(metadata(n))
        server.connect(port=2).send(metadata(9))
        await settle()
        slow.finish()
        await settle()
        slow.finish()
        await settle()
        assert slow.started == ["CLIENTS 0", "CONTROLLER 9", "CLIENTS 1"]

    run(scenario())


def test_a_full_queue_mutes_connections_until_it_has_room() -> None:
    async def scenario() -> None:
        slow = Slow()
        table = handlers(METADATA=slow.handle)
        server = await MemoryServer(ServerSettings(handlers=1, queued_max_requests=2)).start(table, table)
        connections = [server.connect() for _ in range(6)]
        for n, connection in enumerate(connections):
            connection.send(metadata(n))
        await settle()
        assert [connection.muted for connection in connections] == [False, False, False, True, True, True]
        assert server.number(QUEUED) == 2
        controller = server.connect(port=2)
        controller.send(metadata(9))
        assert not controller.muted, "its queue has its own limit"
        for _ in range(7):
            await settle()
            slow.finish()
        await settle()
        assert [connection.correlations() for connection in connections] == [[n] for n in range(6)]
        assert not any(connection.muted for connection in connections)
        assert slow.started[1] == "CONTROLLER 9"

    run(scenario())


def test_too_many_queued_bytes_mute_connections_until_requests_end() -> None:
    async def scenario() -> None:
        slow = Slow()
        limit = ServerSettings(handlers=8, queued_max_request_bytes=100)
        server = await MemoryServer(limit).start(handlers(METADATA=slow.handle))
        connections = [server.connect() for _ in range(3)]
        for n, connection in enumerate(connections):
            connection.send(metadata(n, client_id="x" * 100))
        await settle()
        assert slow.started == ["CLIENTS 0"]
        assert [connection.muted for connection in connections] == [False, True, True]
        slow.finish()
        await settle()
        assert slow.started == ["CLIENTS 0", "CLIENTS 1"]
        slow.finish()
        await settle()
        slow.finish()
        await settle()
        assert server.number(QUEUED_BYTES) == 0
        assert [connection.correlations() for connection in connections] == [[0], [1], [2]]

    run(scenario())


def test_a_large_frame_is_not_received_while_too_many_bytes_are_queued() -> None:
    async def scenario() -> None:
        slow = Slow()
        limit = ServerSettings(handlers=8, queued_max_request_bytes=100_000)
        server = await MemoryServer(limit).start(handlers(METADATA=slow.handle))
        first, second = server.connect(), server.connect()
        large = metadata(1, client_id="x" * 30_000)
        big = (200_000).to_bytes(4, "big") + large[4:] + b"\0" * (200_000 - len(large) + 4)
        first.send(big)
        assert slow.started == ["CLIENTS 1"]
        assert server.number(QUEUED_BYTES) == 200_000
        second.send(big)
        await settle()
        assert second.muted
        assert second.unsent_bytes > 100_000
        slow.finish()
        await settle()
        assert not second.muted
        assert slow.started == ["CLIENTS 1", "CLIENTS 1"]
        slow.finish()
        await settle()
        assert server.number(QUEUED_BYTES) == 0

    run(scenario())


def test_the_bytes_of_a_frame_are_counted_once_while_another_waits_behind_it() -> None:
    async def scenario() -> None:
        slow = Slow()
        server = await MemoryServer().start(handlers(METADATA=slow.handle))
        connection = server.connect()
        start = metadata(1)[4:]
        frame = (50_000).to_bytes(4, "big") + start + bytes(50_000 - len(start))
        connection.send(frame[:30_000])
        connection.send(frame[30_000:] + metadata(2))
        assert slow.started == ["CLIENTS 1"]
        assert server.number(QUEUED_BYTES) == 50_000

    run(scenario())


def test_a_waiting_frame_is_received_when_another_connection_drops_its_frame() -> None:
    async def scenario() -> None:
        settings = ServerSettings(queued_max_request_bytes=100_000)
        server = await MemoryServer(settings).start(handlers(METADATA=handle_metadata))
        first, second = server.connect(), server.connect()
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
        server = await MemoryServer(limit).start(handlers(METADATA=slow.handle))
        connections = [server.connect() for _ in range(5)]
        start = metadata(1)[4:]
        frame = (150_000).to_bytes(4, "big") + start + bytes(150_000 - len(start))
        for begin in range(0, len(frame), 10_000):
            for connection in connections:
                connection.send(frame[begin : begin + 10_000])
        for _ in range(5):
            await settle()
            assert server.number(QUEUED_BYTES) < 100_000 + 5 * 150_000
            assert 1 <= len(slow.started) <= 5
            slow.finish()
        await settle()
        assert [connection.correlations() for connection in connections] == [[1]] * 5
        assert server.number(QUEUED_BYTES) == 0

    run(scenario())


def test_the_bytes_of_an_incomplete_frame_are_released_when_the_connection_is_lost() -> None:
    async def scenario() -> None:
        server = await MemoryServer().start(handlers(METADATA=handle_metadata))
        connection = server.connect()
        connection.send((1_000_000).to_bytes(4, "big") + b"x" * 500_000)
        assert server.number(QUEUED_BYTES) >= 500_000
        connection.reset()
        assert server.number(QUEUED_BYTES) == 0

    run(scenario())


def test_a_handler_that_does_not_wait_needs_no_task() -> None:
    async def scenario() -> None:
        before = len(asyncio.all_tasks())
        seen: list[int] = []

        async def handle(call: Call, request: Any) -> MetadataResponse:
            seen.append(len(asyncio.all_tasks()))
            return MetadataResponse()

        server = await MemoryServer().start(handlers(METADATA=handle))
        background = len(asyncio.all_tasks())
        server.connect().send(metadata(1))
        assert seen == [background]
        assert before < background

    run(scenario())
