"""The metadata log on disk: `__cluster_metadata-0`, its snapshots, its quorum state.

Owned by the driver. The log itself is a `PartitionLog` whose batches come with their offsets and epochs; how it is
opened, and what is refused, is `opening`'s business. Methods marked *blocking* are offloaded; the others belong to the
event loop.

Invariants: a snapshot's file name appears only when its content is synced; the log reaches back at least to the end of
the oldest snapshot, so snapshot + tail is always everything; the latest snapshot is never removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from strandline.log.cold_reads import ColdRead
from strandline.log.health import is_write_refused
from strandline.log.partition_log import PartitionLog
from strandline.log.segment import Segment
from strandline.log.truncation import FullTruncation
from strandline.model.errors import KafkaError, NodeFault
from strandline.model.ids import METADATA_PARTITION
from strandline.raft.disk.batches import checked_batches
from strandline.raft.disk.committed_offset import CommittedOffsetFile
from strandline.raft.disk.mark import had_quorum_state, mark
from strandline.raft.disk.opening import StorageSettings, open_log
from strandline.raft.disk.quorum_state import QUORUM_STATE, read_quorum_state, write_quorum_state
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
        self.note = CommittedOffsetFile(disk, path)
        self.snapshots = snapshots
        """Oldest first, without the one that only names the first voters."""
        self._settings = settings
        self._read_on_opening = latest
        self._receiving: tuple[SnapshotId, SnapshotReceiver] | None = None
        self._served: dict[SnapshotId, File] = {}
        self._is_marked = False

    @classmethod
    def open(
        cls, disk: Disk, metadata_directory: str, *, wall_ms: int, settings: StorageSettings | None = None
    ) -> MetadataStorage:
        """Blocking. The metadata partition under this log directory, made if it is not there. NodeFault if it cannot be
        used."""
        settings = settings or StorageSettings()
        path = f"{metadata_directory}/{METADATA_PARTITION}"
        try:
            log, snapshots, latest = open_log(disk, path, settings, wall_ms)
            storage = cls(disk, path, settings, log, snapshots, latest)
            storage._begin_note()
        except (OSError, KafkaError) as error:
            raise NodeFault(f"the metadata log in {path} cannot be opened: {error}") from error
        return storage

    def _begin_note(self) -> None:
        """Where somebody wrote who keeps no note. What is here now is whole: from now on there is one.

        Likewise where a life ended before its epoch was noted: the next one, too, may write one epoch more, and end.
        """
        epoch = max(self.read_state().epoch, self.log.epochs.latest)
        if epoch > max(0, self.note.committed.epoch):
            self.note_epoch(epoch)
            self.note.sync()
            self.disk.sync_dir(self.path)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[-1] if self.snapshots else None

    @property
    def committed_offset(self) -> int:
        """Everything below is known to be committed, without asking anybody."""
        latest = self.latest_snapshot
        noted = min(self.note.committed.offset, self.log.log_end_offset)
        return max(noted, 0 if latest is None else latest.end_offset)

    def path_of(self, snapshot_id: SnapshotId) -> str:
        return f"{self.path}/{snapshot_id.file_name}"

    def snapshot_file(self, snapshot_id: SnapshotId) -> File:
        """To serve it from; open until it is removed."""
        if snapshot_id not in self._served:
            self._served[snapshot_id] = self.disk.open(self.path_of(snapshot_id))
        return self._served[snapshot_id]

    def read_latest_snapshot(self) -> Snapshot | None:
        """Blocking. The first time it is the one that opening has read."""
        latest, found = self.latest_snapshot, self._read_on_opening
        self._read_on_opening = None
        if latest is None:
            return None
        return read_snapshot(self.disk, self.path_of(latest)) if found is None else found

    def read_first_voters(self) -> Snapshot | None:
        """Blocking. What formatting said about a dynamic quorum; None where voters are configured."""
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
    def has_forgotten(self) -> bool:
        """Blocking. Whether there was a state in an earlier life, and now there is none."""
        return had_quorum_state(self.disk, os.path.dirname(self.path)) and not self.has_state

    @property
    def has_state(self) -> bool:
        """Blocking."""
        return self.disk.exists(f"{self.path}/{QUORUM_STATE}")

    def read_state(self) -> QuorumState:
        """Blocking."""
        return read_quorum_state(self.disk, self.path)

    def settle_state(self) -> None:
        """Blocking. A process that was killed while it wrote quorum-state may have left the new name in the cache only.
        Whoever goes on from it without writing anew (a candidate, say) must not lose it to the next power loss."""
        self.disk.sync_dir(self.path)

    def note_epoch(self, epoch: int) -> None:
        """Before `write_state` (see `committed`); to the page cache, `write_state` syncs it."""
        if epoch > self.note.committed.epoch:
            self.note.begin_epoch(epoch)

    def write_state(self, state: QuorumState, kraft_version: int, voters: VoterSet) -> None:
        """Blocking; synced when it returns, and the note of the epoch before it."""
        self.note.sync_epoch()
        ids = [voter.id for voter in voters.voters]
        write_quorum_state(self.disk, self.path, state, kraft_version=kraft_version, voters=ids)
        if not self._is_marked:
            mark(self.disk, os.path.dirname(self.path))
            self._is_marked = True

    def append(self, batches: Buffer, wall_ms: int) -> None:
        """To the page cache; durable after the next flush."""
        self.log.append_as_follower(batches, wall_ms=wall_ms)

    def note_committed(self, offset: int) -> None:
        """To the page cache. Only what is synced here is noted: whoever reads the note may rely on the log for it."""
        self.log.advance_high_watermark(offset)
        self._raise_note(min(offset, self.log.flushed_offset))

    def _raise_note(self, offset: int) -> None:
        try:
            self.note.rise(offset)
        except OSError as error:
            if not is_write_refused(error):
                raise
            # On a full disk: an older note is as true.

    def begin_snapshot(self, snapshot_id: SnapshotId, metadata_version: int) -> SnapshotWriter:
        return SnapshotWriter(
            self.disk, self.path_of(snapshot_id), epoch=snapshot_id.epoch, metadata_version=metadata_version
        )

    def add_snapshot(self, snapshot_id: SnapshotId) -> bool:
        """One that was just finished. False when a later one came from the leader meanwhile: it is for nothing."""
        latest = self.latest_snapshot
        if latest is not None and latest.end_offset >= snapshot_id.end_offset:
            return False
        self.snapshots = [*self.snapshots, snapshot_id]
        return True

    def receive_chunk(self, snapshot_id: SnapshotId, position: int, data: Buffer) -> None:
        """To the page cache. The piece at position 0 begins the file anew. UnwrittenSnapshot when the disk is full."""
        with self._given_up_if_refused():
            if position == 0 or self._receiving is None or self._receiving[0] != snapshot_id:
                self.abandon_received()
                self._receiving = (snapshot_id, SnapshotReceiver(self.disk, self.path_of(snapshot_id)))
            self._receiving[1].write(position, data)

    def is_receiving(self, snapshot_id: SnapshotId) -> bool:
        return self._receiving is not None and self._receiving[0] == snapshot_id

    def finish_received(self, snapshot_id: SnapshotId) -> Snapshot:
        """Blocking. Synced, verified, under its name; from here on a restart begins with it. DamagedSnapshot if it is
        none, UnwrittenSnapshot when the disk is full."""
        assert self._receiving is not None and self._receiving[0] == snapshot_id
        with self._given_up_if_refused():
            return self._receiving[1].finish()

    @contextmanager
    def _given_up_if_refused(self) -> Iterator[None]:
        """Of a failed sync, too, nothing is left to be believed: the next attempt writes another file."""
        try:
            yield
        except OSError as error:
            if not is_write_refused(error):
                raise
            self.abandon_received()
            raise UnwrittenSnapshot(str(error)) from error

    def abandon_received(self) -> None:
        if self._receiving is not None:
            self._receiving[1].abandon()
            self._receiving = None

    def restart_from_snapshot(
        self, snapshot_id: SnapshotId, step: FullTruncation
    ) -> tuple[list[SnapshotId], list[Segment]]:
        """After a received snapshot was finished and `step` was run: the log begins, empty, where the snapshot ends.
        Answers what to remove."""
        segments = step.apply()
        self.log.epochs.assign(snapshot_id.epoch, snapshot_id.end_offset)
        self.log.assume_flushed()
        surplus, self.snapshots = self.snapshots, [snapshot_id]
        self._receiving = None
        self._raise_note(snapshot_id.end_offset)
        return surplus, segments

    def surplus_snapshots(self, wall_ms: int) -> list[SnapshotId]:
        """Blocking. The oldest snapshots, as far as they may be forgotten: too many bytes are kept, or too old ones."""
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

    def forget(self, surplus: Sequence[SnapshotId], wall_ms: int) -> list[Segment]:
        """These snapshots, and the log before the oldest that remains; the files are the caller's to remove.

        Not while the log is being cut: that counts its segments.
        """
        assert self.log.truncating_to is None
        if not surplus:
            return []
        self.snapshots = [snapshot for snapshot in self.snapshots if snapshot not in surplus]
        self.log.delete_records_before(self.snapshots[0].end_offset)
        return self.log.retire(self.log.expired_segments(wall_ms), wall_ms)

    def remove_files(self, snapshots: Sequence[SnapshotId], segments: Sequence[Segment]) -> None:
        """Blocking."""
        for snapshot in snapshots:
            self._stop_serving(snapshot)
            with suppress(FileNotFoundError):
                self.disk.remove(self.path_of(snapshot))
        for segment in segments:
            segment.remove()

    def close(self) -> None:
        """Blocking."""
        self.abandon_received()
        for snapshot in list(self._served):
            self._stop_serving(snapshot)
        self.log.close()
        if self.log.health.is_online:
            self.note.rise(min(self.log.high_watermark, self.log.flushed_offset))
            self.note.sync()
        self.note.close()

    def _stop_serving(self, snapshot_id: SnapshotId) -> None:
        file = self._served.pop(snapshot_id, None)
        if file is not None:
            file.close()
