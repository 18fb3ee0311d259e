"""What the machine asks of its log, synchronously: ends, epochs, voters; appending to the page cache.

The driver has an adapter over `MetadataStorage`; tests have a log in memory. The machine never reads records: it says
where they are (`ReplyWithRecords`), and takes fetched ones as bytes.

When the machine is made, everything in the log is taken to be synced.
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
        """The offset of the next record, whoever writes it; what is written but not yet synced counts."""

    @property
    def last_epoch(self) -> int:
        """Of the last record; of the latest snapshot when the log is empty behind it; 0 when there is nothing."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch not above the one asked for, the offset where it ends).

        Asked above everything: (last_epoch, end_offset). Asked below everything: the epoch and the end of the earliest
        snapshot if there is one, otherwise (the epoch asked for, start_offset).
        """

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """Not the one that formatting makes (0-0), which has no metadata in it."""

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        """Of those that are kept; likewise."""

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """In bytes; None when there is no such snapshot."""

    @property
    def voters(self) -> VoterSet:
        """As the last VotersRecord says, committed or not (KIP-853); while kraft.version is 0, as configured."""

    @property
    def voters_offset(self) -> int:
        """Where that record stands (in a snapshot: its last offset); -1 when it was formatted or configured."""

    @property
    def history(self) -> VoterHistory:
        """Which voters each part of the log was written under."""

    @property
    def kraft_version(self) -> int:
        """As the last KRaftVersionRecord says, committed or not."""

    def append_control(self, records: Sequence[ControlRecord], epoch: int) -> int:
        """One batch at the end of the log, to the page cache; the offset of its first record."""

    def append_as_follower(self, records: Buffer) -> None:
        """Whole batches from the leader, to the page cache; a partial one at the end is left out.

        CorruptBatch or KafkaError when they do not fit (checksum, offsets, epochs): they are fetched again.
        """
