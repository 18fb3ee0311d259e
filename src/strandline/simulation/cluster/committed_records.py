"""The true high watermark of each partition, and which batches are below it: what any leader ever called committed.

Fed by the high watermarks of partition leaders, as the ledger is by those of the quorum. Whatever a replica has later
is compared with this.

Not everything is promised to everybody. A partition is *excused* from then on when the disk of a broker was wiped, when
power is lost and its topic is not flushed, and when somebody leads it who was neither in sync nor eligible: what is
lost then is lost by choice (that of the last known leader is one, see docs/decisions/0017).
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
    """Raises nothing itself: it stands before those who do."""

    def __init__(self, cluster: Cluster, scribe: MetadataModel) -> None:
        self._cluster = cluster
        self._ends: dict[PartitionKey, int] = {}
        self._batches: dict[PartitionKey, dict[int, Batch]] = {}
        self._files: dict[tuple[int, TopicPartition], LogFiles] = {}
        self._unclean: set[str] = set()
        scribe.tell(self._succeeded)

    def moved(self, member: Member, partition: Partition, before: ReplicaState | None, now: ReplicaState) -> None:
        key = key_of(partition)
        since = self.end(key)
        if now.leader is not None and now.told > since:
            known = self._batches.setdefault(key, {})
            for batch in self.files(member, partition.topic_partition).batches(since):
                if since <= batch.base_offset < now.told:
                    known[batch.base_offset] = batch
            self._ends[key] = now.told

    def _succeeded(self, name: str, before: Assignment, now: Assignment) -> None:
        if now.leader not in (NO_LEADER, before.leader, *before.isr, *before.elr):
            self._unclean.add(name)

    def end(self, key: PartitionKey) -> int:
        """The first offset that no leader has called committed."""
        return self._ends.get(key, 0)

    def first_difference(self, key: PartitionKey, batches: Iterable[Batch], below: int) -> Batch | None:
        """The first of these that is not what is committed at its place."""
        known = self._batches.get(key, {})
        for batch in batches:
            if batch.base_offset < below and not self.is_committed(known, batch):
                return batch
        return None

    def first_committed(self, key: PartitionKey, batches: Iterable[Batch]) -> Batch | None:
        """The first of these that is committed as it is."""
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

    def held_end(self, member: Member, partition: TopicPartition) -> int:
        """How far the disk of a broker has the log: as any power loss leaves it, where the topic is flushed."""
        files = self.files(member, partition)
        if self.is_flushed(partition.topic):
            return files.certain_end()
        last = files.last_batch()
        return 0 if last is None else last.next_offset

    def is_flushed(self, topic: str) -> bool:
        configs = self._cluster.ledger.image.latest.topic_configs(topic)
        return configs.get(_FLUSH, self._cluster.plan.settings.get(_FLUSH_BY_DEFAULT)) == "1"

    def least_isr(self, topic: str, info: PartitionInfo) -> int:
        """How many must be in sync for the watermark to move."""
        configs = self._cluster.ledger.image.latest.topic_configs(topic)
        return min(int(configs.get(_MIN_ISR, 1)), len(info.replicas))

    def is_excused(self, partition: TopicPartition) -> bool:
        if any(member.was_wiped for member in self._cluster.brokers()) or str(partition) in self._unclean:
            return True
        return self._cluster.plan.loses_power and not self.is_flushed(partition.topic)


def key_of(partition: Partition) -> PartitionKey:
    return partition.topic_id, partition.topic_partition.partition
