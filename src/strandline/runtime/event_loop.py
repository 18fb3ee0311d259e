"""The event loop of production (uvloop, behind one function) and the collector that could stall it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def settle_memory() -> None:
    """What exists now lives as long as the process: the collector need never look at it again, nor stall the loop."""
    gc.collect()
    gc.freeze()


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
