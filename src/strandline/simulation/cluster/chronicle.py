"""What happened to whom, in words: the raw material of a story. Kept short by saying what repeats only once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from strandline.simulation.loop import VirtualLoop


@dataclass(slots=True)
class Entry:
    at_us: int
    who: str
    what: str
    minor: bool
    times: int = 1

    def __str__(self) -> str:
        again = f" (and {self.times - 1} more like it)" if self.times > 1 else ""
        return f"{self.at_us / 1_000_000:10.4f} s  {self.who:<10} {self.what}{again}"


class Chronicle:
    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.entries: list[Entry] = []
        self.faults: Counter[str] = Counter()

    def note(self, who: str, what: str, *, minor: bool = False) -> None:
        """`minor`: of interest only shortly before something went wrong."""
        self.entries.append(Entry(self._loop.now_us, who, what, minor))

    def repeat(self, who: str, kind: str, what: str) -> None:
        """Something of which only the last matters if several follow each other, such as a commit."""
        last = self.entries[-1] if self.entries else None
        if last is not None and last.who == who and last.minor and last.what.startswith(kind):
            last.at_us, last.what, last.times = self._loop.now_us, f"{kind} {what}", last.times + 1
        else:
            self.note(who, f"{kind} {what}", minor=True)

    def story(self, at_most: int = 70) -> list[str]:
        """The end in full, what came before it without what is minor."""
        near = self.entries[-25:]
        before = [entry for entry in self.entries[:-25] if not entry.minor]
        left_out = max(0, len(before) - (at_most - len(near)))
        lines = [f"{'':>12}  ({left_out} earlier events left out)"] if left_out else []
        return lines + [str(entry) for entry in before[left_out:] + near]
