"""The simulated network without faults: order, back-pressure, end-of-file, names and ports."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.runtime.world import World
from strandline.simulation.network import Weather
from strandline.simulation.world import Simulation
from unit.simulation.recording_protocols import BufferedEcho, Echo, RecordingProtocol, Server, connect


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with Simulation(seed=1) as simulation:
        yield simulation


@pytest.mark.parametrize("kind", [Echo, BufferedEcho])
def test_bytes_arrive_in_order_however_they_are_split(simulation: Simulation, kind: Any) -> None:
    sent = simulation.random("bytes").randbytes(300_000)
    simulation.fabric.weather = Weather(split_chance=0.7)

    async def scenario() -> RecordingProtocol:
        simulation.machine("server").boot(Server(kind).run)
        client = await connect(simulation, simulation.machine("client"))
        for start in range(0, len(sent), 10_000):
            client.transport.writelines([sent[start : start + 3], memoryview(sent)[start + 3 : start + 10_000]])
        await asyncio.sleep(60)
        return client

    client = simulation.run(scenario())
    assert bytes(client.data) == sent
    assert client.pieces > 5


def test_delays_are_those_of_the_weather(simulation: Simulation) -> None:
    simulation.fabric.weather = Weather(least_delay_us=1_000_000, most_delay_us=1_000_000, split_chance=0)

    async def scenario() -> bytes:
        simulation.machine("server").boot(Server().run)
        await asyncio.sleep(1)
        client = await connect(simulation, simulation.machine("client"))
        assert simulation.loop.time() == 3.0
        client.transport.write(b"ping")
        await asyncio.sleep(1.9)
        assert client.data == b""
        await asyncio.sleep(0.2)
        return bytes(client.data)

    assert simulation.run(scenario()) == b"ping"


def test_a_peer_that_does_not_read_fills_the_write_buffer_until_it_reads_again(simulation: Simulation) -> None:
    simulation.fabric.weather = Weather(window_bytes=50_000)

    async def scenario() -> None:
        server = Server(RecordingProtocol)
        simulation.machine("server").boot(server.run)
        client = await connect(simulation, simulation.machine("client"))
        client.transport.set_write_buffer_limits(high=20_000)
        other = server.protocols[0]
        other.transport.pause_reading()
        client.transport.write(bytes(60_000))
        assert client.events == []
        assert client.transport.get_write_buffer_size() == 10_000
        client.transport.write(bytes(60_000))
        assert client.events == ["pause"]
        await asyncio.sleep(5)
        assert len(other.data) == 0
        assert client.transport.get_write_buffer_size() == 70_000
        other.transport.resume_reading()
        await asyncio.sleep(5)
        assert len(other.data) == 120_000
        assert client.events == ["pause", "resume"]
        assert client.transport.get_write_buffer_size() == 0

    simulation.run(scenario())


def test_closing_sends_buffered_data_and_then_end_of_file(simulation: Simulation) -> None:
    simulation.fabric.weather = Weather(window_bytes=1_000)

    async def scenario() -> None:
        server = Server(RecordingProtocol)
        simulation.machine("server").boot(server.run)
        client = await connect(simulation, simulation.machine("client"))
        client.transport.write(bytes(100_000))
        client.transport.close()
        assert client.transport.is_closing()
        client.transport.write(b"too late")
        assert await client.lost is None
        assert await server.protocols[0].lost is None
        assert len(server.protocols[0].data) == 100_000
        assert server.protocols[0].events == ["eof"]

    simulation.run(scenario())


def test_half_a_connection_can_be_closed(simulation: Simulation) -> None:
    class Responding(RecordingProtocol):
        def eof_received(self) -> bool:
            self.transport.write(b"all received")
            self.transport.close()
            return True

    async def scenario() -> RecordingProtocol:
        simulation.machine("server").boot(Server(Responding).run)
        client = await connect(simulation, simulation.machine("client"))
        client.transport.write(b"that was all")
        client.transport.write_eof()
        assert await client.lost is None
        return client

    assert bytes(simulation.run(scenario()).data) == b"all received"


def test_writing_to_a_peer_that_has_closed_causes_a_reset(simulation: Simulation) -> None:
    class IgnoringEof(RecordingProtocol):
        def eof_received(self) -> bool:
            return True

    async def scenario() -> Exception | None:
        server = Server(RecordingProtocol)
        simulation.machine("server").boot(server.run)
        client = await connect(simulation, simulation.machine("client"), IgnoringEof())
        server.protocols[0].transport.close()
        await asyncio.sleep(1)
        client.transport.write(b"late")
        return await client.lost

    assert isinstance(simulation.run(scenario()), ConnectionResetError)


def test_an_aborted_connection_ends_at_both_ends_and_may_lose_buffered_data() -> None:
    ends = set()
    for seed in range(20):
        with Simulation(seed) as simulation:

            async def scenario(simulation: Simulation = simulation) -> tuple[Exception | None, Exception | None]:
                server = Server(RecordingProtocol)
                simulation.machine("server").boot(server.run)
                client = await connect(simulation, simulation.machine("client"))
                client.transport.write(bytes(1_000_000))
                client.transport.abort()
                return await client.lost, await server.protocols[0].lost

            mine, theirs = simulation.run(scenario())
            assert mine is None
            ends.add(type(theirs))
    assert ends == {type(None), ConnectionResetError}


def test_resets_happen_in_mid_frame() -> None:
    lengths = set()
    for seed in range(30):
        with Simulation(seed, Weather(split_chance=0)) as simulation:

            async def scenario(simulation: Simulation = simulation) -> int:
                server = Server(RecordingProtocol)
                simulation.machine("server").boot(server.run)
                client = await connect(simulation, simulation.machine("client"))
                simulation.fabric.weather.reset_chance = 1.0
                client.transport.write(b"x" * 1000)
                assert isinstance(await client.lost, ConnectionResetError)
                assert isinstance(await server.protocols[0].lost, ConnectionResetError)
                return len(server.protocols[0].data)

            lengths.add(simulation.run(scenario()))
    assert len(lengths) > 5
    assert max(lengths) < 1000


def test_a_port_without_listener_refuses_and_an_unknown_name_does_not_resolve(simulation: Simulation) -> None:
    async def scenario() -> None:
        simulation.machine("server")
        client = simulation.machine("client")
        with pytest.raises(ConnectionRefusedError):
            await connect(simulation, client)
        with pytest.raises(socket.gaierror):
            await connect(simulation, client, host="nowhere")
        # A full backlog, drawn from the weather, refuses connections too.
        simulation.machine("server").boot(Server().run)
        await asyncio.sleep(1)
        simulation.fabric.weather.refuse_chance = 1.0
        with pytest.raises(ConnectionRefusedError):
            await connect(simulation, client)

    simulation.run(scenario())


def test_a_port_is_exclusive_until_closed_or_until_its_process_ends(simulation: Simulation) -> None:
    async def program(world: World) -> str:
        listener = await world.network.listen("", 9092, RecordingProtocol)
        with pytest.raises(OSError, match="in use"):
            await world.network.listen("localhost", 9092, RecordingProtocol)
        await listener.close()
        listener = await world.network.listen("server", 9092, RecordingProtocol)
        other = await world.network.listen("127.0.0.1", 0, RecordingProtocol)
        assert listener.port == 9092
        assert other.port > 1024
        return "done"

    async def scenario() -> None:
        machine = simulation.machine("server")
        assert await machine.boot(program) == "done"
        assert await machine.boot(program) == "done"

    simulation.run(scenario())


def test_hosts_resolve_by_name_by_address_and_as_localhost(simulation: Simulation) -> None:
    async def program(world: World) -> list[str]:
        protocols: list[RecordingProtocol] = []

        def made() -> RecordingProtocol:
            protocols.append(RecordingProtocol())
            return protocols[-1]

        await world.network.listen("", 9092, made)
        for host in ("localhost", "127.0.0.1", "server", "10.0.0.1"):
            transport = await world.network.connect(host, 9092, RecordingProtocol)
            assert transport.get_extra_info("peername")[1] == 9092
            assert transport.get_extra_info("socket") is None
        return [protocol.transport.get_extra_info("peername")[0] for protocol in protocols]

    async def scenario() -> list[str]:
        return await simulation.machine("server").boot(program)

    assert simulation.run(scenario()) == ["127.0.0.1"] * 4
