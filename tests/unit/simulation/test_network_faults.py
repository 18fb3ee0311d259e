"""The simulated network when it is not well: processes that die, links that are cut, slow or one-way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from strandline.simulation.world import Simulation
from unit.simulation.recording_protocols import Ear, Server, dial


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with Simulation(seed=1) as simulation:
        yield simulation


def test_a_killed_process_ends_its_connections_and_its_port(simulation: Simulation) -> None:
    async def scenario() -> None:
        server = simulation.machine("server")
        server.boot(Server().run)
        ear = await dial(simulation, simulation.machine("client"))
        server.kill()
        await ear.lost
        with pytest.raises(ConnectionRefusedError):
            await dial(simulation, simulation.machine("other"))

    simulation.run(scenario())


def test_a_machine_without_power_is_silent_and_resets_old_connections_once_it_is_back(simulation: Simulation) -> None:
    async def scenario() -> None:
        server = simulation.machine("server")
        server.boot(Server().run)
        ear = await dial(simulation, simulation.machine("client"))
        server.lose_power()
        ear.transport.write(b"hello?")
        await asyncio.sleep(60)
        assert not ear.lost.done()
        with pytest.raises(TimeoutError):
            await dial(simulation, simulation.machine("other"))
        assert not ear.lost.done()
        server.boot(Server().run)
        assert isinstance(await ear.lost, ConnectionResetError)
        await dial(simulation, simulation.machine("third"))

    simulation.run(scenario())


def test_a_partition_delays_bytes_and_nothing_is_lost_when_it_heals(simulation: Simulation) -> None:
    async def scenario() -> None:
        server = Server()
        simulation.machine("server").boot(server.run)
        ear = await dial(simulation, simulation.machine("client"))
        simulation.fabric.partition(("server",), ("client",))
        for number in range(10):
            ear.transport.write(bytes([number]))
            await asyncio.sleep(1)
        assert server.protocols[0].data == b""
        simulation.fabric.heal()
        await asyncio.sleep(1)
        assert ear.data == bytes(range(10))

    simulation.run(scenario())


def test_a_link_can_be_cut_one_way(simulation: Simulation) -> None:
    async def scenario() -> None:
        server = Server()
        simulation.machine("server").boot(server.run)
        ear = await dial(simulation, simulation.machine("client"))
        simulation.fabric.block("server", "client")
        ear.transport.write(b"one way")
        await asyncio.sleep(10)
        assert server.protocols[0].data == b"one way"
        assert ear.data == b""

    simulation.run(scenario())


def test_what_stands_still_arrives_behind_what_was_sent_later_by_somebody_else(simulation: Simulation) -> None:
    server, client = Server(Ear), simulation.machine("client")

    async def scenario() -> None:
        simulation.machine("server").boot(server.run)
        await asyncio.sleep(1)
        first = await dial(simulation, client)
        simulation.fabric.stall("client", "server")
        first.transport.write(b"words of the dead")
        await asyncio.sleep(1)
        client.kill()
        second = await dial(simulation, client)
        second.transport.write(b"words of the living")
        await asyncio.sleep(1)
        assert [bytes(each.data) for each in server.protocols] == [b"", b"words of the living"]
        assert not server.protocols[0].lost.done()
        simulation.fabric.flow("client", "server")
        await asyncio.sleep(1)
        assert bytes(server.protocols[0].data) == b"words of the dead"
        assert server.protocols[0].lost.done()
        assert not server.protocols[1].lost.done()

    simulation.run(scenario())


def test_broken_connections_end_with_an_error_at_both_ends(simulation: Simulation) -> None:
    server = Server(Ear)

    async def scenario() -> None:
        simulation.machine("server").boot(server.run)
        await asyncio.sleep(1)
        ear = await dial(simulation, simulation.machine("client"))
        other = await dial(simulation, simulation.machine("other"))
        simulation.fabric.break_connections("server", "client")
        await asyncio.sleep(1)
        assert isinstance(ear.lost.result(), ConnectionResetError)
        assert isinstance(server.protocols[0].lost.result(), ConnectionResetError)
        assert not other.lost.done()

    simulation.run(scenario())


def test_dialling_through_a_partition_succeeds_once_it_heals(simulation: Simulation) -> None:
    async def scenario() -> float:
        simulation.machine("server").boot(Server().run)
        client = simulation.machine("client")
        simulation.fabric.partition(("server",), ("client",))
        simulation.loop.call_later(5, simulation.fabric.heal)
        await dial(simulation, client)
        return simulation.loop.time()

    assert 7 <= simulation.run(scenario()) < 8


def test_a_paused_process_reads_what_came_meanwhile_when_it_resumes(simulation: Simulation) -> None:
    async def scenario() -> None:
        server, machine = Server(), simulation.machine("server")
        machine.boot(server.run)
        ear = await dial(simulation, simulation.machine("client"))
        machine.pause()
        ear.transport.write(b"still there?")
        await asyncio.sleep(100)
        assert ear.data == b""
        machine.resume()
        await asyncio.sleep(1)
        assert ear.data == b"still there?"

    simulation.run(scenario())


def test_a_socket_paused_for_reading_notices_a_reset_when_it_reads_again(simulation: Simulation) -> None:
    async def scenario() -> None:
        server = Server(Ear)
        simulation.machine("server").boot(server.run)
        client = simulation.machine("client")
        await dial(simulation, client)
        other = server.protocols[0]
        other.transport.pause_reading()
        client.kill()
        await asyncio.sleep(10)
        assert not other.lost.done()
        other.transport.resume_reading()
        await other.lost

    simulation.run(scenario())


def test_a_lag_is_of_one_direction_and_goes_with_healing(simulation: Simulation) -> None:
    async def scenario() -> list[float]:
        simulation.machine("server").boot(Server().run)
        ear = await dial(simulation, simulation.machine("client"))

        async def echo() -> float:
            began = simulation.loop.time()
            already = len(ear.data)
            ear.transport.write(b"x")
            while len(ear.data) == already:
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
