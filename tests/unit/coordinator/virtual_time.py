"""Coroutines of tests on virtual time, and the clock of the shards in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from strandline.simulation.loop import VirtualLoop


class LoopClock:
    def now_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return 1_000_000 + self.now_ms()


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(scene())
    finally:
        loop.close()
