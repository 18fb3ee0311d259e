"""I-10: the logs of a partition are equal below the high watermark, and no log is truncated below it.

A follower may truncate below the leader's high watermark if its batches there, received from a deposed leader, differ
from the committed ones. It must not truncate a committed batch, nor anything below its own high watermark.
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
    """The log of one process as last read."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.compared = 0
        """Batches below this offset have been compared with the committed ones."""

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0


class ReplicasAgree(Checker):
    def __init__(self, cluster: Cluster, committed_records: CommittedRecords) -> None:
        self._cluster = cluster
        self._committed_records = committed_records
        self._known: dict[int, dict[PartitionKey, _Known]] = {}

    def node_started(self, member: Member) -> None:
        self._known[member.id] = {}

    def replica_changed(
        self, member: Member, partition: Partition, before: ReplicaState | None, now: ReplicaState
    ) -> None:
        topic_partition, key = partition.topic_partition, key_of(partition)
        mine = self._known[member.id]
        known = mine.get(key)
        if known is None or before is None or before.log is not now.log:
            known = mine[key] = _Known()
        elif before.truncations != now.truncations:
            self._check_truncation(member, key, topic_partition, known, before, now)
        if now.end > known.end:
            since = known.end
            read = self._committed_records.files(member, topic_partition).batches(since)
            known.batches += [batch for batch in read if batch.base_offset >= since and batch.next_offset <= now.end]
        if self._committed_records.is_excused(topic_partition):
            return
        if now.high_watermark > known.compared:
            self._compare(member, key, topic_partition, known, now.high_watermark)
        if now.leader is not None and (before is None or before.leader is not now.leader):
            self._check_leader(member, key, topic_partition, known, now)

    def _check_truncation(
        self,
        member: Member,
        key: PartitionKey,
        topic_partition: TopicPartition,
        known: _Known,
        before: ReplicaState,
        now: ReplicaState,
    ) -> None:
        left = {batch.identity for batch in self._committed_records.files(member, topic_partition).batches()}
        removed = [batch for batch in known.batches if batch.identity not in left]
        known.batches = [batch for batch in known.batches if batch.identity in left]
        known.compared = min(known.compared, known.end)
        if self._committed_records.is_excused(topic_partition):
            return
        lost = self._committed_records.first_committed(key, removed)
        if lost is not None:
            why = f"{member.name} truncates {topic_partition} to {now.end} and loses a committed batch"
            raise Violation("I-10", f"{why}: the batch at {lost.base_offset} of epoch {lost.epoch}")
        if now.end < before.high_watermark:
            why = f"{member.name} truncates {topic_partition} to {now.end}"
            raise Violation("I-10", f"{why}, below its own high watermark {before.high_watermark}")

    def _compare(
        self, member: Member, key: PartitionKey, topic_partition: TopicPartition, known: _Known, below: int
    ) -> None:
        end = self._committed_records.end(key)
        if below > end:
            why = f"{member.name} has the high watermark {below} of {topic_partition}"
            raise Violation("I-10", f"{why}, and no leader has committed beyond {end}")
        new = [batch for batch in known.batches if batch.next_offset > known.compared]
        different = self._committed_records.first_difference(key, new, below)
        if different is not None:
            why = (
                f"{member.name} has at {different.base_offset} of {topic_partition} a batch of epoch {different.epoch}"
            )
            raise Violation("I-10", f"{why} that differs from the committed batch")
        known.compared = min(below, known.end)

    def _check_leader(
        self, member: Member, key: PartitionKey, topic_partition: TopicPartition, known: _Known, now: ReplicaState
    ) -> None:
        info, end = self._cluster.metadata.image.latest.partition(*key), self._committed_records.end(key)
        leader = now.leader
        if info is None or leader is None or leader.leader_epoch != info.leader_epoch:
            return
        if now.end < end:
            why = (
                f"{member.name} leads epoch {info.leader_epoch} of {topic_partition} with a log that ends at {now.end}"
            )
            raise Violation("I-10", f"{why}, and {end} is committed")
        self._compare(member, key, topic_partition, known, end)
