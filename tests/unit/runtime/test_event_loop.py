"""Garbage collection and threads beside the event loop. They are process-wide, so each test starts a process."""

from __future__ import annotations

import os
import subprocess
import sys

_COUNT_FULL_COLLECTIONS = """
import gc
from strandline.runtime.event_loop import freeze_long_lived_objects
freeze_long_lived_objects()
full = []
gc.callbacks.append(lambda phase, info: full.append(phase) if phase == "start" and info["generation"] == 2 else None)
kept = [[number] for number in range(200_000)]
print(len(full))
"""


def _run(program: str) -> list[int]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    return [int(number) for number in done.stdout.split()]


def test_long_lived_objects_do_not_cause_full_collections() -> None:
    assert _run(_COUNT_FULL_COLLECTIONS) == [0]


def test_a_busy_thread_does_not_delay_the_loop_for_milliseconds() -> None:
    program = """
import sys
from strandline.runtime.event_loop import run_event_loop
async def interval():
    return sys.getswitchinterval()
print(round(run_event_loop(interval()) * 1_000_000))
"""
    assert _run(program) == [1000]
