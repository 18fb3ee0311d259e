"""Faults of the simulated network: killed processes, and links that are blocked, slow or one-way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from strandline.simulation.world import Simulation
from unit.simulation.recording_protocols import RecordingProtocol, Server, connect


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with Simulation(seed=1) as simulation:
        yield simulation


def test_a_killed_process_loses_its_connections_and_its_port(simulation: Simulation) -> None:
    async def scenario() -> None:
        server = simulation.machine("server")
        server.boot(Server().run)
        client = await connect(simulation, simulation.machine("client"))
        server.kill()
        await client.lost
        with pytest.raises(ConnectionRefusedError):
            await connect(simulation, simulation.machine("other"))

    simulation.run(scenario())


def test_a_machine_without_power_does_not_respond_and_resets_old_connections_after_boot(simulation: Simulation) -> None:
    async def scenario() -> None:
        server = simulation.machine("server")
        server.boot(Server().run)
        client = await connect(simulation, simulation.machine("client"))
        server.lose_power()
        client.transport.write(b"hello?")
        await asyncio.sleep(60)
        assert not client.lost.done()
        with pytest.raises(TimeoutError):
            await connect(simulation, simulation.machine("other"))
        assert not client.lost.done()
        server.boot(Server().run)
        assert isinstance(await client.lost, ConnectionResetError)
        await connect(simulation, simulation.machine("third"))

    simulation.run(scenario())


def test_a_partition_delays_bytes_without_losing_them(simulation: Simulation) -> None:
    async def scenario() -> None:
        server = Server()
        simulation.machine("server").boot(server.run)
        client = await connect(simulation, simulation.machine("client"))
        simulation.fabric.partition(("server",), ("client",))
        for number in range(10):
            client.transport.write(bytes([number]))
            await asyncio.sleep(1)
        assert server.protocols[0].data == b""
        simulation.fabric.heal()
        await asyncio.sleep(1)
        assert client.data == bytes(range(10))

    simulation.run(scenario())


def test_a_link_can_be_blocked_in_one_direction(simulation: Simulation) -> None:
    async def scenario() -> None:
        server = Server()
        simulation.machine("server").boot(server.run)
        client = await connect(simulation, simulation.machine("client"))
        simulation.fabric.block("server", "client")
        client.transport.write(b"one way")
        await asyncio.sleep(10)
        assert server.protocols[0].data == b"one way"
        assert client.data == b""

    simulation.run(scenario())


def test_stalled_bytes_of_a_killed_process_arrive_after_those_of_its_successor(simulation: Simulation) -> None:
    server, client = Server(RecordingProtocol), simulation.machine("client")

    async def scenario() -> None:
        simulation.machine("server").boot(server.run)
        await asyncio.sleep(1)
        first = await connect(simulation, client)
        simulation.fabric.stall("client", "server")
        first.transport.write(b"first process")
        await asyncio.sleep(1)
        client.kill()
        second = await connect(simulation, client)
        second.transport.write(b"second process")
        await asyncio.sleep(1)
        assert [bytes(each.data) for each in server.protocols] == [b"", b"second process"]
        assert not server.protocols[0].lost.done()
        simulation.fabric.unstall("client", "server")
        await asyncio.sleep(1)
        assert bytes(server.protocols[0].data) == b"first process"
        assert server.protocols[0].lost.done()
        assert not server.protocols[1].lost.done()

    simulation.run(scenario())


def test_broken_connections_are_reset_at_both_ends(simulation: Simulation) -> None:
    server = Server(RecordingProtocol)

    async def scenario() -> None:
        simulation.machine("server").boot(server.run)
        await asyncio.sleep(1)
        client = await connect(simulation, simulation.machine("client"))
        other = await connect(simulation, simulation.machine("other"))
        simulation.fabric.break_connections("server", "client")
        await asyncio.sleep(1)
        assert isinstance(client.lost.result(), ConnectionResetError)
        assert isinstance(server.protocols[0].lost.result(), ConnectionResetError)
        assert not other.lost.done()

    simulation.run(scenario())


def test_connecting_through_a_partition_succeeds_once_it_heals(simulation: Simulation) -> None:
    async def scenario() -> float:
        simulation.machine("server").boot(Server().run)
        client = simulation.machine("client")
        simulation.fabric.partition(("server",), ("client",))
        simulation.loop.call_later(5, simulation.fabric.heal)
        await connect(simulation, client)
        return simulation.loop.time()

    assert 7 <= simulation.run(scenario()) < 8


def test_a_paused_process_reads_bytes_received_meanwhile_when_it_resumes(simulation: Simulation) -> None:
    async def scenario() -> None:
        server, machine = Server(), simulation.machine("server")
        machine.boot(server.run)
        client = await connect(simulation, simulation.machine("client"))
        machine.pause()
        client.transport.write(b"still there?")
        await asyncio.sleep(100)
        assert client.data == b""
        machine.resume()
        await asyncio.sleep(1)
        assert client.data == b"still there?"

    simulation.run(scenario())


def test_a_socket_paused_for_reading_notices_a_reset_when_it_reads_again(simulation: Simulation) -> None:
    async def scenario() -> None:
        server = Server(RecordingProtocol)
        simulation.machine("server").boot(server.run)
        client = simulation.machine("client")
        await connect(simulation, client)
        other = server.protocols[0]
        other.transport.pause_reading()
        client.kill()
        await asyncio.sleep(10)
        assert not other.lost.done()
        other.transport.resume_reading()
        await other.lost

    simulation.run(scenario())


def test_a_lag_applies_to_one_direction_until_the_network_heals(simulation: Simulation) -> None:
    async def scenario() -> list[float]:
        simulation.machine("server").boot(Server().run)
        client = await connect(simulation, simulation.machine("client"))

        async def echo() -> float:
            began = simulation.loop.time()
            already = len(client.data)
            client.transport.write(b"x")
            while len(client.data) == already:
                await asyncio.sleep(0.001)
            return simulation.loop.time() - began

        usual = await echo()
        simulation.fabric.lags_us["client", "server"] = 3_000_000
        lagging = max([await echo() for _ in range(5)])
        simulation.fabric.heal()
        return [usual, lagging, await echo()]

    usual, lagging, healed = simulation.run(scenario())
    assert usual < 0.01
    assert 1 < lagging < 3.1
    assert healed < 0.01
