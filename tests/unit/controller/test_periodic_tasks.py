"""The deadline timer and the periodic tasks, on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from strandline.controller.decisions import Decision
from strandline.controller.periodic_tasks import DeadlineTimer, PeriodicTask, PeriodicTasks
from strandline.runtime.world import World
from unit.controller.active_controller import simulate


class AdjustableClock:
    """A clock that can be set apart from the event loop's."""

    def __init__(self, world: World) -> None:
        self._clock = world.clock
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.ahead_ms

    def wall_ms(self) -> int:
        return self._clock.wall_ms()


def test_a_timer_runs_at_its_deadline_and_again_at_the_next() -> None:
    async def scenario(world: World) -> None:
        clock = world.clock
        start_ms = clock.now_ms()
        deadlines = [start_ms + 100, start_ms + 250]
        called: list[int] = []

        async def on_deadline(now_ms: int) -> None:
            called.append(now_ms - start_ms)
            deadlines.pop(0)

        timer = DeadlineTimer(clock, lambda: deadlines[0] if deadlines else None, on_deadline)
        task = asyncio.create_task(timer.run())
        await asyncio.sleep(1)
        assert called == [100, 250]
        deadlines.append(clock.now_ms() + 10)
        await asyncio.sleep(1)
        assert called == [100, 250], "the timer was not rescheduled"
        timer.reschedule()
        await asyncio.sleep(1)
        assert len(called) == 3
        task.cancel()

    simulate(scenario)


def test_a_timer_that_wakes_late_reports_the_pause_before_it_runs() -> None:
    async def scenario(world: World) -> None:
        clock = AdjustableClock(world)
        deadline_ms = clock.now_ms() + 1000
        called: list[object] = []

        async def on_deadline(now_ms: int) -> None:
            called.append("deadline")
            await asyncio.sleep(3600)

        task = asyncio.create_task(DeadlineTimer(clock, lambda: deadline_ms, on_deadline, called.append).run())
        await asyncio.sleep(0.5)
        clock.ahead_ms = 7000
        await asyncio.sleep(1)
        assert called == [7000, "deadline"]
        task.cancel()

    simulate(scenario)


class ImmediateEvents:
    """An event queue without a log."""

    async def decide(self, decide: Any) -> Any:
        await asyncio.sleep(0)
        return decide().response


def test_a_task_runs_at_its_interval_and_at_once_when_it_has_more_to_do() -> None:
    async def scenario(world: World) -> None:
        clock = world.clock
        done: list[tuple[str, int]] = []
        left = 2

        def task(name: str, interval_ms: int) -> PeriodicTask:
            def decide() -> Decision[bool]:
                nonlocal left
                done.append((name, clock.now_ms() - start_ms))
                more = name == "much" and left > 0
                left -= more
                return Decision(more)

            return PeriodicTask(name, interval_ms, decide)

        tasks = PeriodicTasks(ImmediateEvents(), clock)  # type: ignore[arg-type]
        tasks.add(task("much", 300))
        tasks.add(task("little", 500))
        tasks.add(task("never", 0))
        running = asyncio.create_task(tasks.run())
        start_ms = clock.now_ms()
        tasks.start()
        await asyncio.sleep(0.7)
        assert done == [("much", 300)] * 3 + [("little", 500), ("much", 600)]
        tasks.stop()
        await asyncio.sleep(2)
        assert len(done) == 5
        running.cancel()

    simulate(scenario)
