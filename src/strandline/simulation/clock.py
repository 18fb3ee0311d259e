"""The clock port of a simulated process: the loop's virtual time as read from this machine's clocks."""

from __future__ import annotations

from strandline.simulation.loop import VirtualLoop
from strandline.simulation.process import Process

# Virtual time zero. The clocks start far from 0 and from each other, so a deadline used as a timestamp is obvious.
_MONOTONIC_ZERO_MS = 10_000_000
_WALL_ZERO_MS = 1_800_000_000_000


class SimClock:
    """Runs at its process's rate. Only the wall clock can be set (`wall_skew_ms`), as by an operator or NTP."""

    def __init__(self, loop: VirtualLoop, process: Process, wall_skew_ms: int = 0) -> None:
        self._loop = loop
        self._process = process
        self.wall_skew_ms = wall_skew_ms

    def now_ms(self) -> int:
        return _MONOTONIC_ZERO_MS + self._local_ms()

    def wall_ms(self) -> int:
        return _WALL_ZERO_MS + self.wall_skew_ms + self._local_ms()

    def _local_ms(self) -> int:
        return self._process.local_us(self._loop.now_us) // 1000
