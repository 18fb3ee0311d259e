"""I-9: whoever is in sync or eligible holds everything below the true high watermark, which does not move while fewer
are in sync than are needed.

What a broker holds is read from its disk, be its process dead or alive: as it is found there, or, where every record
is to be flushed, as any power loss leaves it. And since the watermark follows from what leaders believe of their
followers, they are held to that too: nobody counts a follower with what it has not.
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
    def __init__(self, cluster: Cluster, waterlines: CommittedRecords) -> None:
        self._cluster = cluster
        self._waterlines = waterlines
        self._places: dict[PartitionKey, TopicPartition] = {}
        self._touched: set[PartitionKey] = set()
        cluster.ledger.tell(self._committed)

    def moved(self, member: Member, partition: Partition, before: ReplicaState | None, now: ReplicaState) -> None:
        place, key = partition.topic_partition, key_of(partition)
        self._places[key] = place
        info = self._cluster.ledger.image.latest.partition(*key)
        if info is None or self._waterlines.is_excused(place):
            return
        same = before is not None and before.leader is now.leader
        if now.leader is not None:
            if before is not None and same and now.told < before.told:
                why = f"{member.name} takes the high watermark of {place} back from {before.told} to {now.told}"
                raise Violation("I-9", f"{why}, and leads epoch {now.leader.leader_epoch} all the while")
            if before is not None and same and now.told > before.told:
                self._check_rise(member, place, now.leader, info)
                self._check_holders(key, place)
            if not same or before is None or now.believed != before.believed:
                self._check_beliefs(member, place, now.leader, info)
            if now.proposed is not None and (before is None or before.proposed is not now.proposed):
                _check_proposal(member, place, now.leader)
        if before is None or before.log is not now.log or before.cuts != now.cuts:
            self._check_holders(key, place)

    def _committed(self, batch: MetadataBatch) -> None:
        """One event may commit several batches: what counts is what they come to."""
        for record in batch.records:
            if isinstance(record, kinds.PartitionChangeRecord):
                self._touched.add((record.topic_id, record.partition_id))
            elif isinstance(record, kinds.RegisterBrokerRecord):
                self._touched.update(self._places)

    def changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        touched, self._touched = self._touched, set()
        for key in sorted(touched & self._places.keys()):
            if not self._waterlines.is_excused(self._places[key]):
                self._check_holders(key, self._places[key])

    def finish(self) -> None:
        for key, place in self._places.items():
            if not self._waterlines.is_excused(place):
                self._check_holders(key, place)

    def _check_rise(self, member: Member, place: TopicPartition, leader: Leader, info: PartitionInfo) -> None:
        risen = leader.high_watermark.value
        why = f"{member.name} raises the high watermark of {place} to {risen}"
        needed = self._waterlines.least_isr(place.topic, info)
        if len(leader.isr) < needed:
            raise Violation("I-9", f"{why}, with {list(leader.isr)} in sync, and it takes {needed}")
        for remote in leader.remotes.values():
            if remote.broker_id in leader.maximal_isr and remote.log_end_offset < risen:
                has = f"broker {remote.broker_id}, which may be in sync, has said up to {remote.log_end_offset}"
                raise Violation("I-9", f"{why}, and {has}")
        held = self._waterlines.held_end(member, place)
        if held < risen:
            raise Violation("I-9", f"{why}, and what its own disk is certain to have ends at {held}")

    def _check_holders(self, key: PartitionKey, place: TopicPartition) -> None:
        view, end = self._cluster.ledger.image.latest, self._waterlines.end(key)
        info = view.partition(*key)
        for broker_id in () if info is None else (*info.isr, *info.elr):
            member, broker = self._cluster.members[broker_id], view.broker(broker_id)
            node = member.node if member.running else None
            if broker is None or (member.running and (node is None or node.broker_epoch != broker.epoch)):
                continue  # it has not registered since it started
            held = self._waterlines.held_end(member, place)
            if held < end:
                why = f"broker {broker_id} is in sync or eligible for {place} ({info})"
                raise Violation("I-9", f"{why}, and has it up to {held}; committed is what is below {end}")

    def _check_beliefs(self, member: Member, place: TopicPartition, leader: Leader, info: PartitionInfo) -> None:
        """A follower may have been told to cut its log by a later leader, of which this one has not heard."""
        if leader.leader_epoch != info.leader_epoch or info.leader != member.id:
            return
        for remote in leader.remotes.values():
            broker = self._cluster.ledger.image.latest.broker(remote.broker_id)
            if broker is None or broker.epoch != remote.broker_epoch or remote.log_end_offset <= 0:
                continue
            held = self._waterlines.held_end(self._cluster.members[remote.broker_id], place)
            if held < remote.log_end_offset:
                why = f"{member.name} leads {place} and counts broker {remote.broker_id} up to {remote.log_end_offset}"
                raise Violation("I-9", f"{why}, which has it up to {held}")


def _check_proposal(member: Member, place: TopicPartition, leader: Leader) -> None:
    """What earlier leaders called committed, this one began with, and does not know how much of it that was: whoever is
    taken in must have all of it."""
    for remote in leader.remotes.values():
        if remote.broker_id in leader.isr or remote.broker_id not in leader.maximal_isr:
            continue
        if remote.log_end_offset < leader.epoch_start_offset:
            why = f"{member.name} would take broker {remote.broker_id} into the ISR of {place}, which has it up to"
            began = f"epoch {leader.leader_epoch} began at {leader.epoch_start_offset}"
            raise Violation("I-9", f"{why} {remote.log_end_offset}; {began}")
