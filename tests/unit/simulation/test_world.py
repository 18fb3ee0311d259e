"""Machines, boots, clocks and offloaded work; a run depends on nothing but its seed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.runtime.world import World
from strandline.simulation.disk import PowerLoss, SimDisk
from strandline.simulation.journal import Journal
from strandline.simulation.volume import UnsyncedChanges, Volume
from strandline.simulation.world import Simulation, UnhandledErrors


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with Simulation(seed=1) as simulation:
        yield simulation


async def forever(world: World) -> None:
    await asyncio.get_running_loop().create_future()


def test_a_program_reads_the_clocks_of_its_machine(simulation: Simulation) -> None:
    async def program(world: World) -> tuple[int, int]:
        began = world.clock.now_ms(), world.clock.wall_ms()
        await asyncio.sleep(10)
        return world.clock.now_ms() - began[0], world.clock.wall_ms() - began[1]

    async def scenario() -> list[tuple[int, int]]:
        exact = simulation.machine("exact").boot(program)
        fast = simulation.machine("fast", clock_rate=1.5).boot(program)
        return [await exact, await fast]

    assert simulation.run(scenario()) == [(10_000, 10_000), (10_000, 10_000)]
    assert simulation.loop.now_us == 10_000_000


def test_setting_the_wall_clock_does_not_change_the_monotonic_clock(simulation: Simulation) -> None:
    async def scenario() -> None:
        machine = simulation.machine("node", wall_skew_ms=-5_000)
        other = simulation.machine("other")
        machine.boot(forever)
        other.boot(forever)
        await asyncio.sleep(1)
        assert machine.clock.wall_ms() == other.clock.wall_ms() - 5_000
        assert machine.clock.now_ms() == other.clock.now_ms()
        machine.clock.wall_skew_ms += 60_000
        assert machine.clock.wall_ms() == other.clock.wall_ms() + 55_000
        assert machine.clock.now_ms() == other.clock.now_ms()

    simulation.run(scenario())


def test_offloaded_work_completes_in_any_order_and_raises_its_errors_in_the_caller(simulation: Simulation) -> None:
    async def program(world: World) -> tuple[list[int], list[int]]:
        done: list[int] = []
        results: list[int] = []

        async def one(number: int) -> None:
            results.append(await world.offload.run(lambda: done.append(number) or number))  # type: ignore[func-returns-value]

        await asyncio.gather(*[one(number) for number in range(50)])
        with pytest.raises(ZeroDivisionError):
            await world.offload.run(lambda: 1 // 0)
        return done, results

    async def scenario() -> tuple[list[int], list[int]]:
        return await simulation.machine("node").boot(program)

    done, results = simulation.run(scenario())
    assert sorted(done) == sorted(results) == list(range(50))
    assert done != list(range(50))
    assert results != done


def test_cancelled_offloaded_work_runs_completely_or_not_at_all(simulation: Simulation) -> None:
    async def program(world: World) -> list[int]:
        done: list[int] = []
        tasks = [asyncio.ensure_future(world.offload.run(done.append, number)) for number in range(40)]
        await asyncio.sleep(0.000_5)
        for task in tasks:
            task.cancel()
        await asyncio.sleep(1)
        world.offload.close()
        with pytest.raises(RuntimeError, match="after close"):
            await world.offload.run(int)
        return done

    async def scenario() -> list[int]:
        return await simulation.machine("node").boot(program)

    assert 0 < len(simulation.run(scenario())) < 40


def test_a_power_loss_in_offloaded_work_ends_only_its_own_process(simulation: Simulation) -> None:
    events: list[str] = []

    async def program(world: World) -> None:
        file = world.disk.open("/a", create=True)
        world.disk.sync_dir("/")
        try:
            file.write_at(0, b"x")
            await world.offload.run(file.sync)
            events.append("synced")
        finally:
            events.append("cleaned up")

    async def scenario() -> None:
        machine = simulation.machine("node")
        task = machine.boot(program)
        await asyncio.sleep(0)
        machine.disk.lose_power_at = 3
        await asyncio.sleep(10)
        assert not task.done()
        assert events == []
        assert machine.boots == 1
        await machine.boot(program)
        assert events == ["synced", "cleaned up"]

    simulation.run(scenario())


def test_a_kill_keeps_the_page_cache_and_a_power_loss_does_not(simulation: Simulation) -> None:
    async def write(world: World) -> None:
        file = world.disk.open("/a", create=True)
        world.disk.sync_dir("/")
        file.write_at(0, b"cached")
        await forever(world)

    async def scenario() -> tuple[bytes, bytes]:
        machine = simulation.machine("node")
        machine.boot(write)
        await asyncio.sleep(1)
        machine.kill()
        machine.boot(forever)
        await asyncio.sleep(1)
        killed = machine.disk.read("/a")
        machine.kill()
        machine.volume = machine.volume.after_power_loss(simulation.random("loss"), UnsyncedChanges.LOST)
        machine.boot(forever)
        await asyncio.sleep(1)
        return killed, machine.disk.read("/a")

    assert simulation.run(scenario()) == (b"cached", b"")


def test_a_power_loss_in_the_run_and_one_replayed_from_the_journal_leave_the_same_volume() -> None:
    async def program(world: World) -> None:
        for number in range(20):
            file = world.disk.open(f"/{number % 3}", create=True)
            file.write_at(number * 700, bytes([number]) * 900)
            if number % 4 == 0:
                await world.offload.run(file.sync)
            if number % 7 == 0:
                world.disk.sync_dir("/")

    def run(lose_power_at: int | None) -> tuple[Journal, Volume]:
        journal = Journal()
        with Simulation(seed=3) as simulation:

            async def scenario() -> None:
                machine.boot(program)
                await asyncio.sleep(0)
                machine.disk.lose_power_at = lose_power_at
                await asyncio.sleep(10)

            machine = simulation.machine("node", journal=journal)
            simulation.run(scenario())
            return journal, machine.volume

    def contents(volume: Volume) -> dict[str, bytes]:
        disk = SimDisk(volume)
        return {name: disk.read(f"/{name}") for name in disk.list("/")}

    journal, _ = run(None)
    for at in range(5, len(journal.operations)):
        shortened, in_the_run = run(at)
        assert shortened.operations == journal.operations[:at]
        volume = Volume()
        for moment in journal.replay(volume):
            if moment == at:
                break
        replayed = volume.after_power_loss(Simulation(seed=3).random("node/power loss 1"))
        assert contents(in_the_run) == contents(replayed)


def test_an_ended_process_cannot_access_its_disk(simulation: Simulation) -> None:
    async def scenario() -> None:
        machine = simulation.machine("node")
        machine.boot(forever)
        await asyncio.sleep(1)
        old = machine.disk
        machine.kill()
        machine.boot(forever)
        await asyncio.sleep(1)
        with pytest.raises(PowerLoss):
            old.open("/late", create=True)
        assert not machine.disk.exists("/late")

    simulation.run(scenario())


def test_an_unhandled_error_of_a_program_fails_the_simulation(simulation: Simulation) -> None:
    async def broken(world: World) -> None:
        raise ValueError("at boot")

    async def scenario() -> None:
        simulation.machine("node").boot(broken)
        await asyncio.sleep(1)

    with pytest.raises(UnhandledErrors, match="at boot"):
        simulation.run(scenario())


def test_a_failure_is_annotated_with_its_seed_and_the_last_events() -> None:
    async def scenario(simulation: Simulation) -> None:
        simulation.machine("node").boot(forever)
        await asyncio.sleep(1)
        raise ValueError("found something")

    with pytest.raises(ValueError, match="found something") as caught, Simulation(seed=77) as simulation:
        simulation.run(scenario(simulation))
    assert "seed 77" in caught.value.__notes__[-1]
    assert "node#1 starts" in caught.value.__notes__[-1]


_PROGRAM = """
import asyncio, sys
from strandline.simulation.world import Simulation
from strandline.simulation.network import Weather

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(data)

