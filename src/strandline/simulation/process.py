"""One run of a program on a simulated machine, from its start to its end.

The process is stored in a context variable that its tasks, timers and callbacks inherit, so the loop knows the process
of every event: events of an ended process are dropped, those of a paused process are kept until it resumes. No code of
a killed process runs again, not even a `finally`.

A process's clock, and with it all its timers, may run faster or slower than those of other processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class ProcessEnded(BaseException):
    """Unwinds the step in which a process ended. Not an Exception, so that no `except` of the program catches it."""


class Process:
    def __init__(self, name: str, *, clock_rate: float = 1.0, started_us: int = 0) -> None:
        self.name = name
        self.alive = True
        self.paused = False
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
        """Calls `function` as this process: what it schedules belongs to the process."""
        return self.context.copy().run(function, *arguments)

    def end(self) -> None:
        """Ends the process at once, as by kill -9. The network and offloaded work are notified through `when_ended`."""
        if self.alive:
            self.alive = False
            for callback in self._at_end:
                callback()

    def when_ended(self, callback: Callable[[], None]) -> None:
        self._at_end.append(callback)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Holds a reference to the task, so that the garbage collector never runs the `finally` of an ended process."""
        self._tasks.append(task)
        if len(self._tasks) >= self._purge_at:
            self._tasks = [kept for kept in self._tasks if not kept.done() or _is_unretrieved(kept)]
            self._purge_at = max(64, 2 * len(self._tasks))

    def unretrieved_errors(self) -> list[tuple[str, BaseException]]:
        """The errors of failed tasks whose result was never retrieved."""
        failed = [task for task in self._tasks if task.done() and _is_unretrieved(task)]
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
    """The running process; None for the simulation itself, which never ends and whose clock does not drift."""
    return _CURRENT.get()


def process_of(context: Context) -> Process | None:
    return context.get(_CURRENT)


def _is_unretrieved(task: asyncio.Task[Any]) -> bool:
    """asyncio's own flag for "exception was never retrieved", which it would log only when the task is collected."""
    return bool(task._log_traceback)
