"""What the active controller does by itself, now and then: `PeriodicTask`s, and the alarms that ring for them.

A duty is an interval and a decision, made like any other (`controller.events`). Its answer says whether there is more
to do: then the next time is at once, otherwise after the interval, counted from the activation or the last time.

An `DeadlineTimer` rings for the duties, and for whatever else has deadlines (brokers whose session ends). It decides
nothing.
When the process itself stood still (stopped, swapped out, a laptop asleep), it wakes late, and says by how much before
anybody is judged: time that we slept through is nobody else's silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from strandline.controller.decisions import Decision, Steps
from strandline.runtime.clock import Clock

# A loop that is merely busy wakes within this time.
_STANDSTILL_MS: Final = 500


class PeriodicTask(msgspec.Struct, frozen=True):
    name: str
    interval_ms: int
    decide: Callable[[], Decision[bool] | Steps[bool]]
    """The answer True: there is more of it."""


class PeriodicTasks:
    """Which duty is due when. `perform` makes a duty's decision and gives its answer."""

    def __init__(self, perform: Callable[[PeriodicTask], Awaitable[bool]]) -> None:
        self._perform = perform
        self._due_ms: dict[PeriodicTask, int] = {}
        self._duties: list[PeriodicTask] = []

    def add(self, duty: PeriodicTask) -> None:
        """Before the first activation; an interval of 0 means never."""
        if duty.interval_ms > 0:
            self._duties.append(duty)

    def start(self, now_ms: int) -> None:
        self._due_ms = {duty: now_ms + duty.interval_ms for duty in self._duties}

    def stop(self) -> None:
        self._due_ms = {}

    def next_deadline_ms(self) -> int | None:
        return min(self._due_ms.values(), default=None)

    async def ring(self, now_ms: int) -> None:
        for duty in [duty for duty, due_ms in self._due_ms.items() if due_ms <= now_ms]:
            more = await self._perform(duty)
            if duty in self._due_ms:
                self._due_ms[duty] = now_ms if more else now_ms + duty.interval_ms


class DeadlineTimer:
    """Rings when a deadline is over, and asks for the next. One that waits for a commit holds up no other."""

    def __init__(
        self,
        clock: Clock,
        next_deadline_ms: Callable[[], int | None],
        ring: Callable[[int], Awaitable[None]],
        on_standstill: Callable[[int], None] | None = None,
    ) -> None:
        """`ring` is told the time and does what is due; `on_standstill`, for how long the process stood still."""
        self._clock = clock
        self._next_deadline_ms = next_deadline_ms
        self._ring = ring
        self._on_standstill = on_standstill
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """The deadline may be another one now."""
        self._changed.set()

    async def run(self) -> None:
        """Ends by cancellation."""
        while True:
            now_ms = self._clock.now_ms()
            deadline_ms = self._next_deadline_ms()
            if deadline_ms is not None and deadline_ms <= now_ms:
                await self._ring(now_ms)
            else:
                await self._wait(None if deadline_ms is None else deadline_ms - now_ms)

    async def _wait(self, wait_ms: int | None) -> None:
        self._changed.clear()
        if wait_ms is None:
            await self._changed.wait()
            return
        planned_ms = self._clock.now_ms() + wait_ms
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()
        late_ms = self._clock.now_ms() - planned_ms
        if late_ms >= _STANDSTILL_MS and self._on_standstill is not None:
            self._on_standstill(late_ms)
