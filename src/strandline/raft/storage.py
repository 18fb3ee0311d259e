"""The metadata log on disk: `__cluster_metadata-0`, its snapshots, its quorum state.

Owned by the driver. The log itself is a `PartitionLog` whose batches come with their offsets and epochs; it is always
opened as after a crash, read from the beginning and cut at the first batch that is not whole, unless that would cut off
what was committed (see `examination`): then it is not opened at all. Methods marked *blocking* are offloaded; the
others belong to the event loop.

Invariants: a snapshot's file name appears only when its content is synced; the log reaches back at least to the end of
the oldest snapshot, so snapshot + tail is always everything; the latest snapshot is never removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from strandline.log.checkpoints import topic_id_bytes
from strandline.log.partition_log import PartitionLog
from strandline.log.segment import Segment
from strandline.log.settings import LogSettings
from strandline.log.warming import Cold
from strandline.model.errors import NodeFault
from strandline.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from strandline.raft.batches import MetadataBatch, read_batches
from strandline.raft.committed import Committed, CommittedNote
from strandline.raft.examination import refuse_lost_metadata
from strandline.raft.snapshots import (
    Snapshot,
    SnapshotId,
    SnapshotWriter,
    list_snapshots,
    make_durable_directory,
    read_snapshot,
    remove_unfinished_snapshots,
)
from strandline.raft.state import QuorumState, read_quorum_state, write_quorum_state
from strandline.raft.voters import VoterSet
from strandline.runtime.disk import Disk, write_atomically

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Kafka's keys in the comments; its defaults."""

    segment_bytes: int = 1 << 30  # metadata.log.segment.bytes
    segment_ms: int = 604_800_000  # metadata.log.segment.ms
    retention_bytes: int = 104_857_600  # metadata.max.retention.bytes
    retention_ms: int = 604_800_000  # metadata.max.retention.ms


