"""I-9: every member of the ISR and the ELR has all records below the high watermark, and the high watermark does not
advance while the ISR is smaller than min.insync.replicas.

The records of a broker are read from its disk, whether or not it runs; for a flushed topic only what survives any power
loss counts. The log ends of followers that a leader uses to advance its high watermark are checked the same way.
"""

from __future__ import annotations

from strandline.metadata.values import PartitionInfo, PartitionKey
from strandline.model.ids import TopicPartition
from strandline.protocol.messages import metadata_records as kinds
from strandline.raft.disk.batches import MetadataBatch
from strandline.replication.leader import Leader
from strandline.replication.partition import Partition
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.committed_records import CommittedRecords, key_of
from strandline.simulation.cluster.node_state import NodeState
from strandline.simulation.cluster.replica_state import ReplicaState
from strandline.simulation.cluster.violation import Violation


class IsrHoldsCommittedRecords(Checker):
    def __init__(self, cluster: Cluster, committed_records: CommittedRecords) -> None:
        self._cluster = cluster
        self._committed_records = committed_records
        self._topic_partitions: dict[PartitionKey, TopicPartition] = {}
        self._touched: set[PartitionKey] = set()
        cluster.metadata.subscribe(self._on_batch)

    def replica_changed(
        self, member: Member, partition: Partition, before: ReplicaState | None, now: ReplicaState
    ) -> None:
        topic_partition, key = partition.topic_partition, key_of(partition)
        self._topic_partitions[key] = topic_partition
        info = self._cluster.metadata.image.latest.partition(*key)
        if info is None or self._committed_records.is_excused(topic_partition):
            return
        same = before is not None and before.leader is now.leader
        if now.leader is not None:
            if before is not None and same and now.leader_high_watermark < before.leader_high_watermark:
                change = f"from {before.leader_high_watermark} to {now.leader_high_watermark}"
                why = f"the high watermark of {topic_partition} on {member.name} decreases {change}"
                raise Violation("I-9", f"{why} within leader epoch {now.leader.leader_epoch}")
            if before is not None and same and now.leader_high_watermark > before.leader_high_watermark:
                self._check_advance(member, topic_partition, now.leader, info)
                self._check_holders(key, topic_partition)
            if not same or before is None or now.follower_ends != before.follower_ends:
                self._check_follower_ends(member, topic_partition, now.leader, info)
            if now.proposed is not None and (before is None or before.proposed is not now.proposed):
                _check_proposal(member, topic_partition, now.leader)
        if before is None or before.log is not now.log or before.truncations != now.truncations:
            self._check_holders(key, topic_partition)

    def _on_batch(self, batch: MetadataBatch) -> None:
        """One event may commit several batches: checked is the result of all of them."""
        for record in batch.records:
            if isinstance(record, kinds.PartitionChangeRecord):
                self._touched.add((record.topic_id, record.partition_id))
            elif isinstance(record, kinds.RegisterBrokerRecord):
                self._touched.update(self._topic_partitions)

    def node_changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        touched, self._touched = self._touched, set()
        for key in sorted(touched & self._topic_partitions.keys()):
            if not self._committed_records.is_excused(self._topic_partitions[key]):
                self._check_holders(key, self._topic_partitions[key])

    def finish(self) -> None:
        for key, topic_partition in self._topic_partitions.items():
            if not self._committed_records.is_excused(topic_partition):
                self._check_holders(key, topic_partition)

    def _check_advance(
        self, member: Member, topic_partition: TopicPartition, leader: Leader, info: PartitionInfo
    ) -> None:
        high_watermark = leader.high_watermark.value
        why = f"{member.name} advances the high watermark of {topic_partition} to {high_watermark}"
        needed = self._committed_records.min_isr(topic_partition.topic, info)
        if len(leader.isr) < needed:
            raise Violation("I-9", f"{why} with the ISR {list(leader.isr)}, which needs {needed} members")
        for remote in leader.remotes.values():
            if remote.broker_id in leader.maximal_isr and remote.log_end_offset < high_watermark:
                has = f"broker {remote.broker_id} of the maximal ISR has fetched up to {remote.log_end_offset}"
                raise Violation("I-9", f"{why}, and {has}")
        held = self._committed_records.durable_end(member, topic_partition)
        if held < high_watermark:
            raise Violation("I-9", f"{why}, and its own log is durable only up to {held}")

    def _check_holders(self, key: PartitionKey, topic_partition: TopicPartition) -> None:
        view, end = self._cluster.metadata.image.latest, self._committed_records.end(key)
        info = view.partition(*key)
        for broker_id in () if info is None else (*info.isr, *info.elr):
            member, broker = self._cluster.members[broker_id], view.broker(broker_id)
            node = member.node if member.running else None
            if broker is None or (member.running and (node is None or node.broker_epoch != broker.epoch)):
                continue  # it has not registered since its start
            held = self._committed_records.durable_end(member, topic_partition)
            if held < end:
                why = f"broker {broker_id} is in the ISR or ELR of {topic_partition} ({info})"
                raise Violation("I-9", f"{why} and has records up to {held}; committed are those below {end}")

    def _check_follower_ends(
        self, member: Member, topic_partition: TopicPartition, leader: Leader, info: PartitionInfo
    ) -> None:
        """Checks followers of the current leader only: a later leader may have made the follower truncate its log."""
        if leader.leader_epoch != info.leader_epoch or info.leader != member.id:
            return
        for remote in leader.remotes.values():
            broker = self._cluster.metadata.image.latest.broker(remote.broker_id)
            if broker is None or broker.epoch != remote.broker_epoch or remote.log_end_offset <= 0:
                continue
            held = self._committed_records.durable_end(self._cluster.members[remote.broker_id], topic_partition)
            if held < remote.log_end_offset:
                counted = f"counts broker {remote.broker_id} up to {remote.log_end_offset}"
                why = f"{member.name} leads {topic_partition} and {counted}"
                raise Violation("I-9", f"{why}, which has records up to {held}")


def _check_proposal(member: Member, topic_partition: TopicPartition, leader: Leader) -> None:
    """A leader does not know how much of its log at the start of its epoch was committed, so a replica that joins the
    ISR must have all of it."""
    for remote in leader.remotes.values():
        if remote.broker_id in leader.isr or remote.broker_id not in leader.maximal_isr:
            continue
        if remote.log_end_offset < leader.epoch_start_offset:
            why = (
                f"{member.name} adds broker {remote.broker_id} to the ISR of {topic_partition}, which has records up to"
            )
            start = f"epoch {leader.leader_epoch} started at {leader.epoch_start_offset}"
            raise Violation("I-9", f"{why} {remote.log_end_offset}; {start}")
