"""The event loop of production (uvloop, behind one function), and what could stall it: the collector, and threads."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# A thread that works (opens logs, checks batches) gives way to the loop after so long. By default it is five times as
# much, and the loop may have to wait for that in each of its turns.
_THREAD_TURN_S = 0.001
# Garbage that counting references does not free is rare here, and to look for it among everything costs what is alive:
# with many partitions all of these objects, while nobody is served. So everything is looked at only when half a million
# have come to stay; the young are looked at about as often as ever.
_COLLECTION = (1_000, 20, 25)


def disable_garbage_collection() -> None:
    """While a process starts, nearly all it makes is there to stay: looking for garbage would only delay it."""
    gc.disable()


def freeze_long_lived_objects() -> None:
    """What exists now lives as long as the process: the collector need never look at it again, nor stall the loop."""
    gc.set_threshold(*_COLLECTION)
    gc.freeze()
    gc.enable()


def run_event_loop(work: Coroutine[Any, Any, T]) -> T:
    import uvloop

    sys.setswitchinterval(_THREAD_TURN_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(work)
        finally:
            gc.freeze()  # what is left ends with the process: nobody need look through it
