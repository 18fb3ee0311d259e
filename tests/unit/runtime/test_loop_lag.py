"""Long steps of the loop, timed by their owners and by the timer."""

from __future__ import annotations

import asyncio

from strandline.runtime.loop_lag import TIMER_MS, LoopLag
from strandline.runtime.metrics import Window
from strandline.runtime.tasks import TaskGroup
from strandline.simulation.loop import VirtualLoop


class Jumping:
    """A loop clock that jumps, as it does when a step took long."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._time = loop.time
        self.late_s = 0.0
        loop.time = self.time  # type: ignore[method-assign]

    def time(self) -> float:
        return self._time() + self.late_s


def test_a_timed_step_is_recorded() -> None:
    lag = LoopLag()
    begin = lag.begin() - 25_000_000
    lag.end(begin)
    assert 25 <= lag.longest_ms() < 5_000


def test_short_steps_are_not_recorded() -> None:
    lag = LoopLag()
    for _ in range(100):
        lag.end(lag.begin())
    assert lag.steps.count < 50, "except for those in which the process lost the CPU"


def test_a_late_timer_records_its_delay() -> None:
    loop = VirtualLoop()
    clock = Jumping(loop)
    lag = LoopLag(Window())

    async def scenario() -> None:
        async with TaskGroup() as tasks:
            tasks.start(lag.watch())
            await asyncio.sleep(10 * TIMER_MS / 1000)
            assert lag.steps.count == 0, "a timer in time is not recorded"
            clock.late_s = 0.2
            await asyncio.sleep(10 * TIMER_MS / 1000)
            tasks.cancel()

    loop.run(scenario())
    loop.close()
    assert lag.steps.count == 1
    assert 199 <= lag.longest_ms() <= 201
