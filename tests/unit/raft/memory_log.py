"""A metadata log in memory, with the difference between what is written and what is synced."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

from strandline.model.errors import ErrorCode, KafkaError
from strandline.raft.machine.values import ControlRecord, SnapshotId
from strandline.raft.machine.voters import VoterHistory, VoterSet
from strandline.runtime.disk import Buffer


@dataclass(frozen=True, slots=True)
class Batch:
    base_offset: int
    epoch: int
    records: tuple[str | ControlRecord, ...]
    """The controller's records are strings."""

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.records)


class MemoryLog:
    def __init__(self, first: VoterSet, kraft_version: int) -> None:
        self.batches: list[Batch] = []
        self.synced_end = 0
        self.snapshots: dict[SnapshotId, bytes] = {}
        self._start = SnapshotId(0, 0)
        self.history = VoterHistory(first, kraft_version)

    @property
    def start_offset(self) -> int:
        return self._start.end_offset

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else self._start.end_offset

    @property
    def last_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else self._start.epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        for batch in reversed(self.batches):
            if batch.epoch <= epoch:
                return batch.epoch, batch.next_offset
        return (self._start.epoch, self._start.end_offset) if self.snapshots else (epoch, self._start.end_offset)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return max(self.snapshots, default=None)

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return min(self.snapshots, default=None)

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        return len(self.snapshots[snapshot_id]) if snapshot_id in self.snapshots else None

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
        return self._append(Batch(self.end_offset, epoch, tuple(records)))

    def append_data(self, records: Sequence[str], epoch: int) -> int:
        return self._append(Batch(self.end_offset, epoch, tuple(records)))

    def append_as_follower(self, records: Buffer) -> None:
        for batch in pickle.loads(records):
            if batch.base_offset != self.end_offset or batch.epoch < self.last_epoch:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch for {batch.base_offset} at {self.end_offset}")
            self._append(batch)

    def read(self, offset: int, max_batches: int) -> bytes:
        found = [batch for batch in self.batches if batch.next_offset > offset]
        return pickle.dumps(found[:max_batches])

    def sync(self, end_offset: int) -> None:
        self.synced_end = max(self.synced_end, min(end_offset, self.end_offset))

    def truncate(self, end_offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.next_offset <= end_offset]
        assert self.end_offset == end_offset, "a log is truncated between batches"
        self.synced_end = min(self.synced_end, end_offset)
        self.history.on_truncated(end_offset)

    def write_snapshot(self, snapshot_id: SnapshotId, content: bytes) -> None:
        self.snapshots[snapshot_id] = content

    def begin_at(self, snapshot_id: SnapshotId) -> None:
        """Removes the log before the end of this snapshot."""
        self.snapshots = {key: value for key, value in self.snapshots.items() if key >= snapshot_id}
        self.batches = [batch for batch in self.batches if batch.base_offset >= snapshot_id.end_offset]
        self._start = snapshot_id
        self.history.forget_before(snapshot_id.end_offset)

    def restart_at(self, snapshot_id: SnapshotId, content: bytes, kraft_version: int, voters: VoterSet | None) -> None:
        """Truncates the log fully, to start at the end of a fetched snapshot."""
        self.snapshots = {snapshot_id: content}
        self.batches = []
        self._start = snapshot_id
        self.synced_end = snapshot_id.end_offset
        self.history.on_snapshot(snapshot_id.end_offset, kraft_version, voters)

    def records(self, first: int, end: int) -> list[tuple[int, int, str | ControlRecord]]:
        """(offset, epoch, record) of a range."""
        return [
            (offset, batch.epoch, record)
            for batch in self.batches
            if batch.next_offset > first and batch.base_offset < end
            for offset, record in enumerate(batch.records, batch.base_offset)
            if first <= offset < end
        ]

    def _append(self, batch: Batch) -> int:
        self.batches.append(batch)
        for offset, record in enumerate(batch.records, batch.base_offset):
            if not isinstance(record, str):
                self.history.on_record(offset, record)
        return batch.base_offset
