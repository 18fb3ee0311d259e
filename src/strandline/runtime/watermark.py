"""Every wait is the same wait: "until this offset is reached".

A `Watermark` is an offset that rises and wakes its waiters. A `Wait` combines several: all of them, or enough weight
(usually bytes), or a timeout. It is re-evaluated when one of them advances or is lost, and costs only those that moved.

A watermark belongs to one leadership: `lose` fails every waiter with the given error. From then on the watermark does
not rise, so that a waiter woken by the loss cannot find its offset reached after all.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable


class Watermark:
    __slots__ = ("_forgotten", "_lost", "_order", "_waiting", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._forgotten: dict[Callable[[], None], int] = {}
        """Cancelled waiters, each with its youngest entry. Their entries stay in the heap until they reach its top, or
        are as many as the others: cancelling needs no search."""
        self._order = 0
        self._lost: BaseException | None = None

    def __repr__(self) -> str:
        return f"Watermark({self.value})"

    @property
    def lost(self) -> BaseException | None:
        return self._lost

    @property
    def waiting(self) -> int:
        """The number of waiters; cancelled ones may count for a while."""
        return len(self._waiting)

    def advance(self, value: int) -> None:
        """Raises the watermark: a lower value is ignored, as is any value once the watermark is lost."""
        if value <= self.value or self._lost is not None:
            return
        self.value = value
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.value:
            _, order, wake = heapq.heappop(self._waiting)
            if not self._forgotten or self._forgotten.get(wake, 0) < order:
                wake()
        if not self._waiting:
            self._forgotten.clear()

    def lose(self, error: BaseException) -> None:
        if self._lost is not None:
            return
        self._lost = error
        waiting, self._waiting = self._waiting, []
        forgotten, self._forgotten = self._forgotten, {}
        for _, order, wake in sorted(waiting, key=lambda entry: entry[1]):
            if forgotten.get(wake, 0) < order:
                wake()

    def call_when(self, offset: int, wake: Callable[[], None]) -> None:
        """Calls `wake` once `value >= offset` or the watermark is lost; immediately if that is so already."""
        if self.value >= offset or self._lost is not None:
            wake()
            return
        self._order += 1
        heapq.heappush(self._waiting, (offset, self._order, wake))

    def forget(self, wake: Callable[[], None]) -> None:
        """Cancels every `call_when` with this callable."""
        if not self._waiting:
            return
        self._forgotten[wake] = self._order
        if len(self._forgotten) * 2 > len(self._waiting):
            forgotten, self._forgotten = self._forgotten, {}
            self._waiting = [entry for entry in self._waiting if forgotten.get(entry[2], 0) < entry[1]]
            heapq.heapify(self._waiting)

    async def reached(self, offset: int) -> None:
        """Returns when the offset is reached; raises the error with which the watermark was lost."""
        if self._lost is None and self.value < offset:
            future = asyncio.get_running_loop().create_future()

            def wake() -> None:
                if not future.done():
                    future.set_result(None)

            self.call_when(offset, wake)
            try:
                await future
            except asyncio.CancelledError:
                self.forget(wake)
                raise
        if self.value < offset and self._lost is not None:
            raise self._lost


class WaitCondition:
    """One watermark in a `Wait`, and its weight so far."""

    __slots__ = ("_armed", "_measure", "_settled", "_wait", "_wake", "offset", "watermark", "weight")

    def __init__(self, wait: Wait, watermark: Watermark, offset: int, measure: Callable[[], int] | None) -> None:
        self._wait = wait
        self._measure = measure
        self._wake = self._moved
        self._armed = False
        self._settled = False
        self.watermark = watermark
        self.offset = offset
        self.weight = 0

    @property
    def reached(self) -> bool:
        return self.watermark.value >= self.offset

    @property
    def lost(self) -> BaseException | None:
        return None if self.reached else self.watermark.lost

    def settle(self) -> None:
        """Counts what is reached already."""
        if self._measure is not None:
            self.weight = self._measure()
            self._wait.gained(self.weight)
        elif self.reached or self.watermark.lost is not None:
            self._settled = True
            self._wait.gained(1)

    def arm(self) -> None:
        if not self._settled:
            self._armed = True
            self.watermark.call_when(self.offset, self._wake)

    def disarm(self) -> None:
        if self._armed:
            self._armed = False
            self.watermark.forget(self._wake)

    def _moved(self) -> None:
        self._armed = False
        if self._wait.finished:
            return
        if self._measure is None:
            self._settled = True
            self._wait.gained(1)
        elif self.watermark.lost is not None:
            self._wait.finish()
        else:
            weight = self._measure()
            gained, self.weight = weight - self.weight, weight
            self.offset = self.watermark.value + 1
            self._wait.gained(gained)
            if not self._wait.finished:
                self.arm()


class Wait:
    """Waits until enough of several watermarks is reached, or for a timeout.

    wait = Wait(needed=2)
    first = wait.reach(high_watermark_of_a, 10)     # weighs 1 when reached or lost (then `first.lost` is the error)
    bytes = wait.collect(high_watermark_of_b, measure)  # weighs `measure()`, called again on each advance
    in_time = await wait.done(timeout_ms)

    Nothing is registered with a watermark before `done` really waits, and nothing is left there after it: a request
    that need not wait costs nothing on partitions without new records.
    """

    __slots__ = ("_future", "_missing", "conditions", "finished")

    def __init__(self, needed: int) -> None:
        self._missing = needed
        self._future: asyncio.Future[None] | None = None
        self.finished = needed <= 0
        self.conditions: list[WaitCondition] = []

    def reach(self, watermark: Watermark, offset: int) -> WaitCondition:
        return self._add(WaitCondition(self, watermark, offset, None))

    def collect(self, watermark: Watermark, measure: Callable[[], int]) -> WaitCondition:
        return self._add(WaitCondition(self, watermark, watermark.value + 1, measure))

    def _add(self, condition: WaitCondition) -> WaitCondition:
        self.conditions.append(condition)
        condition.settle()
        if self._future is not None and not self.finished:
            condition.arm()
        return condition

    def gained(self, weight: int) -> None:
        self._missing -= weight
        if self._missing <= 0:
            self.finish()

    def finish(self) -> None:
        """Ends the wait now, whatever is missing (an error to be returned at once, a closed connection)."""
        self.finished = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def done(self, timeout_ms: int) -> bool:
        """True when enough was reached, False after the timeout."""
        if self.finished or timeout_ms <= 0:
            return self.finished
        loop = asyncio.get_running_loop()
        self._future = future = loop.create_future()
        timer = loop.call_later(timeout_ms / 1000, self._expire)
        try:
            for condition in self.conditions:
                condition.arm()
            await future
        finally:
            timer.cancel()
            in_time = self.finished
            self.finished = True
            for condition in self.conditions:
                condition.disarm()
        return in_time

    def _expire(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
