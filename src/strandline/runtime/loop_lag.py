"""How long single steps block the event loop: the metric behind "no step over 10 ms".

uvloop has no hook around its callbacks, and wrapping all of them would cost more than most of them do. So there are two
measurements:

- the callbacks in which nearly all work of a node starts (bytes received, request queue moved, socket drained) are
  timed by their owners: `begin = lag.begin()`, then `lag.end(begin)`. That is exact, and costs two clock reads per
  wake-up, however many requests it brings;
- a timer fires every 50 ms and records its delay. It detects everything else (a coroutine resumed after a wait, a
  garbage collection, a stolen CPU) that outlasts its due time: a stall of a few milliseconds sometimes, one above 50 ms
  always.

Both feed one window, in microseconds, and ignore steps below a millisecond, which delay no request and would make every
small request pay. Under virtual time the timer is never late.
"""

from __future__ import annotations

import asyncio
import time

from strandline.runtime.metrics import Window

TIMER_MS = 50
LEAST_US = 1_000


class LoopLag:
    """`steps` holds microseconds. A task group runs the timer, `watch()`."""

    __slots__ = ("steps",)

    def __init__(self, steps: Window | None = None) -> None:
        self.steps = steps or Window()

    begin = staticmethod(time.perf_counter_ns)

    def end(self, begin_ns: int) -> None:
        now_ns = time.perf_counter_ns()
        took_us = (now_ns - begin_ns) // 1_000
        if took_us >= LEAST_US:
            self.steps.record(took_us, now_ns // 1_000_000)

    def longest_ms(self) -> float:
        return self.steps.longest(time.perf_counter_ns() // 1_000_000) / 1_000

    async def watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + TIMER_MS / 1000
            await asyncio.sleep(TIMER_MS / 1000)
            late_us = int((loop.time() - due) * 1_000_000)
            if late_us >= LEAST_US:
                self.steps.record(late_us, time.perf_counter_ns() // 1_000_000)
