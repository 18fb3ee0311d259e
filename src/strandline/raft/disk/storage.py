"""The metadata log on disk: `__cluster_metadata-0`, its snapshots, its quorum-state.

Owned by the driver. The log is a `PartitionLog` whose batches come with their offsets and epochs; `opening` opens and
checks it. Methods marked *blocking* are offloaded; the others run on the event loop.

Invariants: a snapshot has its final name only when its content is synced; the log starts no later than the end of the
oldest snapshot, so that snapshot and log together are always complete; the latest snapshot is never removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from strandline.log.cold_reads import ColdRead
from strandline.log.directory_health import is_write_refused
from strandline.log.partition_log import PartitionLog
from strandline.log.segment import Segment
from strandline.log.truncation import FullTruncation
from strandline.model.errors import KafkaError, NodeFault
from strandline.model.ids import METADATA_PARTITION
from strandline.raft.disk.batches import checked_batches
from strandline.raft.disk.committed_offset import CommittedOffsetFile
from strandline.raft.disk.opening import StorageSettings, open_log
from strandline.raft.disk.quorum_state import (
    QUORUM_STATE,
    had_quorum_state,
    mark_quorum_begun,
    read_quorum_state,
    write_quorum_state,
)
from strandline.raft.disk.snapshots import (
    Snapshot,
    SnapshotReceiver,
    SnapshotWriter,
    UnwrittenSnapshot,
    read_snapshot,
)
from strandline.raft.machine.values import QuorumState, SnapshotId
from strandline.raft.machine.voters import VoterSet
from strandline.records.batch import BatchHeader
from strandline.runtime.disk import Buffer, Disk, File

__all__ = ["METADATA_PARTITION", "MetadataStorage", "StorageSettings"]

_READ_BYTES = 1 << 20


class MetadataStorage:
    def __init__(
        self,
        disk: Disk,
        path: str,
        settings: StorageSettings,
        log: PartitionLog,
        snapshots: list[SnapshotId],
        latest: Snapshot | None,
    ) -> None:
        self.disk = disk
        self.path = path
        self.log = log
        self.committed_file = CommittedOffsetFile(disk, path)
        self.snapshots = snapshots
        """Oldest first, without the 0-0 snapshot."""
        self._settings = settings
        self._read_on_opening = latest
        self._receiving: tuple[SnapshotId, SnapshotReceiver] | None = None
        self._served: dict[SnapshotId, File] = {}
        self._is_marked = False

    @classmethod
    def open(
        cls, disk: Disk, metadata_directory: str, *, wall_ms: int, settings: StorageSettings | None = None
    ) -> MetadataStorage:
        """Blocking. The metadata partition in this log directory, created if missing. NodeFault if it cannot be
        used."""
        settings = settings or StorageSettings()
        path = f"{metadata_directory}/{METADATA_PARTITION}"
        try:
            log, snapshots, latest = open_log(disk, path, settings, wall_ms)
            storage = cls(disk, path, settings, log, snapshots, latest)
            storage._record_epoch_at_start()
        except (OSError, KafkaError) as error:
            raise NodeFault(f"the metadata log in {path} cannot be opened: {error}") from error
        return storage

    def _record_epoch_at_start(self) -> None:
        """Records the epoch if Kafka has written to the log, or the node was killed before it was recorded: the log has
        been checked and found intact. (See the check of epochs in `opening`.)"""
        epoch = max(self.read_state().epoch, self.log.epochs.latest)
        if epoch > max(0, self.committed_file.committed.epoch):
            self.record_epoch(epoch)
            self.committed_file.sync()
            self.disk.sync_dir(self.path)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[-1] if self.snapshots else None

    @property
    def committed_offset(self) -> int:
        """Everything below is known to be committed, without contact with a leader."""
        latest = self.latest_snapshot
        recorded = min(self.committed_file.committed.offset, self.log.log_end_offset)
        return max(recorded, 0 if latest is None else latest.end_offset)

    def path_of(self, snapshot_id: SnapshotId) -> str:
        return f"{self.path}/{snapshot_id.file_name}"

    def snapshot_file(self, snapshot_id: SnapshotId) -> File:
        """The file of a snapshot, for FetchSnapshot; stays open until the snapshot is removed."""
        if snapshot_id not in self._served:
            self._served[snapshot_id] = self.disk.open(self.path_of(snapshot_id))
        return self._served[snapshot_id]

    def read_latest_snapshot(self) -> Snapshot | None:
        """Blocking. The latest snapshot; the first call returns what opening has read."""
        latest, found = self.latest_snapshot, self._read_on_opening
        self._read_on_opening = None
        if latest is None:
            return None
        return read_snapshot(self.disk, self.path_of(latest)) if found is None else found

    def read_first_voters(self) -> Snapshot | None:
        """Blocking. The 0-0 snapshot of a dynamic quorum; None where voters are configured."""
        path = self.path_of(SnapshotId(0, 0))
        return read_snapshot(self.disk, path) if self.disk.exists(path) else None

    def chunks_from(self, offset: int) -> Iterator[tuple[bytes, int, BatchHeader]]:
        """Blocking. (bytes, position in them, header) of every batch from this offset to the end of the log."""
        while offset < self.log.log_end_offset:
            found = self.log.read(offset, max_bytes=_READ_BYTES)
            if isinstance(found, ColdRead):
                found.load()
                continue
            if found.slice is None:
                return
            data = found.slice.read()
            for position, header in checked_batches(data, self.path):
                if header.next_offset > offset:
                    yield data, position, header
                    offset = header.next_offset

    @property
    def has_lost_state(self) -> bool:
        """Blocking. Whether there was a quorum-state before this start, and now there is none."""
        return had_quorum_state(self.disk, os.path.dirname(self.path)) and not self.has_state

    @property
    def has_state(self) -> bool:
        """Blocking. Whether there is a quorum-state."""
        return self.disk.exists(f"{self.path}/{QUORUM_STATE}")

    def read_state(self) -> QuorumState:
        """Blocking. Reads quorum-state."""
        return read_quorum_state(self.disk, self.path)

    def sync_state(self) -> None:
        """Blocking. A process that was killed while it wrote quorum-state may have left the new directory entry in the
        cache only. A replica that continues without writing it again (a candidate, say) must not lose it to a power
        loss."""
        self.disk.sync_dir(self.path)

    def record_epoch(self, epoch: int) -> None:
        """Called before `write_state` (see `committed_offset`). To the page cache; `write_state` syncs it."""
        if epoch > self.committed_file.committed.epoch:
            self.committed_file.begin_epoch(epoch)

    def write_state(self, state: QuorumState, kraft_version: int, voters: VoterSet) -> None:
        """Blocking. Syncs the recorded epoch first, then quorum-state."""
        self.committed_file.sync_epoch()
        ids = [voter.id for voter in voters.voters]
        write_quorum_state(self.disk, self.path, state, kraft_version=kraft_version, voters=ids)
        if not self._is_marked:
            mark_quorum_begun(self.disk, os.path.dirname(self.path))
            self._is_marked = True

    def append(self, batches: Buffer, wall_ms: int) -> None:
        """Writes batches to the page cache; they are durable after the next sync."""
        self.log.append_as_follower(batches, wall_ms=wall_ms)

    def record_committed(self, offset: int) -> None:
        """Writes to the page cache, never more than is synced: a restart relies on the log for all of it."""
        self.log.advance_high_watermark(offset)
        self._record_offset(min(offset, self.log.flushed_offset))

    def _record_offset(self, offset: int) -> None:
        try:
            self.committed_file.advance(offset)
        except OSError as error:
            if not is_write_refused(error):
                raise
            # The disk is full; the older offset is still true.

    def begin_snapshot(self, snapshot_id: SnapshotId, metadata_version: int) -> SnapshotWriter:
        return SnapshotWriter(
            self.disk, self.path_of(snapshot_id), epoch=snapshot_id.epoch, metadata_version=metadata_version
        )

    def add_snapshot(self, snapshot_id: SnapshotId) -> bool:
        """Adds one that was just finished. False when a later one was fetched from the leader meanwhile."""
        latest = self.latest_snapshot
        if latest is not None and latest.end_offset >= snapshot_id.end_offset:
            return False
        self.snapshots = [*self.snapshots, snapshot_id]
        return True

    def receive_chunk(self, snapshot_id: SnapshotId, position: int, data: Buffer) -> None:
        """Writes a chunk to the page cache, at position 0 to a new file. UnwrittenSnapshot when the disk is full."""
        with self._discarding_if_full():
            if position == 0 or self._receiving is None or self._receiving[0] != snapshot_id:
                self.discard_received()
                self._receiving = (snapshot_id, SnapshotReceiver(self.disk, self.path_of(snapshot_id)))
            self._receiving[1].write(position, data)

    def is_receiving(self, snapshot_id: SnapshotId) -> bool:
        return self._receiving is not None and self._receiving[0] == snapshot_id

    def finish_received(self, snapshot_id: SnapshotId) -> Snapshot:
        """Blocking. Syncs and verifies the snapshot and gives it its final name: a restart loads it from now on.
        DamagedSnapshot if it is not whole, UnwrittenSnapshot when the disk is full."""
        assert self._receiving is not None and self._receiving[0] == snapshot_id
        with self._discarding_if_full():
            return self._receiving[1].finish()

    @contextmanager
    def _discarding_if_full(self) -> Iterator[None]:
        """Discards the file on a full disk: after a failed sync it cannot be trusted. A retry writes a new one."""
        try:
            yield
        except OSError as error:
            if not is_write_refused(error):
                raise
            self.discard_received()
            raise UnwrittenSnapshot(str(error)) from error

    def discard_received(self) -> None:
        if self._receiving is not None:
            self._receiving[1].discard()
            self._receiving = None

    def restart_from_snapshot(
        self, snapshot_id: SnapshotId, truncation: FullTruncation
    ) -> tuple[list[SnapshotId], list[Segment]]:
        """Starts the log, empty, where the received snapshot ends, after that was finished and `truncation` was run.
        Returns what to remove."""
        segments = truncation.apply()
        self.log.epochs.assign(snapshot_id.epoch, snapshot_id.end_offset)
        self.log.assume_flushed()
        surplus, self.snapshots = self.snapshots, [snapshot_id]
        self._receiving = None
        self._record_offset(snapshot_id.end_offset)
        return surplus, segments

    def surplus_snapshots(self, wall_ms: int) -> list[SnapshotId]:
        """Blocking. The oldest snapshots that retention by size or time allows to remove."""
        snapshots = self.snapshots
        sizes = [self.disk.size(self.path_of(snapshot)) for snapshot in snapshots]
        kept_bytes = sum(sizes) + self.log.size_bytes
        surplus: list[SnapshotId] = []
        for snapshot, size in zip(snapshots[:-1], sizes, strict=False):
            age_ms = wall_ms - self.disk.modified_ms(self.path_of(snapshot))
            if kept_bytes <= self._settings.retention_bytes and age_ms <= self._settings.retention_ms:
                break
            kept_bytes -= size
            surplus.append(snapshot)
        return surplus

    def drop(self, surplus: Sequence[SnapshotId], wall_ms: int) -> list[Segment]:
        """Drops these snapshots, and the log before the oldest that remains; the caller removes the files.

        Not during a truncation, which relies on the list of segments.
        """
        assert self.log.truncating_to is None
        if not surplus:
            return []
        self.snapshots = [snapshot for snapshot in self.snapshots if snapshot not in surplus]
        self.log.delete_records_before(self.snapshots[0].end_offset)
        return self.log.delete_oldest_segments(self.log.expired_segments(wall_ms), wall_ms)

    def remove_files(self, snapshots: Sequence[SnapshotId], segments: Sequence[Segment]) -> None:
        """Blocking. Removes these snapshots and segments from the disk."""
        for snapshot in snapshots:
            self._stop_serving(snapshot)
            with suppress(FileNotFoundError):
                self.disk.remove(self.path_of(snapshot))
        for segment in segments:
            segment.remove()

    def close(self) -> None:
        """Blocking. Flushes and closes the log and records its committed offset."""
        self.discard_received()
        for snapshot in list(self._served):
            self._stop_serving(snapshot)
        self.log.close()
        if self.log.health.is_online:
            self.committed_file.advance(min(self.log.high_watermark, self.log.flushed_offset))
            self.committed_file.sync()
        self.committed_file.close()

    def _stop_serving(self, snapshot_id: SnapshotId) -> None:
        file = self._served.pop(snapshot_id, None)
        if file is not None:
            file.close()
