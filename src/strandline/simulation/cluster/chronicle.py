"""The events of a run in words, for failure reports. Repeated events are merged into one line."""

from __future__ import annotations

from collections import Counter

import msgspec

from strandline.simulation.loop import VirtualLoop


class Entry(msgspec.Struct):
    at_us: int
    source: str
    """Name of the machine, or of the part of the simulation."""
    event: str
    minor: bool
    times: int = 1

    def __str__(self) -> str:
        again = f" (and {self.times - 1} more like it)" if self.times > 1 else ""
        return f"{self.at_us / 1_000_000:10.4f} s  {self.source:<10} {self.event}{again}"


class Chronicle:
    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.entries: list[Entry] = []
        self.faults: Counter[str] = Counter()

    def note(self, source: str, event: str, *, minor: bool = False) -> None:
        """`minor`: of interest only shortly before a violation."""
        self.entries.append(Entry(self._loop.now_us, source, event, minor))

    def repeat(self, source: str, kind: str, details: str) -> None:
        """A minor event, such as a commit, that replaces an event of the same kind directly before it."""
        last = self.entries[-1] if self.entries else None
        if last is not None and last.source == source and last.minor and last.event.startswith(kind):
            last.at_us, last.event, last.times = self._loop.now_us, f"{kind} {details}", last.times + 1
        else:
            self.note(source, f"{kind} {details}", minor=True)

    def story(self, at_most: int = 70) -> list[str]:
        """The last events in full, and the major events before them."""
        near = self.entries[-25:]
        before = [entry for entry in self.entries[:-25] if not entry.minor]
        left_out = max(0, len(before) - (at_most - len(near)))
        lines = [f"{'':>12}  ({left_out} earlier events left out)"] if left_out else []
        return lines + [str(entry) for entry in before[left_out:] + near]
