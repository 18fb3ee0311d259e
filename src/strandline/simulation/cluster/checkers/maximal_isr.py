"""I-8: the leader's maximal ISR contains the committed ISR, from which the controller may elect the next leader.

A leader proposes an ISR and does not know when, or whether, the controller accepts it; so it counts the members of
both, the *maximal ISR*, within one leader epoch.
"""

from __future__ import annotations

from strandline.metadata.values import PartitionKey
from strandline.protocol.messages import metadata_records as kinds
from strandline.raft.disk.batches import MetadataBatch
from strandline.replication.partition import Partition
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.committed_records import key_of
from strandline.simulation.cluster.node_state import NodeState
from strandline.simulation.cluster.replica_state import ReplicaState, partition_on
from strandline.simulation.cluster.violation import Violation


class MaximalIsrContainsCommittedIsr(Checker):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._touched: set[PartitionKey] = set()
        cluster.metadata.subscribe(self._on_batch)

    def _on_batch(self, batch: MetadataBatch) -> None:
        """Checked after the event, which may commit several batches: by then the leader has replayed all of them."""
        for record in batch.records:
            if isinstance(record, kinds.PartitionChangeRecord):
                self._touched.add((record.topic_id, record.partition_id))

    def node_changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        """Checks partitions of all topics after a record has changed them."""
        touched, self._touched = self._touched, set()
        for key in sorted(touched):
            info = self._cluster.metadata.image.latest.partition(*key)
            leader = None if info is None else self._cluster.members.get(info.leader)
            partition = None if leader is None else partition_on(leader, key)
            if partition is not None:
                self._check(key, partition)

    def replica_changed(
        self, member: Member, partition: Partition, before: ReplicaState | None, now: ReplicaState
    ) -> None:
        if now.leader is not None:
            known = None if before is None else (before.leader, before.isr, before.proposed)
            if known != (now.leader, now.isr, now.proposed):
                self._check(key_of(partition), partition)

    def _check(self, key: PartitionKey, partition: Partition) -> None:
        info, leader = self._cluster.metadata.image.latest.partition(*key), partition.leader
        if info is None or leader is None or leader.leader_epoch != info.leader_epoch:
            return
        missing = [each for each in info.isr if each not in leader.maximal_isr]
        if missing:
            why = (
                f"{partition.topic_partition} has the ISR {list(info.isr)}, and its leader of epoch {info.leader_epoch}"
            )
            raise Violation("I-8", f"{why}, broker {info.leader}, has the maximal ISR {list(leader.maximal_isr)}")
