"""The machine's log (`ReplicaLog`) over the one on disk: ends, epochs, voters, and appending to the page cache.

Made by the driver, which also appends the controller's records through it. It keeps the history of voters along with
the log, whichever way a record of theirs comes in or is cut off.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.raft.disk.batches import control_records, encode_control_batch
from strandline.raft.disk.snapshots import Snapshot
from strandline.raft.disk.storage import MetadataStorage
from strandline.raft.machine.values import ControlRecord, SnapshotId
from strandline.raft.machine.voters import VoterHistory, VoterSet
from strandline.raft.shell.accumulator import Accumulator
from strandline.records.batch import BatchHeader, CorruptBatch, batches, crc_ok
from strandline.runtime.clock import Clock
from strandline.runtime.disk import Buffer

# Of one response, about five milliseconds of work. What is left out is fetched again.
_BATCHES_PER_APPEND: Final = 1500


class StoredLog:
    def __init__(self, storage: MetadataStorage, history: VoterHistory, clock: Clock, epoch: Callable[[], int]) -> None:
        """`epoch`: the quorum's, as far as this replica knows. Nobody whom it believes writes in a later one."""
        self._storage = storage
        self._log = storage.log
        self._clock = clock
        self._epoch = epoch
        self.history = history
        self.accumulator: Accumulator | None = None
        """Of the leadership that this node holds: what it was given is in the log before any later control record."""

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
        """The controller's records, as far as they are encoded: how many bytes of them were written now."""
        assert self.accumulator is not None
        data = self.accumulator.take(max_bytes)
        if data:
            self._append(data)
        return len(data)

    def append_as_follower(self, records: Buffer) -> None:
        due, epoch = self.end_offset, self._epoch()
        told: list[tuple[int, ControlRecord]] = []
        end = 0
        for count, (position, header) in enumerate(batches(records), 1):
            if header.base_offset != due or header.partition_leader_epoch > epoch:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD,
                    f"a batch at offset {header.base_offset} of epoch {header.partition_leader_epoch} cannot follow "
                    f"offset {due - 1} in epoch {epoch}",
                )
            if header.is_control:
                told += self._control_records(records, position, header)
            due, end = header.next_offset, position + header.size_bytes
            if count == _BATCHES_PER_APPEND:
                break
        before = self.end_offset
        try:
            self._append(memoryview(records)[:end], fetched=True)
        except KafkaError:
            # The disk is full in the middle: what was written stands, and the rest is fetched again.
            if self.end_offset == before:
                raise
        for offset, record in told:
            if offset < self.end_offset:
                self.history.on_record(offset, record)

    def on_truncated(self) -> None:
        """The end of the log was cut off, and with it whatever it said about voters."""
        self.history.on_truncated(self.end_offset)

    def on_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """The log begins anew where a snapshot of the leader ends."""
        self.history.on_snapshot(snapshot_id.end_offset, snapshot.kraft_version, snapshot.voters)

    def _write_appended(self) -> None:
        """Everything that has an offset already comes first. Voters change rarely: this once the loop waits for it."""
        if self.accumulator is None:
            return
        if self.accumulator.is_reserved:
            raise NodeFault("the quorum would write to its log at an offset that its controller has reserved")
        self.accumulator.encode_all()
        while self.append_encoded(1 << 30):
            pass

    def _append(self, data: Buffer, *, fetched: bool = False) -> None:
        try:
            self._storage.append(data, self._clock.wall_ms())
        except KafkaError as error:
            # A full disk: what this node leads it cannot lead on, what it follows it can fetch again later.
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR and (not fetched or not self._log.health.is_online):
                raise NodeFault(f"the metadata log cannot be written: {error.why}") from error
            raise

    def _control_records(self, data: Buffer, position: int, header: BatchHeader) -> list[tuple[int, ControlRecord]]:
        if not crc_ok(data, position, header.size_bytes):
            raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} does not fit")
        return control_records(data, position, header, "a fetched batch")


def _epoch_of(entry: tuple[int, int]) -> int:
    return entry[0]
