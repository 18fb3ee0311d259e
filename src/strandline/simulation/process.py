"""One run of a program on a simulated machine, from its start to its end.

Everything a process schedules carries it along in its context (tasks, timers and callbacks inherit it), so that the
loop can tell whose event it is about to run: the events of a process that has ended are dropped, those of a paused one
wait. Nothing of a killed process runs again, not even a `finally`.

A process has a clock that may run faster or slower than the others', and all its timers with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from strandline.simulation.loop import Event

T = TypeVar("T")


class ProcessEnded(BaseException):
    """Unwinds the step in which a process met its end. Not an Exception: no handler of the program is to see it."""


class Process:
    def __init__(self, name: str, *, clock_rate: float = 1.0, started_us: int = 0) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.waiting: list[Event] = []  # what came due while paused
        self._tasks: list[asyncio.Task[Any]] = []
        self._purge_at = 64
        self._rate = clock_rate
        self._started_us = started_us
        self._at_end: list[Callable[[], None]] = []
        self.context: Context = copy_context()
        self.context.run(_CURRENT.set, self)

    def __repr__(self) -> str:
        return f"Process({self.name!r}{'' if self.alive else ', ended'}{', paused' if self.paused else ''})"

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Calls as this process: what the function schedules is the process's own."""
        return self.context.copy().run(function, *arguments)

    def end(self) -> None:
        """From one instant to the next, as by kill -9. The network and the disk learn of it through `when_ended`."""
        if self.alive:
            self.alive = False
            self.waiting.clear()
            for tell in self._at_end:
                tell()

    def when_ended(self, tell: Callable[[], None]) -> None:
        self._at_end.append(tell)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Tasks are held here, so that those of an ended process are not swept away, clean-up running, at any time."""
        self._tasks.append(task)
        if len(self._tasks) >= self._purge_at:
            self._tasks = [kept for kept in self._tasks if not kept.done() or _unseen(kept)]
            self._purge_at = max(64, 2 * len(self._tasks))

    def unseen_errors(self) -> list[tuple[str, BaseException]]:
        """Of tasks that failed and whose result nobody asked for."""
        failed = [task for task in self._tasks if task.done() and _unseen(task)]
        return [(task.get_name(), error) for task in failed if (error := task.exception()) is not None]

    def pending_tasks(self) -> list[asyncio.Task[Any]]:
        return [task for task in self._tasks if not task.done()]

    def local_us(self, global_us: int) -> int:
        if self._rate == 1.0:
            return global_us
        return self._started_us + round((global_us - self._started_us) * self._rate)

    def global_us(self, local_us: int) -> int:
        if self._rate == 1.0:
            return local_us
        return self._started_us + round((local_us - self._started_us) / self._rate)


_CURRENT: ContextVar[Process | None] = ContextVar("strandline_process", default=None)


def current_process() -> Process | None:
    """None for the simulation itself, which neither dies nor drifts."""
    return _CURRENT.get()


def process_of(context: Context) -> Process | None:
    return context.get(_CURRENT)


def _unseen(task: asyncio.Task[Any]) -> bool:
    """asyncio's own mark for "exception was never retrieved"; it would only speak up when the task is collected."""
    return bool(task._log_traceback)
