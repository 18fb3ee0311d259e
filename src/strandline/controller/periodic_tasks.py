"""The active controller's periodic tasks, and the timer that runs them.

A task is an interval and a decision, made like any other (`controller.events`). Its response says whether there is more
to do: then the task runs again at once, otherwise after its interval, counted from the activation or the last run.

A `DeadlineTimer` runs the tasks, and whatever else has deadlines (`controller.fencing`). When the process itself was
paused (stopped, swapped out, a laptop asleep) the timer wakes late, and reports the delay before it acts: heartbeats
that arrived during the pause have not been read yet, and their senders must not be fenced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from strandline.controller.decisions import Decision, Steps
from strandline.controller.events import EventQueue
from strandline.controller.settings import ControllerSettings
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.metadata_records import NoOpRecord
from strandline.runtime.clock import Clock

logger = logging.getLogger(__name__)

# An event loop that is merely busy wakes within this time.
_PAUSED_MS: Final = 500


class PeriodicTask(msgspec.Struct, frozen=True):
    name: str
    interval_ms: int
    decide: Callable[[], Decision[bool] | Steps[bool]]
    """The response True: there is more to do."""


class PeriodicTasks:
    """Runs each task when it is due. A task that waits for its commit delays the others."""

    def __init__(self, events: EventQueue, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._tasks: list[PeriodicTask] = []
        self._due_ms: dict[PeriodicTask, int] = {}
        self._timer = DeadlineTimer(clock, self._next_deadline_ms, self._on_deadline)

    def add(self, task: PeriodicTask) -> None:
        """Called before the first activation; a task with an interval of 0 never runs."""
        if task.interval_ms > 0:
            self._tasks.append(task)

    def start(self) -> None:
        now_ms = self._clock.now_ms()
        self._due_ms = {task: now_ms + task.interval_ms for task in self._tasks}
        self._timer.reschedule()

    def stop(self) -> None:
        self._due_ms = {}

    async def run(self) -> None:
        """Ends by cancellation; sleeps while no task is scheduled."""
        await self._timer.run()

    async def perform(self, task: PeriodicTask) -> bool:
        """Makes the task's decision once; returns whether there is more to do."""
        try:
            return await self._events.decide(task.decide)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                logger.warning("the controller's periodic task %r failed: %s", task.name, error)
            return False

    async def perform_all(self, task: PeriodicTask) -> None:
        while await self.perform(task):
            pass

    def _next_deadline_ms(self) -> int | None:
        return min(self._due_ms.values(), default=None)

    async def _on_deadline(self, now_ms: int) -> None:
        for task in [task for task, due_ms in self._due_ms.items() if due_ms <= now_ms]:
            more = await self.perform(task)
            if task in self._due_ms:
                self._due_ms[task] = now_ms if more else now_ms + task.interval_ms


class NoOpTask:
    """Appends a NoOpRecord when the log is idle (`metadata.max.idle.interval.ms`).

    The record shows followers that the log has a leader, and how far they lag. Without followers nothing is written.
    """

    def __init__(self, view: View, settings: ControllerSettings, events: EventQueue, clock: Clock) -> None:
        self._view = view
        self._settings = settings
        self._events = events
        self._clock = clock

    def decide(self) -> Decision[bool]:
        activation = self._events.activation
        if activation is None or not self._has_followers():
            return Decision(False)
        idle_ms = self._clock.now_ms() - activation.last_append_ms
        return Decision(False, [NoOpRecord()] if idle_ms >= self._settings.max_idle_interval_ms else [])

    def _has_followers(self) -> bool:
        view, own_id = self._view, self._settings.node_id
        return any(broker.id != own_id and not broker.fenced for broker in view.brokers()) or any(
            controller.id != own_id for controller in view.controllers()
        )


class DeadlineTimer:
    """Calls `on_deadline` when the next deadline has passed. One timer that waits for a commit delays no other."""

    def __init__(
        self,
        clock: Clock,
        next_deadline_ms: Callable[[], int | None],
        on_deadline: Callable[[int], Awaitable[None]],
        on_paused: Callable[[int], None] | None = None,
    ) -> None:
        """`on_deadline` receives the time, `on_paused` for how many milliseconds the process was paused."""
        self._clock = clock
        self._next_deadline_ms = next_deadline_ms
        self._on_deadline = on_deadline
        self._on_paused = on_paused
        self._rescheduled = asyncio.Event()

    def reschedule(self) -> None:
        """The next deadline may have changed."""
        self._rescheduled.set()

    async def run(self) -> None:
        """Ends by cancellation."""
        while True:
            now_ms = self._clock.now_ms()
            deadline_ms = self._next_deadline_ms()
            if deadline_ms is not None and deadline_ms <= now_ms:
                await self._on_deadline(now_ms)
            else:
                await self._wait(None if deadline_ms is None else deadline_ms - now_ms)

    async def _wait(self, wait_ms: int | None) -> None:
        self._rescheduled.clear()
        if wait_ms is None:
            await self._rescheduled.wait()
            return
        planned_ms = self._clock.now_ms() + wait_ms
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._rescheduled.set)
        try:
            await self._rescheduled.wait()
        finally:
            timer.cancel()
        late_ms = self._clock.now_ms() - planned_ms
        if late_ms >= _PAUSED_MS and self._on_paused is not None:
            self._on_paused(late_ms)
