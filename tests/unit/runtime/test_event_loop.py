"""The collector and the threads beside the event loop. It is the process that is set up, so each test has its own."""

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


def test_objects_that_stay_do_not_have_everything_looked_through() -> None:
    assert _run(_COUNT_FULL_COLLECTIONS) == [0]


def test_a_thread_that_works_does_not_keep_the_loop_for_milliseconds() -> None:
    program = """
import sys
from strandline.runtime.event_loop import run_event_loop
async def interval():
    return sys.getswitchinterval()
print(round(run_event_loop(interval()) * 1_000_000))
"""
    assert _run(program) == [1000]
