"""Assigns producer ids from blocks that the controller allocates to this broker: each id is used once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

ProducerIdBlock = tuple[int, int]
"""(first id, count)"""


class ProducerIdBlocks:
    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._allocating = asyncio.Lock()

    async def next(self) -> int:
        while self._next >= self._end:
            await self._refill()
        allocated = self._next
        self._next += 1
        return allocated

    async def _refill(self) -> None:
        async with self._allocating:
            if self._next < self._end:
                return
            first, count = await self._allocate()
            self._next, self._end = first, first + count
