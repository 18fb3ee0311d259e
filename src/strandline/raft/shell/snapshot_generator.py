"""Snapshots of the committed image: when enough bytes were committed since the last one, or enough time has passed.

Every node (leader, follower, broker) writes its own, in slices, from a pinned view of the committed image, while the
node continues. Then the oldest snapshots are removed, and the log before the oldest that remains
(metadata.max.retention.*), but not while a replica fetches them: a slow one would never complete.
A snapshot contains kraft.version and voters as of its end offset, not as of when it is written.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import takewhile
from typing import Final

import msgspec

from strandline.log.cold_reads import ColdRead
from strandline.metadata.image import Image
from strandline.metadata.views import View
from strandline.model.config_keys.broker import config_field
from strandline.model.errors import KafkaError
from strandline.protocol.types import Message
from strandline.raft.disk.snapshots import SnapshotWriter
from strandline.raft.disk.storage import MetadataStorage
from strandline.raft.machine.values import SnapshotId
from strandline.raft.machine.voters import VoterHistory
from strandline.records.batch import HEADER_SIZE, read_header
from strandline.runtime.clock import Clock
from strandline.runtime.offload import Offload
from strandline.runtime.tasks import yield_to_loop

# About two milliseconds of gathering and encoding.
_SNAPSHOT_SLICE: Final = 200
# A replica that fetches a snapshot requests the next chunk at once. After this long it no longer fetches it.
_FETCHED_MS: Final = 10_000

logger = logging.getLogger(__name__)


class SnapshotSettings(msgspec.Struct, frozen=True):
    max_bytes_between: int = config_field("metadata.log.max.record.bytes.between.snapshots")
    max_interval_ms: int = config_field("metadata.log.max.snapshot.interval.ms")


class SnapshotGenerator:
    def __init__(
        self,
        storage: MetadataStorage,
        image: Image,
        history: VoterHistory,
        clock: Clock,
        offload: Offload,
        settings: SnapshotSettings,
    ) -> None:
        self._storage = storage
        self._image = image
        self._history = history
        self._clock = clock
        self._offload = offload
        self._settings = settings
        self._due = asyncio.Event()
        self._fetched_ms: dict[SnapshotId, int] = {}
        latest = storage.latest_snapshot
        self._since = 0 if latest is None else latest.end_offset

    def on_committed(self, offset: int) -> None:
        """The image is committed below `offset`."""
        if self._storage.log.bytes_between(self._since, offset) >= self._settings.max_bytes_between:
            self._due.set()

    def on_fetched(self, snapshot_id: SnapshotId) -> None:
        """A replica has fetched a chunk of it."""
        self._fetched_ms[snapshot_id] = self._clock.now_ms()

    def _is_being_fetched(self, snapshot_id: SnapshotId) -> bool:
        fetched_ms = self._fetched_ms.get(snapshot_id)
        return fetched_ms is not None and self._clock.now_ms() - fetched_ms < _FETCHED_MS

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            timer = loop.call_later(self._settings.max_interval_ms / 1000, self._due.set)
            try:
                await self._due.wait()
            finally:
                timer.cancel()
            self._due.clear()
            await self.write()

    async def write(self) -> SnapshotId | None:
        """Writes the committed image; None when there is nothing new, or a metadata transaction is open."""
        storage, view = self._storage, self._image.pin()
        try:
            end_offset = view.offset
            latest = storage.latest_snapshot
            if end_offset != storage.log.high_watermark or end_offset <= (latest.end_offset if latest else 0):
                return None
            self._since = end_offset
            snapshot_id = SnapshotId(end_offset, storage.log.epochs.epoch_for(end_offset - 1))
            try:
                kept = await self._write(snapshot_id, view)
                await self._remove_old()
            except (OSError, KafkaError) as error:
                # Not fatal: the log has all records, and the next snapshot is a new file.
                logger.warning("the metadata snapshot %s could not be written: %s", snapshot_id.file_name, error)
                return None
            return snapshot_id if kept else None
        finally:
            self._image.unpin(view)

    async def _write(self, snapshot_id: SnapshotId, view: View) -> bool:
        """Writes a snapshot. If cancelled it leaves a `.part` file, which the next start removes."""
        last_timestamp = await self._timestamp_before(snapshot_id.end_offset)
        kraft_version, voters = self._history.before(snapshot_id.end_offset)
        writer = self._storage.begin_snapshot(snapshot_id, view.metadata_version)
        try:
            writer.begin(
                last_timestamp=last_timestamp,
                wall_ms=self._clock.wall_ms(),
                kraft_version=kraft_version,
                voters=voters,
            )
            await self._write_records(writer, view)
            await self._offload.run(writer.finish, self._clock.wall_ms())
        except OSError:
            writer.discard()
            raise
        if self._storage.add_snapshot(snapshot_id):
            return True
        await self._offload.run(self._storage.remove_files, [snapshot_id], [])
        return False

    async def _write_records(self, writer: SnapshotWriter, view: View) -> None:
        slice_: list[Message] = []
        for record in self._image.records(view):
            slice_.append(record)
            if len(slice_) == _SNAPSHOT_SLICE:
                writer.append(slice_, self._clock.wall_ms())
                slice_ = []
                await yield_to_loop()
        if slice_:
            writer.append(slice_, self._clock.wall_ms())

    async def _timestamp_before(self, offset: int) -> int:
        """The timestamp of the last batch in the snapshot."""
        while isinstance(found := self._storage.log.read(offset - 1, max_bytes=1, before_offset=offset), ColdRead):
            await self._offload.run(found.load)
        if found.slice is None:
            return 0
        return read_header(
            await self._offload.run(found.slice.file.read_at, found.slice.position, HEADER_SIZE)
        ).max_timestamp

    async def _remove_old(self) -> None:
        storage, wall_ms = self._storage, self._clock.wall_ms()
        surplus = await self._offload.run(storage.surplus_snapshots, wall_ms)
        surplus = list(takewhile(lambda snapshot_id: not self._is_being_fetched(snapshot_id), surplus))
        if storage.log.truncating_to is not None:
            return  # after the next snapshot
        segments = storage.drop(surplus, wall_ms)
        self._fetched_ms = {each: at_ms for each, at_ms in self._fetched_ms.items() if each in storage.snapshots}
        self._history.forget_before(storage.log.log_start_offset)
        await self._offload.run(storage.remove_files, surplus, segments)
