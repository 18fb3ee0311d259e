"""Producer ids for this broker, from blocks that the controller hands out: unique in the cluster, never used twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

# (first id, how many)
Block = tuple[int, int]


class ProducerIdBlocks:
    def __init__(self, allocate: Callable[[], Awaitable[Block]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._asking = asyncio.Lock()

    async def next(self) -> int:
        while self._next >= self._end:
            await self._refill()
        allocated = self._next
        self._next += 1
        return allocated

    async def _refill(self) -> None:
        async with self._asking:
            if self._next < self._end:
                return
            first, count = await self._allocate()
            self._next, self._end = first, first + count
