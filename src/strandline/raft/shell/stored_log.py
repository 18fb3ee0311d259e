"""The machine's log (`ReplicaLog`) over the log on disk: appends to the page cache, syncs, truncations.

Owned by the driver, which also appends the controller's records through it. It keeps the history of voters up to date
with every record of voters that is appended or truncated.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from strandline.log.partition_log import PartitionLog
from strandline.log.segment import Segment
from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.raft.disk.batches import control_records, encode_control_batch
from strandline.raft.disk.snapshots import Snapshot
from strandline.raft.disk.storage import MetadataStorage
from strandline.raft.machine.values import ControlRecord, SnapshotId
from strandline.raft.machine.voters import VoterHistory, VoterSet
from strandline.raft.shell.appends import Accumulator
from strandline.raft.shell.replay import Replay
from strandline.records.batch import BatchHeader, CorruptBatch, batches, crc_ok
from strandline.runtime.clock import Clock
from strandline.runtime.disk import Buffer
from strandline.runtime.offload import Offload

# Of one fetch response: about five milliseconds of work. The rest is fetched again.
_BATCHES_PER_APPEND: Final = 1500


class StoredLog:
    def __init__(self, storage: MetadataStorage, history: VoterHistory, clock: Clock, epoch: Callable[[], int]) -> None:
        """`epoch`: the epoch of this replica. Batches of a later epoch are rejected."""
        self._storage = storage
        self._log = storage.log
        self._clock = clock
        self._epoch = epoch
        self.history = history
        self.accumulator: Accumulator | None = None
        """The accumulator while this node leads. Its records are written before any later control record."""

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def flushed_offset(self) -> int:
        return self._log.flushed_offset

    @property
    def last_epoch(self) -> int:
        entries, latest = self._log.epochs.entries, self.latest_snapshot
        if entries:
            return entries[-1][0]
        return 0 if latest is None else latest.epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        entries, last_epoch = self._log.epochs.entries, self.last_epoch
        if epoch >= last_epoch:
            return last_epoch, self.end_offset
        above = bisect_right(entries, epoch, key=_epoch_of)
        if above > 0:
            return entries[above - 1][0], entries[above][1]
        earliest = self.earliest_snapshot
        return (epoch, self.start_offset) if earliest is None else (earliest.epoch, earliest.end_offset)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self._storage.latest_snapshot

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        snapshots = self._storage.snapshots
        return snapshots[0] if snapshots else None

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        if snapshot_id not in self._storage.snapshots:
            return None
        try:
            return self._storage.disk.size(self._storage.path_of(snapshot_id))
        except FileNotFoundError:
            return None

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def voters_offset(self) -> int:
        return self.history.voters_offset

    @property
    def kraft_version(self) -> int:
        return self.history.kraft_version

    def append_control(self, records: Sequence[ControlRecord], epoch: int) -> int:
        self._write_appended()
        base_offset, wall_ms = self.end_offset, self._clock.wall_ms()
        self._append(encode_control_batch(records, base_offset=base_offset, epoch=epoch, timestamp=wall_ms))
        for offset, record in enumerate(records, base_offset):
            self.history.on_record(offset, record)
        if self.accumulator is not None:
            self.accumulator.end_offset = self.end_offset
        return base_offset

    def append_encoded(self, max_bytes: int) -> int:
        """Writes the controller's records that are encoded; returns how many bytes were written."""
        assert self.accumulator is not None
        data = self.accumulator.take(max_bytes)
        if data:
            self._append(data)
        return len(data)

    def append_as_follower(self, records: Buffer) -> None:
        expected, epoch = self.end_offset, self._epoch()
        control: list[tuple[int, ControlRecord]] = []
        end = 0
        for count, (position, header) in enumerate(batches(records), 1):
            if header.base_offset != expected or header.partition_leader_epoch > epoch:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD,
                    f"a batch at offset {header.base_offset} of epoch {header.partition_leader_epoch} cannot follow "
                    f"offset {expected - 1} in epoch {epoch}",
                )
            if header.is_control:
                control += self._control_records(records, position, header)
            expected, end = header.next_offset, position + header.size_bytes
            if count == _BATCHES_PER_APPEND:
                break
        before = self.end_offset
        try:
            self._append(memoryview(records)[:end], fetched=True)
        except KafkaError:
            # The disk became full: what was written stays, the rest is fetched again.
            if self.end_offset == before:
                raise
        for offset, record in control:
            if offset < self.end_offset:
                self.history.on_record(offset, record)

    def on_truncated(self) -> None:
        self.history.on_truncated(self.end_offset)

    def on_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """The log was truncated fully and starts where a snapshot of the leader ends."""
        self.history.on_snapshot(snapshot_id.end_offset, snapshot.kraft_version, snapshot.voters)

    def _write_appended(self) -> None:
        """Writes everything that already has an offset. Blocks the event loop, but voters change rarely."""
        if self.accumulator is None:
            return
        if self.accumulator.is_reserved:
            raise NodeFault("the quorum would append a control record at an offset that the controller has reserved")
        self.accumulator.encode_all()
        while self.append_encoded(1 << 30):
            pass

    def _append(self, data: Buffer, *, fetched: bool = False) -> None:
        try:
            self._storage.append(data, self._clock.wall_ms())
        except KafkaError as error:
            # The disk is full: a leader cannot continue, a follower fetches again later.
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR and (not fetched or not self._log.health.is_online):
                raise NodeFault(f"the metadata log cannot be written: {error.why}") from error
            raise

    def _control_records(self, data: Buffer, position: int, header: BatchHeader) -> list[tuple[int, ControlRecord]]:
        if not crc_ok(data, position, header.size_bytes):
            raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} does not match")
        return control_records(data, position, header, "a fetched batch")


