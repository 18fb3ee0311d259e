"""From committed records to the image, to the rest of the node, and to waiters.

While this node leads, the controller has replayed what it appended, and a commit only marks it as committed, in steps
(`Commits.commit_appended`). Otherwise `Replay` reads the committed records from this replica's own log, in slices. A
new leader becomes active when everything committed has been replayed. The order is always the same: the image is
committed, the node is notified of what changed, then the watermarks advance. A large notification is sliced, and yields
to the event loop between slices; nothing else is committed meanwhile.

When a leadership ends, `Commits` reverts what was replayed and is not committed, once, before anything else is
notified.

Invariant: nothing at or above the high watermark is replayed from the log, and the image is committed at the end of
whole batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from strandline.log.cold_reads import ColdRead
from strandline.metadata.image import Image
from strandline.model.timeline import Touched
from strandline.raft.disk.batches import checked_batches, data_slices
from strandline.raft.disk.snapshots import Snapshot
from strandline.raft.disk.storage import MetadataStorage
from strandline.raft.machine.values import SnapshotId
from strandline.raft.shell.appends import LeaderTerm
from strandline.raft.shell.metrics import QuorumMetrics
from strandline.records.batch import BatchHeader
from strandline.runtime.offload import Offload
from strandline.runtime.tasks import yield_to_loop
from strandline.runtime.watermark import Watermark

_READ_BYTES: Final = 1 << 18
# About two milliseconds of decoding and replaying.
_RECORDS_PER_SLICE: Final = 200

OnReplayed = Callable[[int, list[Touched]], Awaitable[None]]


class QuorumListener:
    """Notified by the quorum it is registered with; a subclass overrides what it needs."""

    def on_commit(self, touched: list[Touched]) -> Iterator[None] | None:
        """What a commit changed, after the image is committed and before waiters are woken. It may return an iterator
        with the rest of its work: the driver yields to the event loop between the steps, and waiters wait for all."""
        return None

    def on_leading(self, epoch: int) -> None:
        """Called when this node leads the epoch, and everything committed is in the image."""

    def on_stepped_down(self) -> None:
        """Called when this node no longer leads, before anything else is replayed."""


class Commits:
    def __init__(self, image: Image, metrics: QuorumMetrics, on_published: Callable[[int], None]) -> None:
        """`on_published(offset)`: everything below is committed and notified. Always the end of a batch: a restart or a
        snapshot cannot begin in the middle of one."""
        self._image = image
        self._metrics = metrics
        self.listeners: list[QuorumListener] = []
        self._on_published = on_published
        self.term: LeaderTerm | None = None
        self.committed = Watermark(0)
        self.high_watermark = Watermark(0)

    @property
    def is_reserved(self) -> bool:
        return self.term is not None and self.term.accumulator.is_reserved

    async def commit_appended(self, term: LeaderTerm, high_watermark: int) -> None:
        """Commits, as leader, what the controller has replayed up to the high watermark."""
        for offset in term.commit_steps(high_watermark):
            await self._publish(offset, self._image.commit(offset))
            if offset < high_watermark:
                await yield_to_loop()
        self._on_published(high_watermark)

    async def on_replayed(self, offset: int, touched: list[Touched]) -> None:
        """Publishes records replayed from the log: the image has just been committed up to `offset`."""
        await self._publish(offset, touched)
        self._on_published(offset)

    async def _publish(self, offset: int, touched: list[Touched]) -> None:
        """The watermarks advance last: a waiter finds the image, and what the node derives from it, up to date."""
        for listener in self.listeners:
            for _ in listener.on_commit(touched) or ():
                await yield_to_loop()
        if self.term is not None:
            self._metrics.on_committed(offset)
            self.term.committed.advance(offset)
        self.high_watermark.advance(offset)

    def lead(self, term: LeaderTerm) -> None:
        self.term = term
        self.committed = term.committed
        for listener in self.listeners:
            listener.on_leading(term.epoch)

    def step_down(self) -> None:
        """Reverts what was replayed and not committed; drops what was appended and not written."""
        term, self.term = self.term, None
        if term is None:
            return
        self._metrics.on_stepped_down()
        term.lose()
        # A node that stops in the middle of a commit has committed the image beyond the watermark.
        self._image.revert_to_committed(max(term.committed.value, self._image.timeline.committed))
        for listener in self.listeners:
            listener.on_stepped_down()


class Replay:
    def __init__(self, storage: MetadataStorage, image: Image, offload: Offload, on_replayed: OnReplayed) -> None:
        """`on_replayed(offset, touched)`: the image has been committed below `offset`, in the same step of the event
        loop; nothing more is committed until it returns."""
        self._storage = storage
        self._image = image
        self._offload = offload
        self._on_replayed = on_replayed
        self._high_watermark = 0
        self._snapshot: tuple[SnapshotId, Snapshot] | None = None
        self._caught_up: Callable[[], None] | None = None
        self._is_paused = False
        self._work = asyncio.Event()

    def advance(self, high_watermark: int) -> None:
        self._high_watermark = max(self._high_watermark, high_watermark)
        self._work.set()

    def pause(self) -> None:
        """The log is about to be truncated fully, for a snapshot: it is not read until `load`."""
        self._is_paused = True

    def load(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """The log now starts at the end of this snapshot."""
        self._snapshot = (snapshot_id, snapshot)
        self._is_paused = False
        self.advance(snapshot_id.end_offset)

    def when_caught_up(self, call: Callable[[], None] | None) -> None:
        """Calls `call` once, when everything committed is in the image; None cancels that."""
        self._caught_up = call
        self._work.set()

    async def run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self._has_work():
                if self._snapshot is not None:
                    await self._load(*self._snapshot)
                else:
                    await self._replay()
            if self._caught_up is not None and not self._is_paused:
                call, self._caught_up = self._caught_up, None
                call()

    def _has_work(self) -> bool:
        if self._is_paused:
            return False
        return self._snapshot is not None or self._image.end_offset < self._high_watermark

    async def _load(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        self._snapshot = None
        loading = self._image.load_in_steps(snapshot.slices(), snapshot_id.end_offset)
        while True:
            try:
                next(loading)
            except StopIteration as end:
                await self._on_replayed(snapshot_id.end_offset, end.value)
                return
            await yield_to_loop()

    async def _replay(self) -> None:
        """The committed batches of one read."""
        offset, until = self._image.end_offset, self._high_watermark
        data = await self._read(offset, until)
        count = 0
        for position, header in checked_batches(data, self._storage.path):
            if header.base_offset < offset:
                continue
            await self._replay_batch(data, position, header)
            count += header.record_count
            if count >= _RECORDS_PER_SLICE:
                await self._commit(header.next_offset)
                await yield_to_loop()
                count = 0
        if count > 0:
            await self._commit(self._image.end_offset)

    async def _replay_batch(self, data: bytes, position: int, header: BatchHeader) -> None:
        """A large batch yields to the event loop between its slices; it is visible only when committed as a whole."""
        if not header.is_control:
            offset = header.base_offset
            self._image.mark(offset)
            for records in data_slices(data, position, header, self._storage.path):
                if offset > header.base_offset:
                    await yield_to_loop()
                for record in records:
                    self._image.replay(record, offset)
                    offset += 1
        self._image.skip_to(header.next_offset)

    async def _commit(self, offset: int) -> None:
        await self._on_replayed(offset, self._image.commit(offset))

    async def _read(self, offset: int, until: int) -> bytes:
        """Empty while the log is being truncated fully."""
        while not self._is_paused and self._snapshot is None:
            found = self._storage.log.read(offset, max_bytes=_READ_BYTES, before_offset=until)
            if isinstance(found, ColdRead):
                await self._offload.run(found.load)
                continue
            if found.slice is None:
                raise AssertionError(f"the log has no record at {offset}, although it is committed up to {until}")
            part = found.slice
            cached = part.file.read_cached(part.position, part.size)
            return await self._offload.run(part.read) if cached is None else bytes(cached)
        return b""
