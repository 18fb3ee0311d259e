"""The event loop of production (uvloop), and limits on what may stall it: garbage collection and threads."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# A busy thread (opening logs, checking batches) releases the interpreter lock after this time. Python's default is five
# times as long, and the loop may have to wait that long in each of its iterations.
_SWITCH_INTERVAL_S = 0.001
# Cyclic garbage is rare here, and a full collection traverses all live objects: with many partitions that stalls every
# request. So a full collection comes only after half a million surviving objects; young generations are collected as
# usual.
_THRESHOLDS = (1_000, 20, 25)


def disable_garbage_collection() -> None:
    """Disables collections while a process starts: nearly all its objects are long-lived."""
    gc.disable()


def freeze_long_lived_objects() -> None:
    """Excludes all objects that exist now from garbage collection, which would stall the loop, and enables it."""
    gc.set_threshold(*_THRESHOLDS)
    gc.freeze()
    gc.enable()


def run_event_loop(work: Coroutine[Any, Any, T]) -> T:
    import uvloop

    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(work)
        finally:
            gc.freeze()  # the process ends: no last collection
