"""Maps that remember: one present, and every past that somebody may still ask for.

Owned by whoever replays a log (the metadata image, later the coordinators). A `Timeline` counts offsets; its
`TimelineMap`s hold the present in a plain dict and, for keys changed recently, what stood there before. So a change
costs what it changes, the committed view is one more dictionary lookup, and undoing uncommitted changes is exact.

    timeline.mark(40)        # what follows is the work of the batch that starts at offset 40
    names["a"] = 1
    timeline.commit(41)      # everything before 41 is settled: its past is forgotten, what it touched is returned
    timeline.revert_to(41)   # everything from 41 on is undone, newest first

An offset names a moment: the moment *before* the batch that starts there. Reading `at` an offset sees the changes of
all batches below it. `commit` and `revert_to` only take moments between batches; a batch is never split.

`pin` keeps a committed moment readable while time goes on (a snapshot being written in slices). Invariant: for every
key, the remembered values are in offset order and the oldest of them is not older than the oldest pin or commit, up to
a backlog that `commit` works off a bounded number of entries at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

K = TypeVar("K")
V = TypeVar("V")

LATEST: Final = 1 << 63
"""The moment after everything, committed or not."""

# A pin let go leaves a backlog of remembered values; this many are forgotten per commit beyond what it settles itself.
_FORGET_PER_COMMIT = 1000


class _Absent:
    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""Stands for "no such key" where a remembered value is told."""


class Touched(NamedTuple):
    """A key that a settled batch changed, and what stood there before that batch (ABSENT if nothing did)."""

    offset: int
    map: TimelineMap[Any, Any]
    key: Any
    old: Any


class Timeline:
    """The offsets that the maps built on it share."""

    __slots__ = ("_forgettable", "_pending", "_pins", "committed", "marked")

    def __init__(self) -> None:
        self.marked = 0
        self.committed = 0
        self._pending: deque[Touched] = deque()
        self._forgettable: deque[Touched] = deque()
        self._pins: list[int] = []

    def mark(self, offset: int) -> None:
        """What follows is the work of the batch at this offset."""
        if offset < self.marked or offset < self.committed:
            raise ValueError(f"offset {offset} comes before {max(self.marked, self.committed)}")
        self.marked = offset

    def commit(self, offset: int) -> list[Touched]:
        """Settles everything before `offset`; the answer lists what was touched since the last commit, in order."""
        pending, touched = self._pending, []
        while pending and pending[0].offset < offset:
            entry = pending.popleft()
            entry.map.changes += 1
            touched.append(entry)
        self._forgettable.extend(touched)
        self.committed = max(self.committed, offset)
        self.marked = max(self.marked, offset)
        self._forget(len(touched) + _FORGET_PER_COMMIT)
        return touched

    def revert_to(self, offset: int) -> None:
        """Undoes, newest first, every change from `offset` on."""
        if offset < self.committed:
            raise ValueError(f"offset {offset} is settled: {self.committed} is committed")
        pending = self._pending
        while pending and pending[-1].offset >= offset:
            entry = pending.pop()
            entry.map.restore(entry)
        self.marked = min(self.marked, offset)

    def undo_since(self, offset: int) -> None:
        """Brings back, as changes of the batch marked now, everything that stood at `offset` (an aborted transaction).

        Unlike `revert_to` this is a step forward in time: it can itself be reverted.
        """
        for entry in [entry for entry in self._pending if entry.offset >= offset]:
            old = entry.map.at(entry.key, offset)
            if old is not ABSENT:
                entry.map[entry.key] = old
            elif entry.key in entry.map:
                del entry.map[entry.key]

    def pin(self, offset: int) -> None:
        """Keeps the moment `offset` readable until `unpin`; it must not be forgotten already."""
        if offset < self.committed:
            raise ValueError(f"offset {offset} is past: {self.committed} is committed")
        self._pins.append(offset)

    def unpin(self, offset: int) -> None:
        self._pins.remove(offset)
        self._forget(_FORGET_PER_COMMIT)

    def remember(self, entry: Touched) -> None:
        self._pending.append(entry)

    def _forget(self, at_most: int) -> None:
        forgettable = self._forgettable
        kept = min(self._pins, default=LATEST)
        while forgettable and at_most > 0 and forgettable[0].offset < kept:
            entry = forgettable.popleft()
            entry.map.forget(entry)
            at_most -= 1


class TimelineMap(Generic[K, V]):
    """A dictionary whose past can be asked. Writing is plain item assignment; reading takes a moment."""

    __slots__ = ("_past", "_present", "_timeline", "changes")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._present: dict[K, V] = {}
        self._past: dict[K, list[Touched]] = {}
        self.changes = 0
        """Rises whenever the latest or the committed moment may read differently: what caches compare."""

    def __setitem__(self, key: K, value: V) -> None:
        self._remember(key, self._present.get(key, ABSENT))
        self._present[key] = value

    def __delitem__(self, key: K) -> None:
        self._remember(key, self._present[key])
        del self._present[key]

    def __contains__(self, key: K) -> bool:
        return key in self._present

    def __len__(self) -> int:
        return len(self._present)

    def get(self, key: K, at: int = LATEST) -> V | None:
        past = self._past.get(key)
        if past is not None:
            for entry in past:
                if entry.offset >= at:
                    return None if entry.old is ABSENT else cast(V, entry.old)
        return self._present.get(key)

    def at(self, key: K, at: int) -> V | _Absent:
        """As `get`, but a key that did not exist is told apart from one whose value is None."""
        for entry in self._past.get(key, ()):
            if entry.offset >= at:
                return cast("V | _Absent", entry.old)
        return self._present.get(key, ABSENT)

    def keys(self, at: int = LATEST) -> list[K]:
        """Those that existed at the moment, in no order that means anything, but the same on every run."""
        if at == LATEST or not self._past:
            return list(self._present)
        past = self._past
        there = [key for key in self._present if key not in past or self.at(key, at) is not ABSENT]
        gone = [key for key in past if key not in self._present and self.at(key, at) is not ABSENT]
        return there + gone

    def values(self, at: int = LATEST) -> list[V]:
        if at == LATEST or not self._past:
            return list(self._present.values())
        return [value for _, value in self.items(at)]

    def items(self, at: int = LATEST) -> Iterator[tuple[K, V]]:
        """Lazy: values are read as the iterator moves, so a moment read in slices must be pinned."""
        if at == LATEST:
            present = self._present
            for key in list(present):
                if key in present:
                    yield key, present[key]
            return
        for key in self.keys(at):
            value = self.at(key, at)
            if value is not ABSENT:
                yield key, cast(V, value)

    def restore(self, entry: Touched) -> None:
        """Called by the timeline: the newest change of this key never happened."""
        past = self._past[entry.key]
        past.pop()
        if not past:
            del self._past[entry.key]
        if entry.old is ABSENT:
            self._present.pop(entry.key, None)  # created and deleted within the batch that is undone
        else:
            self._present[entry.key] = entry.old
        self.changes += 1

    def forget(self, entry: Touched) -> None:
        """Called by the timeline: nobody can ask any more what stood here before this change."""
        past = self._past[entry.key]
        if len(past) == 1:
            del self._past[entry.key]
        else:
            del past[0]

    def _remember(self, key: K, old: V | _Absent) -> None:
        timeline = self._timeline
        self.changes += 1
        past = self._past.get(key)
        if past is None:
            entry = Touched(timeline.marked, self, key, old)
            self._past[key] = [entry]
        elif past[-1].offset < timeline.marked:
            entry = Touched(timeline.marked, self, key, old)
            past.append(entry)
        else:
            return
        timeline.remember(entry)
