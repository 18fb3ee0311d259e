"""What is to happen to the machine, one thing at a time: the queue between everything that happens and the driver.

A step calls one input of the machine and returns its effects. Steps go in order, with two exceptions: those that may
write to the log by themselves (changes of voters) wait while the controller has an offset reserved, and go first when
it has not; and before all others goes what the machine waits for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from strandline.raft.machine.effects import Effect

Step = Callable[[], list[Effect]]


class InputQueue:
    def __init__(self, is_reserved: Callable[[], bool]) -> None:
        """`is_reserved`: whether the next offset of the log is promised to the controller."""
        self._is_reserved = is_reserved
        self._first: deque[Step] = deque()
        self._steps: deque[Step] = deque()
        self._writing: deque[Step] = deque()
        self._news = asyncio.Event()

    def put(self, step: Step, *, writes: bool = False, first: bool = False) -> None:
        """`first`: before everything that waits, since the machine waits for this."""
        (self._first if first else self._writing if writes else self._steps).append(step)
        self._news.set()

    def wake(self) -> None:
        """The reservation may have ended."""
        if self._writing:
            self._news.set()

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be done now."""
        return not self._first and not self._steps and (not self._writing or self._is_reserved())

    async def next(self) -> Step:
        while self.is_empty:
            self._news.clear()
            await self._news.wait()
        if self._first:
            return self._first.popleft()
        if self._writing and not self._is_reserved():
            return self._writing.popleft()
        return self._steps.popleft()
