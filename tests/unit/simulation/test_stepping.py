"""Stepped offload work: other events, kills and power losses can happen between its disk operations."""

from __future__ import annotations

import asyncio
import threading

import pytest

from strandline.runtime.disk import write_atomically
from strandline.runtime.world import World
from strandline.simulation.disk import SimDisk
from strandline.simulation.world import Machine, Simulation


def write_three(world: World) -> str:
    for name in "abc":
        file = world.disk.open(f"/{name}", create=True)
        file.write_at(0, name.encode())
        file.close()
    return "written"


def found(machine: Machine) -> list[str]:
    return SimDisk(machine.volume).list("/")


def test_the_loop_sees_stepped_work_half_done() -> None:
    async def program(world: World) -> tuple[set[int], str]:
        seen = set()
        work = asyncio.ensure_future(world.offload.run(write_three, world))
        while not work.done():
            seen.add(len(world.disk.list("/")))
            await asyncio.sleep(0.000_02)
        return seen, await work

    with Simulation(seed=1) as simulation:
        machine = simulation.machine("node", stepped_chance=1.0)

        async def scenario() -> tuple[set[int], str]:
            return await machine.boot(program)

        assert simulation.run(scenario()) == ({0, 1, 2, 3}, "written")


def test_an_error_of_stepped_work_is_raised_in_the_caller() -> None:
    def fail(world: World) -> None:
        write_three(world)
        raise ZeroDivisionError

    async def program(world: World) -> None:
        with pytest.raises(ZeroDivisionError):
            await world.offload.run(fail, world)

    with Simulation(seed=1) as simulation:
        machine = simulation.machine("node", stepped_chance=1.0)

        async def scenario() -> None:
            await machine.boot(program)

        simulation.run(scenario())


def test_a_kill_in_the_middle_of_stepped_work_stops_it_for_good() -> None:
    ends = set()
    for seed in range(30):
        with Simulation(seed) as simulation:
            machine = simulation.machine("node", stepped_chance=1.0)

            async def program(world: World) -> None:
                def write() -> None:
                    try:
                        write_three(world)
                    finally:
                        write_atomically(world.disk, "/clean-up", b"")

                await world.offload.run(write)

            async def scenario(seed: int = seed, machine: Machine = machine) -> None:
                machine.boot(program)
                await asyncio.sleep(seed * 0.000_03)
                machine.kill()
                left = found(machine)
                await asyncio.sleep(1)
                assert found(machine) == left
                ends.add("".join(left))

            simulation.run(scenario())
    assert {"", "a", "ab", "abc"} <= ends


def test_power_can_be_lost_at_a_disk_operation_of_stepped_work() -> None:
    with Simulation(seed=3) as simulation:
        machine = simulation.machine("node", stepped_chance=1.0)

        async def program(world: World) -> None:
            await world.offload.run(write_three, world)

        async def scenario() -> None:
            machine.boot(program)
            machine.disk.lose_power_at = 3
            await asyncio.sleep(1)
            assert machine.process is not None
            assert not machine.process.alive

        simulation.run(scenario())


def test_closing_the_simulation_abandons_paused_work() -> None:
    with Simulation(seed=3) as simulation:
        machine = simulation.machine("node", stepped_chance=1.0)

        async def program(world: World) -> None:
            await world.offload.run(write_three, world)

        async def scenario() -> None:
            machine.boot(program)
            await asyncio.sleep(0.000_4)

        simulation.run(scenario())
    assert len(found(machine)) < 3


def digest(seed: int) -> str:
    with Simulation(seed) as simulation:

        async def program(world: World) -> None:
            await asyncio.gather(*(world.offload.run(write_three, world) for _ in range(5)))

        async def scenario() -> None:
            await simulation.machine("node", stepped_chance=0.7).boot(program)

        simulation.run(scenario())
        return simulation.trace.digest()


def test_the_order_of_steps_depends_on_the_seed() -> None:
    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


def test_threads_of_one_process_sharing_a_lock_do_not_deadlock() -> None:
    lock = threading.Lock()

    def write(world: World) -> None:
        with lock:
            write_three(world)

    async def program(world: World) -> None:
        assert world.metadata_offload is not None
        offloads = (world.offload, world.metadata_offload)
        await asyncio.gather(*(offloads[number % 2].run(write, world) for number in range(10)))

    for seed in range(5):
        with Simulation(seed) as simulation:
            machine = simulation.machine("node", stepped_chance=0.5)

            async def scenario(machine: Machine = machine) -> None:
                await machine.boot(program)

            simulation.run(scenario())
            assert found(machine) == ["a", "b", "c"]