class Flusher:
    """Syncs the log in the background, one sync at a time: requests during a sync are served by the next one."""

    def __init__(self, log: PartitionLog, offload: Offload, on_flushed: Callable[[], None]) -> None:
        """`on_flushed`: `log.flushed_offset` may have advanced."""
        self._log = log
        self._offload = offload
        self._on_flushed = on_flushed
        self._due = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()

    def request(self) -> None:
        self._due.set()

    async def run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            self.idle.clear()
            await self.flush()
            self.idle.set()
            self._on_flushed()

    async def flush(self) -> None:
        """A failed sync is never retried: the node stops."""
        try:
            await self._offload.run(self._log.flush)
        except KafkaError as error:
            raise NodeFault(f"the metadata log cannot be written: {error.why}") from error


async def truncate(
    log: StoredLog, storage: MetadataStorage, flusher: Flusher, offload: Offload, offset: int
) -> list[Segment]:
    """Truncates the log to `offset`, which is not below the high watermark. Returns the segments to remove."""
    # The checkpoints that truncation writes describe the part that stays: it must be synced first.
    await flusher.flush()
    truncation = storage.log.begin_truncation(offset)
    await offload.run(truncation.run)
    segments = truncation.apply()
    log.on_truncated()
    return segments


async def restart_from_snapshot(
    log: StoredLog, storage: MetadataStorage, replay: Replay, offload: Offload, snapshot_id: SnapshotId, wall_ms: int
) -> tuple[list[SnapshotId], list[Segment]]:
    """Truncates the log fully, to start at the end of a received snapshot. Returns the files to remove. DamagedSnapshot
    when the snapshot is not whole, UnwrittenSnapshot when the disk is full: then the log is unchanged.

    Safe at a power loss: 1. the snapshot gets its final name, 2. the log is truncated. After a power loss in between,
    `opening` sees that the log ends before the snapshot, or diverges from it, and truncates it.
    """
    snapshot = await offload.run(storage.finish_received, snapshot_id)
    replay.pause()
    truncation = storage.log.begin_full_truncation(snapshot_id.end_offset)
    await offload.run(truncation.run, wall_ms)
    surplus = storage.restart_from_snapshot(snapshot_id, truncation)
    log.on_snapshot(snapshot_id, snapshot)
    replay.load(snapshot_id, snapshot)
    return surplus


def _epoch_of(entry: tuple[int, int]) -> int:
    return entry[0]
