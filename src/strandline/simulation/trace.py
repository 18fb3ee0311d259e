"""A hash of everything observable in a run: network bytes, disk operations, the order and time of every step.

Two runs of one seed must have the same hash in any process; if not, an order or a value came from outside the seed. The
last lines are kept as text for failure reports.
"""

from __future__ import annotations

import hashlib
from collections import deque
from struct import Struct

from strandline.runtime.disk import Buffer

_STEP = Struct("<qq")


class Trace:
    def __init__(self, keep_lines: int = 200) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._now_us = 0
        self.lines: deque[str] = deque(maxlen=keep_lines)

    def step(self, now_us: int, order: int) -> None:
        """The loop runs the event that was the `order`-th to be scheduled."""
        self._now_us = now_us
        self._hash.update(_STEP.pack(now_us, order))

    def note(self, line: str, data: Buffer | None = None) -> None:
        self.lines.append(f"{self._now_us / 1_000_000:.6f} {line}")
        self._hash.update(line.encode())
        if data is not None:
            self._hash.update(data)

    def digest(self) -> str:
        return self._hash.hexdigest()
