"""Runs the work of an offload thread step by step: everything up to its next disk operation is one event.

A real thread can be preempted between any two system calls: the loop runs, another thread syncs, the power is lost. To
model that, an ordinary function must be suspended in the middle, which in Python only a thread can do. So the work gets
a thread, but never runs concurrently: the loop blocks in `advance` until the work pauses or ends. With one thread
running at a time the outcome remains a function of the seed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from strandline.simulation.process import ProcessEnded

_running = threading.local()
_idle: list[_Thread] = []
os.register_at_fork(after_in_child=_idle.clear)  # a forked process has the list, but not the threads


class Stepped:
    """One function call in steps. Call `advance` until `ended`; then `value` or `error` is set."""

    def __init__(self, work: Callable[..., Any], arguments: tuple[object, ...]) -> None:
        self._work = work
        self._arguments = arguments
        self._context = copy_context()
        self._thread: _Thread | None = None
        self._abandoned = False
        self.ended = False
        self.value: Any = None
        self.error: BaseException | None = None

    def advance(self) -> None:
        """Runs to the next pause or to the end. Raises ProcessEnded when the process ended in this step."""
        if self._thread is None:
            self._thread = _idle.pop() if _idle else _Thread()
            self._thread.start(self)
        else:
            self._thread.resume()
        if self.ended:
            _idle.append(self._thread)
            if isinstance(self.error, ProcessEnded):
                raise self.error

    def abandon(self) -> None:
        """The process has ended: unwinds the rest at once, on a disk that is off, and discards the result."""
        if self._thread is None or not self._paused() or getattr(_running, "job", None) is self:
            return
        self._abandoned = True
        while self._paused():
            self._thread.resume()
        _idle.append(self._thread)

    def _paused(self) -> bool:
        return not self.ended

    def run(self) -> None:
        _running.job = self
        try:
            self.value = self._context.run(self._work, *self._arguments)
        except BaseException as error:
            self.error = error
        finally:
            _running.job = None
            self.ended = True

    def pause(self) -> None:
        assert self._thread is not None
        self._thread.yield_to_loop()
        if self._abandoned:
            raise ProcessEnded


def pause_here() -> None:
    """Called by the disk before each operation: stepped work is suspended here until its next step.

    It may hold locks meanwhile: only threads of its own process share them, and these wait at its gate (offload.py).
    """
    job: Stepped | None = getattr(_running, "job", None)
    if job is not None:
        job.pause()


class _Thread:
    """Alternates with the loop's thread by two locks: each side runs until it waits for its own lock."""

    def __init__(self) -> None:
        self._mine, self._loops = threading.Lock(), threading.Lock()
        self._mine.acquire()
        self._loops.acquire()
        self._job: Stepped | None = None
        threading.Thread(target=self._run, name="stepped", daemon=True).start()

    def start(self, job: Stepped) -> None:
        self._job = job
        self.resume()

    def resume(self) -> None:
        self._mine.release()
        self._loops.acquire()

    def yield_to_loop(self) -> None:
        self._loops.release()
        self._mine.acquire()

    def _run(self) -> None:
        while True:
            self._mine.acquire()
            job, self._job = self._job, None
            assert job is not None
            job.run()
            del job
            self._loops.release()
