"""Reports committed changes of one map of the image: for metrics, which count without scanning.

Once started, a `CommitObserver` reports every entry of the map as if it were new, and from then on each key that a
commit touches. It runs inside the commit, at the cost of the keys that the commit changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from strandline.metadata.image import Image
from strandline.model.timeline import ABSENT, TimelineMap, Touched

K = TypeVar("K")
V = TypeVar("V")


class CommitObserver(Generic[K, V]):
    def __init__(
        self, image: Image, watched: TimelineMap[K, V], on_change: Callable[[K, V | None, V | None], None]
    ) -> None:
        """`on_change` receives the key, the old and the new value; None where there is none."""
        self._image = image
        self._watched = watched
        self._on_change = on_change

    def start(self) -> None:
        for key, value in self._watched.items(self._image.committed.moment):
            self._on_change(key, None, value)
        self._image.commit_listeners.append(self._on_commit)

    def _on_commit(self, touched: list[Touched]) -> None:
        watched, report = self._watched, self._on_change
        before: dict[K, V | None] = {}
        for entry in touched:
            if entry.map is watched:
                old = None if entry.old is ABSENT else entry.old
                # Several batches of one commit may change a key: each is reported.
                if entry.key in before:
                    report(entry.key, before[entry.key], old)
                before[entry.key] = old
        moment = self._image.committed.moment
        for key, old in before.items():
            new = watched.get(key, moment)
            if old is not new:
                report(key, old, new)
