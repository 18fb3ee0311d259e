"""The event loop of production (uvloop, behind one function) and the collector that could stall it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def postpone_collection() -> None:
    """While a process starts, nearly all it makes is there to stay: looking for garbage would only delay it."""
    gc.disable()


def settle_memory() -> None:
    """What exists now lives as long as the process: the collector need never look at it again, nor stall the loop."""
    gc.freeze()
    gc.enable()


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
