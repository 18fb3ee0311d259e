"""Listeners, limits on connections, and stopping the server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from strandline.protocol.messages.fetch import FetchResponse
from strandline.protocol.messages.produce import ProduceResponse
from strandline.server.requests import Call
from strandline.server.settings import ServerSettings
from unit.server.memory_server import MemoryServer, fetch, handle_metadata, handlers, metadata, produce, run, settle

CONNECTIONS = "kafka.server:type=socket-server-metrics,name=connection-count"


def test_connections_above_the_limit_of_their_address_are_rejected(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        settings = ServerSettings(max_connections_per_ip=2, max_connections_per_ip_overrides={"10.0.0.9": 3})
        server = await MemoryServer(settings).start(handlers(METADATA=handle_metadata))
        connections = [server.connect("10.0.0.1") for _ in range(3)]
        special = [server.connect("10.0.0.9") for _ in range(4)]
        await settle()
        assert [connection.lost for connection in connections] == [False, False, True]
        assert [connection.lost for connection in special] == [False, False, False, True]
        connections[0].reset()
        again = server.connect("10.0.0.1")
        again.send(metadata(1))
        assert again.correlations() == [1]

    run(scenario())
    assert "10.0.0.1 has 2 connections already (max.connections.per.ip)" in caplog.records[0].getMessage()


def test_a_lost_connection_no_longer_counts_against_the_limit_of_its_address() -> None:
    async def scenario() -> None:
        server = await MemoryServer(ServerSettings(max_connections_per_ip=1)).start(handlers(METADATA=handle_metadata))
        for n in range(5):
            connection = server.connect()
            connection.send(metadata(n))
            assert connection.correlations() == [n]
            connection.reset()

    run(scenario())


def test_max_connections_does_not_apply_to_the_controller_listener() -> None:
    async def scenario() -> None:
        table = handlers(METADATA=handle_metadata)
        server = await MemoryServer(ServerSettings(max_connections=2)).start(table, table)
        clients = [server.connect(f"10.0.0.{n}") for n in range(4)]
        controller = server.connect(port=2)
        await settle()
        assert [connection.lost for connection in clients] == [False, False, True, True]
        assert not controller.closing
        assert server.number(CONNECTIONS) == 3

    run(scenario())


def test_rejected_connections_are_logged_at_most_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        server = await MemoryServer(ServerSettings(max_connections=0)).start(handlers(METADATA=handle_metadata))
        for _ in range(100):
            server.connect()
        await asyncio.sleep(2)
        server.connect()
        await settle()

    run(scenario())
    messages = [record.getMessage() for record in caplog.records if "rejected" in record.getMessage()]
    assert len(messages) == 2
    assert "99 more" in messages[1]


def test_connections_above_the_creation_rate_are_throttled() -> None:
    async def scenario() -> None:
        server = await MemoryServer(ServerSettings(max_connection_creation_rate=10)).start(
            handlers(METADATA=handle_metadata)
        )
        connections = [server.connect(f"10.0.0.{n}") for n in range(20)]
        for connection in connections:
            connection.send(metadata(1))
        await settle()
        assert [len(connection.frames()) for connection in connections] == [1] * 10 + [0] * 10
        await asyncio.sleep(0.55)
        assert [len(connection.frames()) for connection in connections] == [1] * 15 + [0] * 5
        await asyncio.sleep(0.5)
        assert [len(connection.frames()) for connection in connections] == [1] * 20

    run(scenario())


def test_stopping_waits_for_requests_in_flight_and_closes_other_connections_at_once() -> None:
    async def scenario() -> None:
        async def replicate(call: Call, request: Any) -> ProduceResponse:
            call.park()
            await asyncio.sleep(0.2)
            return ProduceResponse()

        async def poll(call: Call, request: Any) -> FetchResponse:
            call.park()
            await asyncio.sleep(30)
            return FetchResponse()

        server = await MemoryServer().start(handlers(PRODUCE=replicate, FETCH=poll, METADATA=handle_metadata))
        producer, consumer, idle = server.connect(), server.connect(), server.connect()
        producer.send(produce(1) + produce(2) + metadata(3))
        consumer.send(fetch(1))
        await settle()
        stopping = asyncio.ensure_future(server.inner.stop(5_000))
        await settle()
        assert 1 not in server.network.factories, "the listener is closed"
        assert idle.lost
        assert consumer.lost
        assert not producer.closing
        await stopping
        assert asyncio.get_running_loop().time() < 1
        assert producer.lost
        assert producer.correlations() == [1, 2], "a request that had not started gets no response"
        assert len(asyncio.all_tasks()) == 1

    run(scenario())


def test_a_request_that_takes_longer_than_the_drain_is_cancelled() -> None:
    async def scenario() -> None:
        ended: list[str] = []

        async def never(call: Call, request: Any) -> ProduceResponse:
            try:
                await asyncio.sleep(10_000)
            finally:
                ended.append("cancelled")
            return ProduceResponse()

        server = await MemoryServer().start(handlers(PRODUCE=never))
        connection = server.connect()
        connection.send(produce(1))
        await server.inner.stop(3_000)
        assert 3 <= asyncio.get_running_loop().time() < 4
        assert ended == ["cancelled"]
        await settle()
        assert connection.lost

    run(scenario())


def test_a_connection_whose_client_does_not_read_is_aborted_after_the_drain() -> None:
    async def scenario() -> None:
        async def handle_large(call: Call, request: Any) -> Any:
            response = await handle_metadata(call, request)
            response.cluster_id = "x" * 30_000
            return response

        server = await MemoryServer().start(handlers(METADATA=handle_large))
        connection = server.connect()
        connection.reading = False
        connection.send(metadata(1))
        await server.inner.stop(2_000)
        await settle()
        assert connection.lost

    run(scenario())


def test_a_response_that_the_client_is_reading_is_sent_completely_before_the_server_stops() -> None:
    async def scenario() -> None:
        async def handle_large(call: Call, request: Any) -> Any:
            response = await handle_metadata(call, request)
            response.cluster_id = "x" * 30_000
            return response

        server = await MemoryServer().start(handlers(METADATA=handle_large))
        connection = server.connect()
        connection.reading = False
        connection.send(b"".join(metadata(n) for n in range(5)))
        await settle()
        stopping = asyncio.ensure_future(server.inner.stop(60_000))
        await asyncio.sleep(1)
        assert not stopping.done()
        connection.read_everything()
        await stopping
        assert connection.correlations() == [0, 1, 2, 3, 4]

    run(scenario())


def test_when_one_listener_cannot_bind_the_others_are_closed() -> None:
    async def scenario() -> None:
        server = MemoryServer()

        async def fail_to_bind(*_: Any, **__: Any) -> Any:
            raise OSError(98, "Address already in use")

        listen = server.network.listen

        async def listen_once(host: str, port: int, factory: Any, backlog: int = 50) -> Any:
            return await (listen if port == 1 else fail_to_bind)(host, port, factory, backlog)

        server.network.listen = listen_once  # type: ignore[method-assign]
        with pytest.raises(OSError, match="in use"):
            await server.start(handlers(METADATA=handle_metadata))
        assert server.network.factories == {}

    run(scenario())


def test_the_longest_step_of_the_event_loop_is_a_metric() -> None:
    async def scenario() -> None:
        server = await MemoryServer().start(handlers(METADATA=handle_metadata))
        before = server.number("strandline.runtime:type=EventLoop,name=LongestStepMs")
        server.inner.lag.steps.record(9_000_000, server.inner.lag.begin() // 1_000_000)
        assert before < 9_000 == server.number("strandline.runtime:type=EventLoop,name=LongestStepMs")

    run(scenario())
