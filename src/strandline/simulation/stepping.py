"""Work of an offload thread in pieces: everything up to its next change of the disk is one event, and then it waits.

A real thread is overtaken between any two of its system calls: the loop goes on, another thread syncs, the power goes.
To be so overtaken in a simulation, work that is an ordinary function must be able to stop in its middle, and in Python
only a thread can. So it gets one, but never runs beside anybody: whoever lets it go on waits until it pauses or ends.
With one runner at a time the outcome is a function of the seed, as everywhere else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from strandline.log import partition_log
from strandline.simulation.process import ProcessEnded

SHARED_LOCKS = (partition_log._PUBLISHING,)
_running = threading.local()
_idle: list[_Thread] = []
os.register_at_fork(after_in_child=_idle.clear)  # a forked process has the list, but not the threads


class Stepped:
    """One piece of work. `advance` until `ended`; then `value` or `error` is there."""

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
        """To the next pause or to the end. Raises ProcessEnded when the process met its end in this piece."""
        if self._thread is None:
            self._thread = _idle.pop() if _idle else _Thread()
            self._thread.begin(self)
        else:
            self._thread.go_on()
        if self.ended:
            _idle.append(self._thread)
            if isinstance(self.error, ProcessEnded):
                raise self.error

    def abandon(self) -> None:
        """Its process is gone: what is left of it is unwound at once, on a disk that is off, and tells nobody."""
        if self._thread is None or not self._paused() or getattr(_running, "job", None) is self:
            return
        self._abandoned = True
        while self._paused():
            self._thread.go_on()
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
        self._thread.hand_over()
        if self._abandoned:
            raise ProcessEnded


def pause_here() -> None:
    """Called by the disk before each change: work that runs in pieces waits here for its next turn.

    Not while it holds a lock that the loop, or another node, may want: with one runner at a time nobody would go on.
    (Locks among the threads of one node are no danger: these wait for each other, see offload.py.)
    """
    job: Stepped | None = getattr(_running, "job", None)
    if job is not None and not any(lock.locked() for lock in SHARED_LOCKS):
        job.pause()


class _Thread:
    """Two locks are the baton: who waits for its own cannot run."""

    def __init__(self) -> None:
        self._mine, self._theirs = threading.Lock(), threading.Lock()
        self._mine.acquire()
        self._theirs.acquire()
        self._job: Stepped | None = None
        threading.Thread(target=self._run, name="stepped", daemon=True).start()

    def begin(self, job: Stepped) -> None:
        self._job = job
        self.go_on()

    def go_on(self) -> None:
        self._mine.release()
        self._theirs.acquire()

    def hand_over(self) -> None:
        self._theirs.release()
        self._mine.acquire()

    def _run(self) -> None:
        while True:
            self._mine.acquire()
            job, self._job = self._job, None
            assert job is not None
            job.run()
            del job
            self._theirs.release()
