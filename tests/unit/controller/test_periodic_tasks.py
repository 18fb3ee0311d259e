"""Alarms that ring in time, duties that come round, and a process that stood still. On virtual time."""

from __future__ import annotations

import asyncio

from strandline.controller.decisions import Decision
from strandline.controller.periodic_tasks import DeadlineTimer, PeriodicTask, PeriodicTasks
from strandline.runtime.world import World
from unit.controller.active_controller import play


class CommitObserver:
    """A clock that can be set apart from the event loop's."""

    def __init__(self, world: World) -> None:
        self._clock = world.clock
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.ahead_ms

    def wall_ms(self) -> int:
        return self._clock.wall_ms()


def test_an_alarm_rings_at_its_deadline_and_again_at_the_next() -> None:
    async def scene(world: World) -> None:
        clock = world.clock
        start_ms = clock.now_ms()
        deadlines = [start_ms + 100, start_ms + 250]
        rung: list[int] = []

        async def ring(now_ms: int) -> None:
            rung.append(now_ms - start_ms)
            deadlines.pop(0)

        alarm = DeadlineTimer(clock, lambda: deadlines[0] if deadlines else None, ring)
        task = asyncio.create_task(alarm.run())
        await asyncio.sleep(1)
        assert rung == [100, 250]
        deadlines.append(clock.now_ms() + 10)
        await asyncio.sleep(1)
        assert rung == [100, 250], "nobody said that there is a new deadline"
        alarm.changed()
        await asyncio.sleep(1)
        assert len(rung) == 3
        task.cancel()

    play(scene)


def test_an_alarm_that_wakes_late_says_so_before_it_rings() -> None:
    async def scene(world: World) -> None:
        watch = CommitObserver(world)
        due_ms = watch.now_ms() + 1000
        heard: list[object] = []

        async def ring(now_ms: int) -> None:
            heard.append("rings")
            await asyncio.sleep(3600)

        task = asyncio.create_task(DeadlineTimer(watch, lambda: due_ms, ring, heard.append).run())
        await asyncio.sleep(0.5)
        watch.ahead_ms = 7000
        await asyncio.sleep(1)
        assert heard == [7000, "rings"]
        task.cancel()

    play(scene)


def test_a_duty_comes_round_and_one_that_has_more_to_do_comes_at_once() -> None:
    async def scene(world: World) -> None:
        clock = world.clock
        done: list[tuple[str, int]] = []
        left = 2

        async def perform(duty: PeriodicTask) -> bool:
            nonlocal left
            await asyncio.sleep(0)
            done.append((duty.name, clock.now_ms() - start_ms))
            if duty.name == "much" and left:
                left -= 1
                return True
            return False

        duties = PeriodicTasks(perform)
        duties.add(PeriodicTask("much", 300, lambda: Decision(False)))
        duties.add(PeriodicTask("little", 500, lambda: Decision(False)))
        duties.add(PeriodicTask("never", 0, lambda: Decision(False)))
        alarm = DeadlineTimer(clock, duties.next_deadline_ms, duties.ring)
        task = asyncio.create_task(alarm.run())
        start_ms = clock.now_ms()
        duties.start(start_ms)
        alarm.changed()
        await asyncio.sleep(0.7)
        assert done == [("much", 300)] * 3 + [("little", 500), ("much", 600)]
        duties.stop()
        await asyncio.sleep(2)
        assert len(done) == 5
        task.cancel()

    play(scene)
