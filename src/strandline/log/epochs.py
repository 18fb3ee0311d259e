"""Which leader epoch wrote which part of a log: rising pairs of (leader epoch, first offset of that epoch).

Owned by one PartitionLog; asked by replication (OffsetForLeaderEpoch, truncation) and by raft. The entries are an
immutable tuple that is replaced, so a thread may write `entries` to disk while the event loop assigns the next epoch.

The file on disk may be behind: what lies past the recovery point is learnt again from the batches when a log is
recovered, so the file only has to be written before the recovery point is (see `flushing`).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

NO_EPOCH = -1
NO_OFFSET = -1


class EpochEnd(NamedTuple):
    """The largest epoch not above the one asked for, and where it ends (the first offset of the next)."""

    leader_epoch: int
    end_offset: int


UNDEFINED = EpochEnd(NO_EPOCH, NO_OFFSET)


class EpochCache:
    __slots__ = ("entries", "written")

    def __init__(self, entries: tuple[tuple[int, int], ...] = ()) -> None:
        self.entries = entries
        self.written = entries

    @property
    def latest(self) -> int:
        """The newest epoch, or -1."""
        return self.entries[-1][0] if self.entries else NO_EPOCH

    def assign(self, leader_epoch: int, start_offset: int) -> None:
        """From `start_offset` on, batches are of this epoch; entries that contradict it were never committed."""
        entries = self.entries
        if entries and entries[-1][0] == leader_epoch and start_offset >= entries[-1][1]:
            return
        keep = len(entries)
        while keep and (entries[keep - 1][0] >= leader_epoch or entries[keep - 1][1] >= start_offset):
            keep -= 1
        self.entries = (*entries[:keep], (leader_epoch, start_offset))

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> EpochEnd:
        entries = self.entries
        if leader_epoch == NO_EPOCH or not entries:
            return UNDEFINED
        if leader_epoch == entries[-1][0]:
            return EpochEnd(leader_epoch, log_end_offset)
        above = bisect_right(entries, leader_epoch, key=_epoch_of)
        if above == len(entries):
            return UNDEFINED
        floor = leader_epoch if above == 0 else entries[above - 1][0]
        return EpochEnd(floor, entries[above][1])

    def epoch_for(self, offset: int) -> int:
        """The epoch that wrote `offset`, or -1 when the log does not know."""
        at = bisect_right(self.entries, offset, key=_start_of)
        return self.entries[at - 1][0] if at else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        self.entries = tuple(entry for entry in self.entries if entry[1] < end_offset)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget what ended before `start_offset`; the epoch in force there now begins there."""
        above = bisect_right(self.entries, start_offset, key=_start_of)
        if above:
            self.entries = ((self.entries[above - 1][0], start_offset), *self.entries[above:])


def _epoch_of(entry: tuple[int, int]) -> int:
    return entry[0]


def _start_of(entry: tuple[int, int]) -> int:
    return entry[1]
