"""Deadlines of a machine, as data: the shard asks for the next one and calls the machine when it has passed.

Timers are not replicated: a machine that was loaded sets them again. Cancelling costs no search; entries of the heap
that were cancelled or rescheduled are skipped when they surface.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable


class Timers:
    __slots__ = ("_deadlines", "_heap", "_order")

    def __init__(self) -> None:
        self._deadlines: dict[Hashable, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._deadlines

    def schedule(self, key: Hashable, deadline_ms: int) -> None:
        """Replaces an earlier deadline of the same key."""
        self._order += 1
        self._deadlines[key] = (deadline_ms, self._order)
        heapq.heappush(self._heap, (deadline_ms, self._order, key))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._deadlines):
            self._heap = [(at, order, each) for each, (at, order) in self._deadlines.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: Hashable) -> None:
        self._deadlines.pop(key, None)

    def deadline_ms(self, key: Hashable) -> int | None:
        found = self._deadlines.get(key)
        return None if found is None else found[0]

    def next_deadline_ms(self) -> int | None:
        heap = self._heap
        while heap and self._deadlines.get(heap[0][2]) != heap[0][:2]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_expired(self, now_ms: int) -> Hashable | None:
        """The key of the earliest deadline that has passed; it is no longer scheduled. None when there is none."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._deadlines[key]
        return key