class MetadataStorage:
    def __init__(self, disk: Disk, path: str, settings: StorageSettings, log: PartitionLog) -> None:
        self.disk = disk
        self.path = path
        self.log = log
        self._settings = settings
        self._note: CommittedNote | None = None
        self.snapshots: list[SnapshotId] = []
        """Oldest first, without the one that only names the first voters."""

    @classmethod
    def open(
        cls, disk: Disk, metadata_directory: str, *, wall_ms: int, settings: StorageSettings | None = None
    ) -> MetadataStorage:
        """Blocking. The metadata partition under this log directory, made if it is not there."""
        settings = settings or StorageSettings()
        path = f"{metadata_directory}/{METADATA_PARTITION}"
        make_durable_directory(disk, path)
        snapshots = [snapshot for snapshot in list_snapshots(disk, path) if not snapshot.is_first_voters]
        refuse_lost_metadata(disk, path, snapshots[-1] if snapshots else None)
        remove_unfinished_snapshots(disk, path)
        log = PartitionLog.open(
            disk,
            path,
            METADATA_PARTITION,
            LogSettings(
                segment_bytes=settings.segment_bytes,
                segment_ms=settings.segment_ms,
                retention_ms=-1,
                retention_bytes=-1,
                flush_messages=1,  # whatever a crash left in the cache is on disk before it is built upon
            ),
            recovery_point=0,
            clean=False,
            wall_ms=wall_ms,
        )
        storage = cls(disk, path, settings, log)
        storage.snapshots = snapshots
        storage._fit_log_to_snapshots()
        if not disk.exists(f"{path}/partition.metadata"):
            write_atomically(disk, f"{path}/partition.metadata", topic_id_bytes(METADATA_TOPIC_ID))
        return storage

    def _fit_log_to_snapshots(self) -> None:
        """A log that ends before the latest snapshot has lost its end or has not caught up: it begins again there."""
        latest = self.latest_snapshot
        if latest is None:
            if self.log.log_start_offset > 0:
                raise NodeFault(
                    f"{self.path} begins at offset {self.log.log_start_offset}, but the snapshot of what came before "
                    "is missing. Restore a .checkpoint file that ends there or later"
                )
            return
        if self.log.log_end_offset < latest.end_offset:
            self.log.restart_at(latest.end_offset)
            self.log.epochs.assign(latest.epoch, latest.end_offset)
        elif self.log.log_start_offset > latest.end_offset:
            raise NodeFault(
                f"{self.path} begins at offset {self.log.log_start_offset}, after the end of its latest snapshot "
                f"({latest.end_offset}): metadata in between is missing"
            )
        self.log.advance_high_watermark(latest.end_offset)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[-1] if self.snapshots else None

    def read_latest_snapshot(self) -> Snapshot | None:
        """Blocking."""
        latest = self.latest_snapshot
        return None if latest is None else read_snapshot(self.disk, f"{self.path}/{latest.file_name}")

    def read_first_voters(self) -> Snapshot | None:
        """Blocking. What formatting said about a dynamic quorum; None where voters are configured."""
        path = f"{self.path}/{SnapshotId(0, 0).file_name}"
        return read_snapshot(self.disk, path) if self.disk.exists(path) else None

    def batches_from(self, offset: int) -> Iterator[MetadataBatch]:
        """Blocking. Every batch from this offset to the end of the log."""
        while offset < self.log.log_end_offset:
            found = self.log.read(offset, max_bytes=_READ_BYTES)
            if isinstance(found, Cold):
                found.warm()
                continue
            if found.slice is None:
                return
            for batch in read_batches(found.slice.read(), self.path):
                if batch.next_offset > offset:
                    yield batch
                    offset = batch.next_offset

    def read_state(self) -> QuorumState:
        """Blocking."""
        return read_quorum_state(self.disk, self.path)

    def write_state(self, state: QuorumState, kraft_version: int, voters: VoterSet) -> None:
        """Blocking; synced when it returns."""
        ids = [voter.id for voter in voters.voters]
        write_quorum_state(self.disk, self.path, state, kraft_version=kraft_version, voters=ids)

    def append(self, batches: bytearray | bytes, wall_ms: int) -> None:
        """To the page cache; durable after the next `commit`."""
        self.log.append_batches(batches, wall_ms=wall_ms)

    def commit(self, epoch: int) -> int:
        """Blocking. Flushes, and notes that everything below the offset returned is committed: right for a sole voter,
        which needs nobody else for that."""
        offset = self.log.flush()
        if self._note is None:
            self._note = CommittedNote(self.disk, self.path, Committed(epoch, offset))
        else:
            self._note.rise(offset)
        return offset

    def begin_snapshot(self, snapshot_id: SnapshotId, metadata_version: int) -> SnapshotWriter:
        return SnapshotWriter(
            self.disk,
            f"{self.path}/{snapshot_id.file_name}",
            epoch=snapshot_id.epoch,
            metadata_version=metadata_version,
        )

    def finish_snapshot(self, snapshot_id: SnapshotId, writer: SnapshotWriter, wall_ms: int) -> None:
        """Blocking. From here on a restart begins with this snapshot."""
        writer.finish(wall_ms)
        self.snapshots = [*self.snapshots, snapshot_id]

    def surplus_snapshots(self, wall_ms: int) -> int:
        """Blocking. How many of the oldest snapshots may be forgotten: too many bytes are kept, or too old ones."""
        sizes = [self.disk.size(f"{self.path}/{snapshot.file_name}") for snapshot in self.snapshots]
        kept_bytes = sum(sizes) + self.log.size_bytes
        count = 0
        for snapshot, size in zip(self.snapshots[:-1], sizes, strict=False):
            age_ms = wall_ms - self.disk.modified_ms(f"{self.path}/{snapshot.file_name}")
            if kept_bytes <= self._settings.retention_bytes and age_ms <= self._settings.retention_ms:
                break
            kept_bytes -= size
            count += 1
        return count

    def forget_snapshots(self, count: int) -> list[SnapshotId]:
        """The log begins where the oldest remaining snapshot ends; the files are the caller's to remove."""
        forgotten, self.snapshots = self.snapshots[:count], self.snapshots[count:]
        if forgotten:
            self.log.delete_records_before(self.snapshots[0].end_offset)
        return forgotten

    def remove_files(self, snapshots: Sequence[SnapshotId], segments: Sequence[Segment]) -> None:
        """Blocking."""
        for snapshot in snapshots:
            self.disk.remove(f"{self.path}/{snapshot.file_name}")
        for segment in segments:
            segment.remove()

    def close(self) -> None:
        """Blocking."""
        self.log.close()
        if self._note is not None:
            if self.log.health.is_online:
                self._note.rise(self.log.flushed_offset)
                self._note.sync()
            self._note.close()
