"""What the simulation sees of the partitions that brokers keep: where logs end, who leads, who is counted.

Looked at after every event of a broker, and so only the few that have records: the topics of `traffic.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from strandline.log.partition_log import PartitionLog
from strandline.metadata.values import PartitionKey
from strandline.replication.leader import IsrChange, Leader
from strandline.replication.partition import Partition
from strandline.replication.table import PartitionTable
from strandline.simulation.cluster.cluster import Member

RECORDS = "records"
"""What the names of the topics begin with that are looked at."""


class ReplicaState(NamedTuple):
    """One partition on one broker, whose log is open."""

    log: PartitionLog
    end: int
    high_watermark: int
    """As the log knows it."""
    cuts: int
    """How often the log was cut."""
    leader: Leader | None
    """The machine, if this broker leads; another object for each leadership."""
    isr: tuple[int, ...] = ()
    proposed: IsrChange | None = None
    told: int = 0
    """The high watermark of this leadership."""
    believed: tuple[int, ...] = ()
    """How far followers are, as they have said."""


class ReplicaStates:
    """Of one process."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._watched: list[Partition] = []
        self._table_size = -1
        self._committed = -1
        self._seen: dict[PartitionKey, ReplicaState] = {}

    def look(self) -> Iterator[tuple[Partition, ReplicaState | None, ReplicaState]]:
        """What is different from the last time: the partition, what it was, what it is."""
        node = self._member.node
        if node is None or node.broker is None:
            return
        table, committed = node.broker.broker.partitions, node.image.committed.moment
        if len(table) != self._table_size or committed != self._committed:
            self._table_size, self._committed = len(table), committed
            self._watched = [each for each in table if each.topic_partition.topic.startswith(RECORDS)]
        for partition in self._watched:
            if partition.log is None:
                continue
            key = (partition.topic_id, partition.topic_partition.partition)
            before, now = self._seen.get(key), replica_state_of(partition.log, partition.leader)
            if now != before:
                self._seen[key] = now
                yield partition, before, now


def replica_state_of(log: PartitionLog, leader: Leader | None) -> ReplicaState:
    if leader is None:
        return ReplicaState(log, log.log_end_offset, log.high_watermark, log.generation, None)
    believed = tuple([remote.log_end_offset for remote in leader.remotes.values()])
    told = leader.high_watermark.value
    return ReplicaState(
        log, log.log_end_offset, log.high_watermark, log.generation, leader, leader.isr, leader.proposed, told, believed
    )


def partition_on(member: Member, key: PartitionKey) -> Partition | None:
    """As this broker keeps it, if it runs and has had a use for it."""
    node = member.node if member.running else None
    if node is None or node.broker is None:
        return None
    table: PartitionTable = node.broker.broker.partitions
    return next((each for each in table if (each.topic_id, each.topic_partition.partition) == key), None)
