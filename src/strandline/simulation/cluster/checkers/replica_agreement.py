"""I-10: the logs of a partition are equal below the high watermark, and no log is ever cut below it.

A follower may well cut what lies below the true high watermark, if it is not what is committed there: what a leader
that was deposed gave it. What it must not cut is a committed batch; nor anything that it took for committed itself.
"""

from __future__ import annotations

from strandline.metadata.values import PartitionKey
from strandline.model.ids import TopicPartition
from strandline.replication.partition import Partition
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.committed_records import CommittedRecords, key_of
from strandline.simulation.cluster.log_files import Batch
from strandline.simulation.cluster.replica_state import ReplicaState
from strandline.simulation.cluster.violation import Violation


class _Known:
    """A log as it was last read, of one process."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.compared = 0
        """It agrees with what is committed below this offset."""

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0


class ReplicasAgree(Checker):
    def __init__(self, cluster: Cluster, waterlines: CommittedRecords) -> None:
        self._cluster = cluster
        self._waterlines = waterlines
        self._known: dict[int, dict[PartitionKey, _Known]] = {}

    def booted(self, member: Member) -> None:
        self._known[member.id] = {}

    def moved(self, member: Member, partition: Partition, before: ReplicaState | None, now: ReplicaState) -> None:
        place, key = partition.topic_partition, key_of(partition)
        mine = self._known[member.id]
        known = mine.get(key)
        if known is None or before is None or before.log is not now.log:
            known = mine[key] = _Known()
        elif before.cuts != now.cuts:
            self._check_cut(member, key, place, known, before, now)
        if now.end > known.end:
            since = known.end
            read = self._waterlines.files(member, place).batches(since)
            known.batches += [batch for batch in read if batch.base_offset >= since and batch.next_offset <= now.end]
        if self._waterlines.is_excused(place):
            return
        if now.high_watermark > known.compared:
            self._compare(member, key, place, known, now.high_watermark)
        if now.leader is not None and (before is None or before.leader is not now.leader):
            self._check_leader(member, key, place, known, now)

    def _check_cut(
        self,
        member: Member,
        key: PartitionKey,
        place: TopicPartition,
        known: _Known,
        before: ReplicaState,
        now: ReplicaState,
    ) -> None:
        left = {batch.identity for batch in self._waterlines.files(member, place).batches()}
        gone = [batch for batch in known.batches if batch.identity not in left]
        known.batches = [batch for batch in known.batches if batch.identity in left]
        known.compared = min(known.compared, known.end)
        if self._waterlines.is_excused(place):
            return
        lost = self._waterlines.first_committed(key, gone)
        if lost is not None:
            why = f"{member.name} cuts {place} at {now.end}, and drops what is committed"
            raise Violation("I-10", f"{why}: the batch at {lost.base_offset} of epoch {lost.epoch}")
        if now.end < before.high_watermark:
            why = f"{member.name} cuts {place} at {now.end}"
            raise Violation("I-10", f"{why}, and knew that what is below {before.high_watermark} is committed")

    def _compare(self, member: Member, key: PartitionKey, place: TopicPartition, known: _Known, below: int) -> None:
        end = self._waterlines.end(key)
        if below > end:
            why = f"{member.name} takes {place} for committed up to {below}"
            raise Violation("I-10", f"{why}, and no leader has said so beyond {end}")
        new = [batch for batch in known.batches if batch.next_offset > known.compared]
        different = self._waterlines.first_difference(key, new, below)
        if different is not None:
            why = f"{member.name} has at {different.base_offset} of {place} a batch of epoch {different.epoch}"
            raise Violation("I-10", f"{why} that is not the one that is committed there")
        known.compared = min(below, known.end)

    def _check_leader(
        self, member: Member, key: PartitionKey, place: TopicPartition, known: _Known, now: ReplicaState
    ) -> None:
        info, end = self._cluster.ledger.image.latest.partition(*key), self._waterlines.end(key)
        leader = now.leader
        if info is None or leader is None or leader.leader_epoch != info.leader_epoch:
            return
        if now.end < end:
            why = f"{member.name} leads epoch {info.leader_epoch} of {place} with a log that ends at {now.end}"
            raise Violation("I-10", f"{why}, and {end} is committed")
        self._compare(member, key, place, known, end)
