"""I-8: whoever the controller may elect from is counted by the leader that it has now.

The leader proposes an ISR and does not know when, or whether, the controller adopts it; so it counts with both, the
*maximal ISR*, which contains the controller's ISR at all times within one leader epoch.
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
        cluster.ledger.tell(self._committed)

    def _committed(self, batch: MetadataBatch) -> None:
        """One event may commit several batches, and whoever leads has heard of all of them when this is called."""
        for record in batch.records:
            if isinstance(record, kinds.PartitionChangeRecord):
                self._touched.add((record.topic_id, record.partition_id))

    def changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        """Any topic, where a record has changed it."""
        touched, self._touched = self._touched, set()
        for key in sorted(touched):
            info = self._cluster.ledger.image.latest.partition(*key)
            leader = None if info is None else self._cluster.members.get(info.leader)
            partition = None if leader is None else partition_on(leader, key)
            if partition is not None:
                self._check(key, partition)

    def moved(self, member: Member, partition: Partition, before: ReplicaState | None, now: ReplicaState) -> None:
        if now.leader is not None:
            known = None if before is None else (before.leader, before.isr, before.proposed)
            if known != (now.leader, now.isr, now.proposed):
                self._check(key_of(partition), partition)

    def _check(self, key: PartitionKey, partition: Partition) -> None:
        info, leader = self._cluster.ledger.image.latest.partition(*key), partition.leader
        if info is None or leader is None or leader.leader_epoch != info.leader_epoch:
            return
        missing = [each for each in info.isr if each not in leader.maximal_isr]
        if missing:
            why = (
                f"{partition.topic_partition} has the ISR {list(info.isr)}, and its leader of epoch {info.leader_epoch}"
            )
            raise Violation("I-8", f"{why}, broker {info.leader}, counts {list(leader.maximal_isr)} only")
