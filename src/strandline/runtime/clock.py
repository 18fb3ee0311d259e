"""Time in integer milliseconds: monotonic for deadlines, wall clock for timestamps. Timers are the event loop's."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Monotonic: for deadlines and durations."""
        ...

    def wall_ms(self) -> int:
        """The time since the Unix epoch, for timestamps that leave the process."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