class Client(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.got = transport, 0
    def data_received(self, data):
        self.got += len(data)

async def server(world):
    file = world.disk.open("/log", create=True)
    await world.network.listen("", 9092, Echo)
    names = {f"topic-{n}" for n in range(20)}
    for n in range(50):
        file.write_at(n * 10, b"0123456789")
        await world.offload.run(file.sync)
        await asyncio.sleep(world.random.random())
        if len(sys.argv) > 2:
            for name in names:
                world.disk.open("/" + name, create=True)

async def client(world):
    protocol = Client()
    await world.network.connect("server", 9092, lambda: protocol)
    for n in range(100):
        protocol.transport.write(bytes(n))
        await asyncio.sleep(0.01)
    while protocol.got < 4950:
        await asyncio.sleep(1)

async def scenario():
    machine = simulation.machine("server")
    machine.boot(server)
    await asyncio.sleep(0.1)
    await simulation.machine("client").boot(client)
    machine.lose_power()
    await asyncio.sleep(1)

with Simulation(int(sys.argv[1]), Weather(split_chance=0.5, slow_chance=0.1)) as simulation:
    simulation.run(scenario())
    print(simulation.trace.digest(), simulation.loop.steps)
"""


def run_elsewhere(hash_seed: str, *arguments: str) -> str:
    source = str(Path(__file__).parents[3] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_trace_depends_on_the_seed_and_not_on_the_process() -> None:
    first, second, other = run_elsewhere("1", "5"), run_elsewhere("2", "5"), run_elsewhere("1", "6")
    assert first == second
    assert first != other


def test_a_program_that_iterates_over_a_set_is_not_deterministic() -> None:
    assert run_elsewhere("1", "5", "careless") != run_elsewhere("2", "5", "careless")
