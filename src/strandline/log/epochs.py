"""Which leader epoch wrote which part of a log: ascending pairs of (leader epoch, first offset of that epoch).

Owned by one PartitionLog; replication (OffsetForLeaderEpoch, truncation) and raft query it. `entries` is an immutable
tuple that is replaced, so a thread may write it to leader-epoch-checkpoint while the event loop assigns the next epoch.

The file may lag behind: epochs past the recovery point are read from the batches again when a log is recovered, so the
file only has to be written before the recovery point is (see `flushing`).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

NO_EPOCH = -1
NO_OFFSET = -1


class EpochEnd(NamedTuple):
    """The largest epoch not above the requested one, and where it ends (the first offset of the next)."""

    leader_epoch: int
    end_offset: int


UNDEFINED = EpochEnd(NO_EPOCH, NO_OFFSET)


class EpochCache:
    __slots__ = ("entries", "latest", "written")

    def __init__(self, entries: tuple[tuple[int, int], ...] = ()) -> None:
        self.entries = entries
        self.latest = entries[-1][0] if entries else NO_EPOCH
        """The newest epoch, or -1."""
        self.written = entries
        """What leader-epoch-checkpoint holds."""

    def assign(self, leader_epoch: int, start_offset: int) -> None:
        """Batches from `start_offset` on are of this epoch; entries that contradict it were never committed."""
        entries = self.entries
        if entries and entries[-1][0] == leader_epoch and start_offset >= entries[-1][1]:
            return
        keep = len(entries)
        while keep and (entries[keep - 1][0] >= leader_epoch or entries[keep - 1][1] >= start_offset):
            keep -= 1
        self._replace((*entries[:keep], (leader_epoch, start_offset)))

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
        """The epoch that wrote `offset`; -1 when it is not known."""
        at = bisect_right(self.entries, offset, key=_start_of)
        return self.entries[at - 1][0] if at else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        self._replace(tuple(entry for entry in self.entries if entry[1] < end_offset))

    def truncate_from_start(self, start_offset: int) -> None:
        """Removes epochs that ended before `start_offset`; the epoch of that offset now starts there."""
        above = bisect_right(self.entries, start_offset, key=_start_of)
        if above:
            self._replace(((self.entries[above - 1][0], start_offset), *self.entries[above:]))

    def install(self, entries: tuple[tuple[int, int], ...]) -> None:
        """Replaces all entries by those that a truncation has written to disk."""
        self.written = entries
        self._replace(entries)

    def _replace(self, entries: tuple[tuple[int, int], ...]) -> None:
        self.entries = entries
        self.latest = entries[-1][0] if entries else NO_EPOCH


def _epoch_of(entry: tuple[int, int]) -> int:
    return entry[0]


def _start_of(entry: tuple[int, int]) -> int:
    return entry[1]
