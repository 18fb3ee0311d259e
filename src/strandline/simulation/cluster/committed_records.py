"""The highest high watermark that a leader of each partition has reached, and the committed batches below it.

Extended with the high watermarks of partition leaders. Checkers compare replicas with it.

A partition is *excused* from these checks once the disk of a broker was wiped, when machines lose power and its topic
is not flushed, and after a broker has led it that was neither in sync nor eligible (an unclean election, or the last
known leader, see docs/decisions/0017): such losses are allowed.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.metadata.values import NO_LEADER, PartitionInfo, PartitionKey
from strandline.model.ids import TopicPartition
from strandline.replication.partition import Partition
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.log_files import Batch, LogFiles
from strandline.simulation.cluster.metadata_model import Assignment, MetadataModel
from strandline.simulation.cluster.replica_state import ReplicaState

_FLUSH, _FLUSH_BY_DEFAULT = "flush.messages", "log.flush.interval.messages"
_MIN_ISR = "min.insync.replicas"


class CommittedRecords(Checker):
    """The records known to be committed. Raises no violations itself; runs before the checkers that use it."""

    def __init__(self, cluster: Cluster, model: MetadataModel) -> None:
        self._cluster = cluster
        self._ends: dict[PartitionKey, int] = {}
        self._batches: dict[PartitionKey, dict[int, Batch]] = {}
        self._files: dict[tuple[int, TopicPartition], LogFiles] = {}
        self._unclean: set[str] = set()
        model.subscribe(self._partition_changed)

    def replica_changed(
        self, member: Member, partition: Partition, before: ReplicaState | None, now: ReplicaState
    ) -> None:
        key = key_of(partition)
        since = self.end(key)
        if now.leader is not None and now.leader_high_watermark > since:
            known = self._batches.setdefault(key, {})
            for batch in self.files(member, partition.topic_partition).batches(since):
                if since <= batch.base_offset < now.leader_high_watermark:
                    known[batch.base_offset] = batch
            self._ends[key] = now.leader_high_watermark

    def _partition_changed(self, name: str, before: Assignment, now: Assignment) -> None:
        if now.leader not in (NO_LEADER, before.leader, *before.isr, *before.elr):
            self._unclean.add(name)

    def end(self, key: PartitionKey) -> int:
        """The first offset that no leader has committed."""
        return self._ends.get(key, 0)

    def first_difference(self, key: PartitionKey, batches: Iterable[Batch], below: int) -> Batch | None:
        """The first of these batches below the offset `below` that differs from the committed batch at its offset."""
        known = self._batches.get(key, {})
        for batch in batches:
            if batch.base_offset < below and not self.is_committed(known, batch):
                return batch
        return None

    def first_committed(self, key: PartitionKey, batches: Iterable[Batch]) -> Batch | None:
        """The first of these batches that is committed."""
        known = self._batches.get(key, {})
        return next((batch for batch in batches if self.is_committed(known, batch)), None)

    @staticmethod
    def is_committed(known: dict[int, Batch], batch: Batch) -> bool:
        found = known.get(batch.base_offset)
        return found is not None and found.identity == batch.identity

    def files(self, member: Member, partition: TopicPartition) -> LogFiles:
        where = (member.id, partition)
        if where not in self._files:
            self._files[where] = LogFiles(member.machine, f"/data/{partition.topic}-{partition.partition}")
        return self._files[where]

    def durable_end(self, member: Member, partition: TopicPartition) -> int:
        """Log end on the disk of a broker; for a flushed topic the end that survives any power loss."""
        files = self.files(member, partition)
        if self.is_flushed(partition.topic):
            return files.durable_log_end()
        last = files.last_batch()
        return 0 if last is None else last.next_offset

    def is_flushed(self, topic: str) -> bool:
        configs = self._cluster.metadata.image.latest.topic_configs(topic)
        return configs.get(_FLUSH, self._cluster.plan.configs.get(_FLUSH_BY_DEFAULT)) == "1"

    def min_isr(self, topic: str, info: PartitionInfo) -> int:
        """The number of in-sync replicas needed to advance the high watermark."""
        configs = self._cluster.metadata.image.latest.topic_configs(topic)
        return min(int(configs.get(_MIN_ISR, 1)), len(info.replicas))

    def is_excused(self, partition: TopicPartition) -> bool:
        if any(member.was_wiped for member in self._cluster.brokers()) or str(partition) in self._unclean:
            return True
        return self._cluster.plan.loses_power and not self.is_flushed(partition.topic)


def key_of(partition: Partition) -> PartitionKey:
    return partition.topic_id, partition.topic_partition.partition
