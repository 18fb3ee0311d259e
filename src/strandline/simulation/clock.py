"""The clock port of a simulated process: the loop's virtual time, as this machine's clocks tell it."""

from __future__ import annotations

from strandline.simulation.loop import VirtualLoop
from strandline.simulation.process import Process

# Virtual time zero. Neither clock starts at 0, nor near the other: a deadline taken for a timestamp shows at once.
_MONOTONIC_ZERO_MS = 10_000_000
_WALL_ZERO_MS = 1_800_000_000_000


class SimClock:
    """Runs at its process's rate. The wall clock may be set (`wall_skew_ms`), as people and NTP do; the other not."""

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
