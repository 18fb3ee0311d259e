"""The offload port as scheduled events: work runs at some instant after its submission, and its result is delivered
some time after that. In between, the loop runs beside effects that it has not been notified of, as with a real thread.

Some of the work (`stepped_chance`) runs in steps, one for each disk operation, with other events in between: a kill or
power loss can then hit the middle of it, and the loop sees it half done (see stepping.py). The process's other threads
wait meanwhile: they might need a lock that the suspended work holds, which would be a deadlock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import msgspec

from strandline.simulation.process import ProcessEnded
from strandline.simulation.stepping import Stepped

T = TypeVar("T")


class Job(msgspec.Struct):
    work: Callable[..., Any]
    arguments: tuple[object, ...]
    result: asyncio.Future[Any]


class Gate:
    """One per process: closed while one of its threads is suspended in the middle of its work."""

    def __init__(self) -> None:
        self.closed = False
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, callback: Callable[[], None]) -> None:
        self._waiting.append(callback)

    def open(self) -> None:
        self.closed = False
        while self._waiting and not self.closed:
            self._waiting.popleft()()


class SimOffload:
    """Runs up to `threads` jobs at a time; each takes a random time, so that they complete in any order."""

    def __init__(
        self,
        random: Random,
        threads: int = 4,
        gate: Gate | None = None,
        *,
        most_us: int = 300,
        slow_chance: float = 0.02,
        stepped_chance: float = 0.0,
    ) -> None:
        self._random = random
        self._free = threads
        self._gate = gate or Gate()
        self._most_us = most_us
        self._slow_chance = slow_chance
        self._stepped_chance = stepped_chance
        self._queue: deque[Job] = deque()
        self._stepped: dict[Stepped, None] = {}
        self._closed = False

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        if self._closed:
            raise RuntimeError("cannot schedule new work after close")
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append(Job(work, arguments, result))
        self._start_next()
        return await result

    def close(self) -> None:
        """Cancels the jobs that have not started."""
        self._closed = True
        while self._queue:
            self._queue.popleft().result.cancel()

    def abandon(self) -> None:
        """The process has ended: suspended work is not continued."""
        stepped, self._stepped = self._stepped, {}
        for each in stepped:
            each.abandon()

    def _start_next(self) -> None:
        while self._free and self._queue:
            self._free -= 1
            job = self._queue.popleft()
            asyncio.get_running_loop().call_later(self._duration_s(), self._perform, job)

    def _perform(self, job: Job) -> None:
        if self._gate.closed:
            self._gate.wait(lambda: self._perform(job))
            return
        if not job.result.done() and self._stepped_chance and self._random.random() < self._stepped_chance:
            stepped = Stepped(job.work, job.arguments)
            self._gate.closed = True
            self._stepped[stepped] = None
            self._advance(job, stepped)
            return
        error: BaseException | None = None
        value = None
        if not job.result.done():
            try:
                value = job.work(*job.arguments)
            except ProcessEnded:
                raise
            except BaseException as raised:
                error = raised
        self._complete_later(job, value, error)

    def _advance(self, job: Job, stepped: Stepped) -> None:
        stepped.advance()
        if stepped.ended:
            self._stepped.pop(stepped, None)
            self._complete_later(job, stepped.value, stepped.error)
            self._gate.open()
        else:
            asyncio.get_running_loop().call_later(self._duration_s(), self._advance, job, stepped)

    def _complete_later(self, job: Job, value: Any, error: BaseException | None) -> None:
        asyncio.get_running_loop().call_later(self._duration_s(), self._complete, job, value, error)

    def _complete(self, job: Job, value: Any, error: BaseException | None) -> None:
        self._free += 1
        if not job.result.done():
            if error is None:
                job.result.set_result(value)
            else:
                job.result.set_exception(error)
        self._start_next()

    def _duration_s(self) -> float:
        slow = 100 if self._random.random() < self._slow_chance else 1
        return self._random.randint(1, self._most_us) * slow / 1_000_000
