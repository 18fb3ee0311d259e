"""Versioned maps: the latest value of every key, and its earlier values as long as they can be read.

Used where a log is replayed (the metadata image, later the coordinators). A `Timeline` holds the offsets; its
`TimelineMap`s hold the latest values in a plain dict and, for keys changed recently, the earlier values. So a change
costs as much as it changes, the committed view is one more dictionary lookup, and uncommitted changes are reverted
exactly.

    timeline.mark(40)        # the changes that follow belong to the batch at offset 40
    names["a"] = 1
    timeline.commit(41)      # everything before 41 is committed: returns what it touched, drops earlier values
    timeline.revert_to(41)   # everything from 41 on is reverted, newest first

An offset is also a *moment*: the state *before* the batch at that offset. Reading `at` a moment sees the changes of all
batches below it. `commit` and `revert_to` only take moments between batches; a batch is never split.

`pin` keeps a committed moment readable during later commits (a snapshot being written in slices). Invariant: the
earlier values of a key are in offset order, and the oldest is not older than the oldest pin or commit, except for a
backlog of which every `commit` removes a bounded number of entries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

K = TypeVar("K")
V = TypeVar("V")

LATEST: Final = 1 << 63
"""The moment after all changes, committed or not."""

# The end of a pin leaves a backlog of earlier values; every commit drops this many beyond its own.
_DROPPED_PER_COMMIT = 1000


class _Absent:
    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""The earlier value of a key that did not exist."""


class Touched(msgspec.Struct, frozen=True):
    """A key that a batch changed, and its value before that batch (ABSENT if it did not exist)."""

    offset: int
    map: TimelineMap[Any, Any]
    key: Any
    old: Any


class Timeline:
    """The offsets that the maps built on it share."""

    __slots__ = ("_droppable", "_pending", "_pins", "committed", "marked")

    def __init__(self) -> None:
        self.marked = 0
        self.committed = 0
        self._pending: deque[Touched] = deque()
        self._droppable: deque[Touched] = deque()
        self._pins: list[int] = []

    def mark(self, offset: int) -> None:
        """The changes that follow belong to the batch at this offset."""
        if offset < self.marked or offset < self.committed:
            raise ValueError(f"offset {offset} is below {max(self.marked, self.committed)}")
        self.marked = offset

    def commit(self, offset: int) -> list[Touched]:
        """Commits everything before `offset`; returns the keys changed since the last commit, in order."""
        pending, touched = self._pending, []
        while pending and pending[0].offset < offset:
            entry = pending.popleft()
            entry.map.changes += 1
            touched.append(entry)
        self._droppable.extend(touched)
        self.committed = max(self.committed, offset)
        self.marked = max(self.marked, offset)
        self._drop(len(touched) + _DROPPED_PER_COMMIT)
        return touched

    def revert_to(self, offset: int) -> None:
        """Reverts, newest first, every change from `offset` on."""
        if offset < self.committed:
            raise ValueError(f"offset {offset} is below the committed offset {self.committed}")
        pending = self._pending
        while pending and pending[-1].offset >= offset:
            entry = pending.pop()
            entry.map.restore(entry)
        self.marked = min(self.marked, offset)

    def undo_since(self, offset: int) -> None:
        """Restores the values at `offset` by changes of the batch marked last (an aborted transaction).

        Unlike `revert_to`, this can itself be reverted.
        """
        for entry in [entry for entry in self._pending if entry.offset >= offset]:
            old = entry.map.at(entry.key, offset)
            if old is not ABSENT:
                entry.map[entry.key] = old
            elif entry.key in entry.map:
                del entry.map[entry.key]

    def pin(self, offset: int) -> None:
        """Keeps the moment `offset` readable until `unpin`; it must not be below the committed offset."""
        if offset < self.committed:
            raise ValueError(f"offset {offset} is below the committed offset {self.committed}")
        self._pins.append(offset)

    def unpin(self, offset: int) -> None:
        self._pins.remove(offset)
        self._drop(_DROPPED_PER_COMMIT)

    def record(self, entry: Touched) -> None:
        self._pending.append(entry)

    def _drop(self, at_most: int) -> None:
        droppable = self._droppable
        kept = min(self._pins, default=LATEST)
        while droppable and at_most > 0 and droppable[0].offset < kept:
            entry = droppable.popleft()
            entry.map.drop(entry)
            at_most -= 1


class TimelineMap(Generic[K, V]):
    """A dictionary that can be read at earlier moments. Writing is plain item assignment; reading takes a moment."""

    __slots__ = ("_past", "_present", "_timeline", "changes")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._present: dict[K, V] = {}
        self._past: dict[K, list[Touched]] = {}
        self.changes = 0
        """Increases whenever a value at the latest or the committed moment may have changed: compared by caches."""

    def __setitem__(self, key: K, value: V) -> None:
        self._record(key, self._present.get(key, ABSENT))
        self._present[key] = value

    def __delitem__(self, key: K) -> None:
        self._record(key, self._present[key])
        del self._present[key]

    def __contains__(self, key: K) -> bool:
        return key in self._present

    def __len__(self) -> int:
        return len(self._present)

    @property
    def is_blank(self) -> bool:
        """Whether there is no value at any moment, so that the map can be dropped."""
        return not self._present and not self._past

    def get(self, key: K, at: int = LATEST) -> V | None:
        past = self._past.get(key)
        if past is not None:
            for entry in past:
                if entry.offset >= at:
                    return None if entry.old is ABSENT else cast(V, entry.old)
        return self._present.get(key)

    def at(self, key: K, at: int) -> V | _Absent:
        """The value, like `get`, but distinguishes a key that did not exist from one whose value is None."""
        for entry in self._past.get(key, ()):
            if entry.offset >= at:
                return cast("V | _Absent", entry.old)
        return self._present.get(key, ABSENT)

    def keys(self, at: int = LATEST) -> list[K]:
        """The keys that existed at the moment, in no particular order, but the same on every run."""
        if at == LATEST or not self._past:
            return list(self._present)
        past = self._past
        present = [key for key in self._present if key not in past or self.at(key, at) is not ABSENT]
        deleted = [key for key in past if key not in self._present and self.at(key, at) is not ABSENT]
        return present + deleted

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
        """Called by the timeline: reverts the newest change of this key."""
        past = self._past[entry.key]
        past.pop()
        if not past:
            del self._past[entry.key]
        if entry.old is ABSENT:
            self._present.pop(entry.key, None)  # created and deleted by the reverted batch
        else:
            self._present[entry.key] = entry.old
        self.changes += 1

    def drop(self, entry: Touched) -> None:
        """Called by the timeline: the value before this change can no longer be read."""
        past = self._past[entry.key]
        if len(past) == 1:
            del self._past[entry.key]
        else:
            del past[0]

    def _record(self, key: K, old: V | _Absent) -> None:
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
        timeline.record(entry)
