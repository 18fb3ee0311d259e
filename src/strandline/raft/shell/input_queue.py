"""The queue of inputs for the machine; the driver takes one at a time.

A step calls one input of the machine and returns its effects. Steps run in order, with two exceptions: those that may
append control records (changes of voters) wait while the controller has an offset reserved, and otherwise run before
ordinary steps; and steps that the machine waits for (`first`) run before all others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from strandline.raft.machine.effects import Effect

Step = Callable[[], list[Effect]]


class InputQueue:
    def __init__(self, is_reserved: Callable[[], bool]) -> None:
        """`is_reserved`: whether the controller has reserved the next offset of the log."""
        self._is_reserved = is_reserved
        self._first: deque[Step] = deque()
        self._steps: deque[Step] = deque()
        self._writing: deque[Step] = deque()
        self._changed = asyncio.Event()

    def put(self, step: Step, *, writes: bool = False, first: bool = False) -> None:
        """`writes`: it may append control records. `first`: before all other steps."""
        (self._first if first else self._writing if writes else self._steps).append(step)
        self._changed.set()

    def wake(self) -> None:
        """The reservation may have ended."""
        if self._writing:
            self._changed.set()

    @property
    def is_empty(self) -> bool:
        """Whether no step can run now."""
        return not self._first and not self._steps and (not self._writing or self._is_reserved())

    async def next(self) -> Step:
        while self.is_empty:
            self._changed.clear()
            await self._changed.wait()
        if self._first:
            return self._first.popleft()
        if self._writing and not self._is_reserved():
            return self._writing.popleft()
        return self._steps.popleft()
