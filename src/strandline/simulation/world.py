"""A simulation: one seed, one loop, machines with disks and clocks, and the network between them.

    simulation = Simulation(seed=7)
    node = simulation.machine("node0")
    node.boot(lambda world: Node(config, world).run())
    simulation.run(scenario(), max_virtual_s=600)

Each boot of a machine is a process with its own `World`, which the program cannot distinguish from the real one. Random
generators are derived from the seed by name, so that one more draw in one place does not change the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

from strandline.runtime.world import World
from strandline.simulation.clock import SimClock
from strandline.simulation.disk import SimDisk
from strandline.simulation.journal import Journal
from strandline.simulation.loop import DEFAULT_MAX_STEPS, VirtualLoop
from strandline.simulation.network import Fabric, SimNetwork, Weather
from strandline.simulation.offload import Gate, SimOffload
from strandline.simulation.process import Process
from strandline.simulation.trace import Trace
from strandline.simulation.volume import Volume

T = TypeVar("T")

Program = Callable[[World], Coroutine[Any, Any, T]]


class UnhandledErrors(Exception):
    """Tasks failed and their results were never retrieved."""


class Simulation:
    def __init__(self, seed: int, weather: Weather | None = None) -> None:
        self.seed = seed
        self.trace = Trace()
        self.loop = VirtualLoop(self.trace)  # type: ignore[abstract]
        self.fabric = Fabric(self.loop, self.random("network"), self.trace, weather)
        self._offloads: list[SimOffload] = []

    def random(self, purpose: str) -> Random:
        return Random(f"{self.seed}/{purpose}")

    def machine(self, name: str, **options: Any) -> Machine:
        return Machine(self, name, **options)

    def run(
        self, scenario: Awaitable[T], *, max_virtual_s: float | None = None, max_steps: int = DEFAULT_MAX_STEPS
    ) -> T:
        """Runs a coroutine that belongs to no machine, concurrently with the machines' programs."""
        result = self.loop.run(scenario, max_virtual_s=max_virtual_s, max_steps=max_steps)
        errors = self.loop.take_unhandled_errors()
        if errors:
            raise UnhandledErrors("\n".join(errors))
        return result

    def offload(self, process: Process, purpose: str, threads: int, gate: Gate, *, stepped_chance: float) -> SimOffload:
        random = self.random(f"{process.name}/{purpose}")
        offload = SimOffload(random, threads, gate, stepped_chance=stepped_chance)
        process.when_ended(offload.abandon)
        self._offloads.append(offload)
        return offload

    def close(self) -> None:
        for offload in self._offloads:
            offload.abandon()
        self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"seed {self.seed}; the last events:\n  " + "\n  ".join(list(self.trace.lines)[-30:]))
        self.close()


class Machine:
    def __init__(
        self,
        simulation: Simulation,
        name: str,
        *,
        volume: Volume | None = None,
        clock_rate: float = 1.0,
        wall_skew_ms: int = 0,
        journal: Journal | None = None,
        stepped_chance: float = 0.0,
    ) -> None:
        """`stepped_chance`: the share of offloaded work that runs step by step (see stepping.py)."""
        self.name = name
        self.volume = volume or Volume()
        self.clock_rate = clock_rate
        self.wall_skew_ms = wall_skew_ms
        self.stepped_chance = stepped_chance
        self.boots = 0
        self.process: Process | None = None
        self.disk: SimDisk
        self.clock: SimClock
        self._simulation = simulation
        self._journal = journal
        self.address = simulation.fabric.add(name)

    def boot(self, program: Program[T]) -> asyncio.Task[T]:
        """Starts the program as a new process on this machine's volume."""
        if self.process is not None and self.process.alive:
            raise RuntimeError(f"{self.name} is running")
        simulation = self._simulation
        self.boots += 1
        process = self.process = Process(
            f"{self.name}#{self.boots}", clock_rate=self.clock_rate, started_us=simulation.loop.now_us
        )
        simulation.loop.register(process)
        simulation.fabric.machine_up(self.name)
        simulation.trace.note(f"{process.name} starts")
        process.when_ended(lambda: simulation.fabric.process_ended(self.name, process))
        task: asyncio.Task[T] = process.call(lambda: simulation.loop.create_task(program(self._world(process))))
        task.add_done_callback(lambda _: self._end("ends") if process.alive else None, context=Context())
        return task

    def kill(self) -> None:
        """Kills the process as by kill -9: the page cache stays, the kernel closes its connections."""
        self._end("killed")

    def lose_power(self, random: Random | None = None) -> None:
        """Unsynced changes may be lost, and peers receive nothing."""
        self._simulation.fabric.machine_down(self.name)
        self._end("loses power")
        self.volume = self.volume.after_power_loss(
            random or self._simulation.random(f"{self.name}/power loss {self.boots}")
        )

    def pause(self) -> None:
        self._running().paused = True
        self._simulation.trace.note(f"{self.name} paused")

    def resume(self) -> None:
        self._simulation.trace.note(f"{self.name} resumed")
        self._simulation.loop.resume(self._running())

    def _running(self) -> Process:
        if self.process is None or not self.process.alive:
            raise RuntimeError(f"{self.name} is not running")
        return self.process

    def _end(self, how: str) -> None:
        process = self._running()
        self._simulation.trace.note(f"{self.name} {how}")
        self.disk.switch_off()
        process.end()

    def _world(self, process: Process) -> World:
        simulation = self._simulation
        self.clock = SimClock(simulation.loop, process, self.wall_skew_ms)
        self.disk = SimDisk(
            self.volume, now_ms=self.clock.wall_ms, trace=simulation.trace, name=self.name, journal=self._journal
        )
        self.disk.when_power_is_lost = self.lose_power
        gate = Gate()
        return World(
            clock=self.clock,
            disk=self.disk,
            network=SimNetwork(simulation.fabric, self.name),
            offload=simulation.offload(process, "offload", 4, gate, stepped_chance=self.stepped_chance),
            random=simulation.random(process.name),
            metadata_offload=simulation.offload(process, "metadata", 2, gate, stepped_chance=self.stepped_chance),
        )
