"""Listeners, limits on connections, and the end of a server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from strandline.protocol.messages.fetch import FetchResponse
from strandline.protocol.messages.produce import ProduceResponse
from strandline.server.requests import Call
from strandline.server.settings import ServerSettings
from unit.server.memory_server import MemoryServer, fetch, handlers, metadata, produce, run, say_metadata, settle

CONNECTIONS = "kafka.server:type=socket-server-metrics,name=connection-count"


def test_connections_beyond_the_limit_of_their_address_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        settings = ServerSettings(max_connections_per_ip=2, max_connections_per_ip_overrides={"10.0.0.9": 3})
        house = await MemoryServer(settings).start(handlers(METADATA=say_metadata))
        wires = [house.connect("10.0.0.1") for _ in range(3)]
        special = [house.connect("10.0.0.9") for _ in range(4)]
        await settle()
        assert [wire.lost for wire in wires] == [False, False, True]
        assert [wire.lost for wire in special] == [False, False, False, True]
        wires[0].reset()
        again = house.connect("10.0.0.1")
        again.send(metadata(1))
        assert again.correlations() == [1]

    run(scenario())
    assert "10.0.0.1 has 2 connections already (max.connections.per.ip)" in caplog.records[0].getMessage()


def test_an_address_whose_connections_have_all_ended_starts_anew() -> None:
    async def scenario() -> None:
        house = await MemoryServer(ServerSettings(max_connections_per_ip=1)).start(handlers(METADATA=say_metadata))
        for n in range(5):
            wire = house.connect()
            wire.send(metadata(n))
            assert wire.correlations() == [n]
            wire.reset()

    run(scenario())


def test_a_full_node_refuses_clients_and_still_takes_the_controllers_connections() -> None:
    async def scenario() -> None:
        table = handlers(METADATA=say_metadata)
        house = await MemoryServer(ServerSettings(max_connections=2)).start(table, table)
        clients = [house.connect(f"10.0.0.{n}") for n in range(4)]
        controller = house.connect(port=2)
        await settle()
        assert [wire.lost for wire in clients] == [False, False, True, True]
        assert not controller.closing
        assert house.number(CONNECTIONS) == 3

    run(scenario())


def test_a_flood_of_refusals_is_not_a_flood_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        house = await MemoryServer(ServerSettings(max_connections=0)).start(handlers(METADATA=say_metadata))
        for _ in range(100):
            house.connect()
        await asyncio.sleep(2)
        house.connect()
        await settle()

    run(scenario())
    messages = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert len(messages) == 2
    assert "99 more" in messages[1]


def test_connections_above_the_rate_are_heard_when_their_turn_comes() -> None:
    async def scenario() -> None:
        house = await MemoryServer(ServerSettings(max_connection_creation_rate=10)).start(
            handlers(METADATA=say_metadata)
        )
        wires = [house.connect(f"10.0.0.{n}") for n in range(20)]
        for wire in wires:
            wire.send(metadata(1))
        await settle()
        assert [len(wire.frames()) for wire in wires] == [1] * 10 + [0] * 10
        await asyncio.sleep(0.55)
        assert [len(wire.frames()) for wire in wires] == [1] * 15 + [0] * 5
        await asyncio.sleep(0.5)
        assert [len(wire.frames()) for wire in wires] == [1] * 20

    run(scenario())


def test_stopping_answers_what_is_in_work_and_closes_the_rest_at_once() -> None:
    async def scenario() -> None:
        async def replicate(call: Call, request: Any) -> ProduceResponse:
            call.park()
            await asyncio.sleep(0.2)
            return ProduceResponse()

        async def poll(call: Call, request: Any) -> FetchResponse:
            call.park()
            await asyncio.sleep(30)
            return FetchResponse()

        house = await MemoryServer().start(handlers(PRODUCE=replicate, FETCH=poll, METADATA=say_metadata))
        producer, consumer, idle = house.connect(), house.connect(), house.connect()
        producer.send(produce(1) + produce(2) + metadata(3))
        consumer.send(fetch(1))
        await settle()
        stopping = asyncio.ensure_future(house.server.stop(5_000))
        await settle()
        assert 1 not in house.network.factories, "nobody can connect any more"
        assert idle.lost
        assert consumer.lost
        assert not producer.closing
        await stopping
        assert asyncio.get_running_loop().time() < 1
        assert producer.lost
        assert producer.correlations() == [1, 2], "the request that had not begun is not answered"
        assert len(asyncio.all_tasks()) == 1

    run(scenario())


def test_what_takes_longer_than_the_drain_is_cut() -> None:
    async def scenario() -> None:
        ended: list[str] = []

        async def never(call: Call, request: Any) -> ProduceResponse:
            try:
                await asyncio.sleep(10_000)
            finally:
                ended.append("cancelled")
            return ProduceResponse()

        house = await MemoryServer().start(handlers(PRODUCE=never))
        wire = house.connect()
        wire.send(produce(1))
        await house.server.stop(3_000)
        assert 3 <= asyncio.get_running_loop().time() < 4
        assert ended == ["cancelled"]
        await settle()
        assert wire.lost

    run(scenario())


def test_a_client_that_does_not_read_is_cut_when_the_drain_is_over() -> None:
    async def scenario() -> None:
        async def answer(call: Call, request: Any) -> Any:
            response = await say_metadata(call, request)
            response.cluster_id = "x" * 30_000
            return response

        house = await MemoryServer().start(handlers(METADATA=answer))
        wire = house.connect()
        wire.reading = False
        wire.send(metadata(1))
        await house.server.stop(2_000)
        await settle()
        assert wire.lost

    run(scenario())


def test_an_answer_that_is_still_being_read_is_finished_before_the_server_stops() -> None:
    async def scenario() -> None:
        async def answer(call: Call, request: Any) -> Any:
            response = await say_metadata(call, request)
            response.cluster_id = "x" * 30_000
            return response

        house = await MemoryServer().start(handlers(METADATA=answer))
        wire = house.connect()
        wire.reading = False
        wire.send(b"".join(metadata(n) for n in range(5)))
        await settle()
        stopping = asyncio.ensure_future(house.server.stop(60_000))
        await asyncio.sleep(1)
        assert not stopping.done()
        wire.read_everything()
        await stopping
        assert wire.correlations() == [0, 1, 2, 3, 4]

    run(scenario())


def test_a_listener_that_cannot_listen_closes_the_others_again() -> None:
    async def scenario() -> None:
        house = MemoryServer()

        async def refuse(*_: Any, **__: Any) -> Any:
            raise OSError(98, "Address already in use")

        listen = house.network.listen

        async def listen_once(host: str, port: int, factory: Any, backlog: int = 50) -> Any:
            return await (listen if port == 1 else refuse)(host, port, factory, backlog)

        house.network.listen = listen_once  # type: ignore[method-assign]
        with pytest.raises(OSError, match="in use"):
            await house.start(handlers(METADATA=say_metadata))
        assert house.network.factories == {}

    run(scenario())


def test_the_longest_step_of_the_event_loop_is_a_metric() -> None:
    async def scenario() -> None:
        house = await MemoryServer().start(handlers(METADATA=say_metadata))
        before = house.number("strandline.runtime:type=EventLoop,name=LongestStepMs")
        house.server.lag.steps.record(9_000_000, house.server.lag.begin() // 1_000_000)
        assert before < 9_000 == house.number("strandline.runtime:type=EventLoop,name=LongestStepMs")

    run(scenario())
