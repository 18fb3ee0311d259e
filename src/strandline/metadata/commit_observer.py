"""Metadata as it changes, one committed step after the other: for whoever counts and would rather not scan.

Once started, a `CommitObserver` reports everything that a map of the image holds, as if it were new, and from then on
what each commit makes of the keys it touches. It costs what a commit changes, and runs inside it.
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
        self, image: Image, watched: TimelineMap[K, V], on_step: Callable[[K, V | None, V | None], None]
    ) -> None:
        """`on_step` hears which key, what stood there and what stands there now; None stands for nothing."""
        self._image = image
        self._watched = watched
        self._on_step = on_step

    def start(self) -> None:
        for key, value in self._watched.items(self._image.committed.moment):
            self._on_step(key, None, value)
        self._image.commit_listeners.append(self._on_commit)

    def _on_commit(self, touched: list[Touched]) -> None:
        watched, step = self._watched, self._on_step
        before: dict[K, V | None] = {}
        for entry in touched:
            if entry.map is watched:
                old = None if entry.old is ABSENT else entry.old
                # Touched by several batches of one commit: each is a step of its own.
                if entry.key in before:
                    step(entry.key, before[entry.key], old)
                before[entry.key] = old
        moment = self._image.committed.moment
        for key, old in before.items():
            new = watched.get(key, moment)
            if old is not new:
                step(key, old, new)
