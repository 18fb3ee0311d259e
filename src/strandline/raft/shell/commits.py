"""From what the quorum commits to those who live by it: the image moves on, the node is told, whoever waits is woken.

Owned by the driver. While this node leads, the controller has replayed what it appended, and a commit only settles it,
in portions; otherwise `replay` brings it from the log. The order is always the same: the image is committed, then the
node hears what that touched, and only then do the watermarks rise. What a large commit touched is told in slices, with
a breath between them; nothing else is committed meanwhile.

When a leadership ends, what was replayed and is not committed is taken back: here, once, before anybody hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from strandline.metadata.image import Image
from strandline.model.timeline import Touched
from strandline.raft.shell.leadership import LeaderTerm
from strandline.raft.shell.metrics import QuorumMetrics
from strandline.runtime.tasks import yield_to_loop
from strandline.runtime.watermark import Watermark

OnCommit = Callable[[list[Touched]], Iterator[None] | None]


class Listener(Protocol):
    """Who is told; each may be None."""

    on_commit: OnCommit | None
    on_leading: Callable[[int], None] | None
    on_stepped_down: Callable[[], None] | None


class Commits:
    def __init__(
        self, image: Image, metrics: QuorumMetrics, listener: Listener, on_settled: Callable[[int], None]
    ) -> None:
        """`on_settled` hears of every offset up to where everything is committed and told, and where a batch ends: a
        next life, or a snapshot, cannot begin in the middle of one."""
        self._image = image
        self._metrics = metrics
        self._listener = listener
        self._on_settled = on_settled
        self.leadership: LeaderTerm | None = None
        """From when everything committed is replayed until it is lost."""
        self.committed = Watermark(0)
        self.high_watermark = Watermark(0)

    @property
    def is_reserved(self) -> bool:
        return self.leadership is not None and self.leadership.accumulator.is_reserved

    async def settle(self, held: LeaderTerm, high_watermark: int) -> None:
        """As leader: what the controller has replayed is committed up to here."""
        for offset in held.portions(high_watermark):
            await self._show(offset, self._image.commit(offset))
            if offset < high_watermark:
                await yield_to_loop()
        self._on_settled(high_watermark)

    async def on_replayed(self, offset: int, touched: list[Touched]) -> None:
        """From the log: the image has just been committed up to here."""
        await self._show(offset, touched)
        self._on_settled(offset)

    async def _show(self, offset: int, touched: list[Touched]) -> None:
        """Whoever is woken finds the image, and what follows from it, as committed."""
        if self._listener.on_commit is not None:
            for _ in self._listener.on_commit(touched) or ():
                await yield_to_loop()
        if self.leadership is not None:
            self._metrics.on_committed(offset)
            self.leadership.committed.advance(offset)
        self.high_watermark.advance(offset)

    def lead(self, held: LeaderTerm) -> None:
        self.leadership = held
        self.committed = held.committed
        if self._listener.on_leading is not None:
            self._listener.on_leading(held.epoch)

    def step_down(self) -> None:
        """What was replayed and not committed never happened; what was appended and not written never will."""
        held, self.leadership = self.leadership, None
        if held is None:
            return
        self._metrics.on_stepped_down()
        held.lose()
        # A life that ends in the middle of a commit has left the image ahead of those who wait for it.
        self._image.revert_to_committed(max(held.committed.value, self._image.timeline.committed))
        if self._listener.on_stepped_down is not None:
            self._listener.on_stepped_down()
