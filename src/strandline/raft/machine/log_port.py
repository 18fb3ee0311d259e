"""The log as the machine uses it, synchronously: offsets, epochs, voters; appends to the page cache.

`shell/stored_log` implements it over `MetadataStorage`, tests in memory. The machine never reads records: it names
their offsets (`ReplyWithRecords`), and appends fetched batches as bytes. At the start everything in the log is synced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from strandline.raft.machine.values import ControlRecord, SnapshotId
from strandline.raft.machine.voters import VoterHistory, VoterSet
from strandline.runtime.disk import Buffer


class ReplicaLog(Protocol):
    @property
    def start_offset(self) -> int:
        """The first offset in the log; above 0 only where a snapshot ends."""

    @property
    def end_offset(self) -> int:
        """The offset of the next record; records that are not synced yet count."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the latest snapshot when the log is empty after it; 0 without either."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch not above `epoch`, the offset where it ends).

        Above all epochs: (last_epoch, end_offset). Below all epochs: the epoch and the end of the earliest snapshot if
        there is one, otherwise (`epoch`, start_offset).
        """

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The latest snapshot, except the one that formatting makes (0-0), which has no metadata in it."""

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        """The oldest that is kept, with the same exception."""

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """The size of a snapshot in bytes; None when it does not exist."""

    @property
    def voters(self) -> VoterSet:
        """The voters of the last VotersRecord, committed or not (KIP-853); as configured while kraft.version is 0."""

    @property
    def voters_offset(self) -> int:
        """The offset of that record (in a snapshot: its last offset); -1 if formatting or the config named the
        voters."""

    @property
    def history(self) -> VoterHistory:
        """The voter sets of all parts of the log."""

    @property
    def kraft_version(self) -> int:
        """The level of the last KRaftVersionRecord, committed or not."""

    def append_control(self, records: Sequence[ControlRecord], epoch: int) -> int:
        """Appends one batch to the page cache; returns the offset of its first record."""

    def append_as_follower(self, records: Buffer) -> None:
        """Appends whole batches from the leader to the page cache, without a partial one at the end.

        CorruptBatch or KafkaError when they are invalid (checksum, offsets, epochs): they are fetched again.
        """
