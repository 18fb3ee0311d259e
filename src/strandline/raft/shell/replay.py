"""CommittedOffset metadata from this replica's own log into the image, in slices, whoever leads.

Owned by the driver, which says how far the log is committed and which snapshot replaced it; everybody but an active
controller learns of changes through here. A new leader becomes active when everything committed has passed through.

Invariant: nothing at or above the high watermark is replayed, and the image is committed at the end of whole batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from strandline.log.cold_reads import ColdRead
from strandline.metadata.image import Image
from strandline.model.timeline import Touched
from strandline.raft.disk.batches import checked_batches, data_slices
from strandline.raft.disk.snapshots import Snapshot
from strandline.raft.disk.storage import MetadataStorage
from strandline.raft.machine.values import SnapshotId
from strandline.records.batch import BatchHeader
from strandline.runtime.offload import Offload
from strandline.runtime.tasks import yield_to_loop

_READ_BYTES: Final = 1 << 18
# About two milliseconds of decoding and replaying.
_RECORDS_PER_BREATH: Final = 200

OnReplayed = Callable[[int, list[Touched]], Awaitable[None]]


class Replay:
    def __init__(self, storage: MetadataStorage, image: Image, offload: Offload, on_replayed: OnReplayed) -> None:
        """`on_replayed(offset, touched)`: the image is committed below `offset`, in one step with this call; nothing
        more is, before it has ended."""
        self._storage = storage
        self._image = image
        self._offload = offload
        self._on_replayed = on_replayed
        self._high_watermark = 0
        self._snapshot: tuple[SnapshotId, Snapshot] | None = None
        self._caught_up: Callable[[], None] | None = None
        self._is_paused = False
        self._work = asyncio.Event()

    def rise(self, high_watermark: int) -> None:
        self._high_watermark = max(self._high_watermark, high_watermark)
        self._work.set()

    def pause(self) -> None:
        """The log is about to be replaced by a snapshot: it is not read again before `load`."""
        self._is_paused = True

    def load(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """The log was replaced by this snapshot."""
        self._snapshot = (snapshot_id, snapshot)
        self._is_paused = False
        self.rise(snapshot_id.end_offset)

    def when_caught_up(self, call: Callable[[], None] | None) -> None:
        """Once, when everything committed is in the image; None takes that back."""
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
        loading = self._image.loading(snapshot.slices(), snapshot_id.end_offset)
        while True:
            try:
                next(loading)
            except StopIteration as end:
                await self._on_replayed(snapshot_id.end_offset, end.value)
                return
            await yield_to_loop()

    async def _replay(self) -> None:
        """Some of what is committed, as it comes with one read."""
        offset, until = self._image.end_offset, self._high_watermark
        data = await self._read(offset, until)
        count = 0
        for position, header in checked_batches(data, self._storage.path):
            if header.base_offset < offset:
                continue
            await self._replay_batch(data, position, header)
            count += header.record_count
            if count >= _RECORDS_PER_BREATH:
                await self._commit(header.next_offset)
                await yield_to_loop()
                count = 0
        if count > 0:
            await self._commit(self._image.end_offset)

    async def _replay_batch(self, data: bytes, position: int, header: BatchHeader) -> None:
        """A large one with a breath between its slices: nobody sees it before it is committed as a whole."""
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
        """Nothing when the log is being replaced."""
        while not self._is_paused and self._snapshot is None:
            found = self._storage.log.read(offset, max_bytes=_READ_BYTES, before_offset=until)
            if isinstance(found, ColdRead):
                await self._offload.run(found.load)
                continue
            if found.slice is None:
                raise AssertionError(f"the log ends before {until}, which is committed: there is nothing at {offset}")
            part = found.slice
            cached = part.file.read_cached(part.position, part.size)
            return await self._offload.run(part.read) if cached is None else bytes(cached)
        return b""
