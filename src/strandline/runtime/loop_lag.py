"""How long the event loop was kept from everybody else: the number behind "no step over 10 ms".

uvloop offers no hook around its callbacks, and wrapping every one of them would cost more than most of them do. So two
measurements together:

- the callbacks where nearly all work of a node begins (bytes arrived, the request queue moved, a socket drained) are
  timed by their owners: `begin = lag.begin()`, then `lag.end(begin)`. That is exact, and costs two clock reads for each
  wake-up, however many requests it brought;
- a heartbeat asks to be woken every 50 ms and notes how late it was. It sees what nobody timed (a coroutine that went
  on after a wait, a garbage collection, a machine that took the processor away) as far as it outlasts the heartbeat's
  due time, so a stall of a few milliseconds is seen now and then and one above 50 ms always.

Both feed one window, in microseconds, and leave out what took less than a millisecond: it delayed nobody, and to write
it down would cost every small request. Under virtual time the heartbeat is never late.
"""

from __future__ import annotations

import asyncio
import time

from strandline.runtime.metrics import Window

HEARTBEAT_MS = 50
LEAST_US = 1_000


class LoopLag:
    """`steps` holds microseconds. `watch()` is the heartbeat, for a task group to run."""

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
            due = loop.time() + HEARTBEAT_MS / 1000
            await asyncio.sleep(HEARTBEAT_MS / 1000)
            late_us = int((loop.time() - due) * 1_000_000)
            if late_us >= LEAST_US:
                self.steps.record(late_us, time.perf_counter_ns() // 1_000_000)
