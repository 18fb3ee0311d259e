"""The state of partition replicas on running brokers: log ends, high watermarks, leaders, ISR.

Read after every event of a broker, and therefore only for the few topics with records (record_workload.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from strandline.log.partition_log import PartitionLog
from strandline.metadata.values import PartitionKey
from strandline.replication.leader import IsrChange, Leader
from strandline.replication.partition import Partition
from strandline.replication.table import PartitionTable
from strandline.simulation.cluster.cluster import Member

RECORDS_PREFIX = "records"
"""Prefix of the names of the topics whose replicas are read."""


class ReplicaState(msgspec.Struct, frozen=True):
    """One partition on one broker whose log is open."""

    log: PartitionLog
    end: int
    high_watermark: int
    """The value stored by the log; on a follower, the last one received."""
    truncations: int
    """How often the log was truncated."""
    leader: Leader | None
    """The leader's machine if this broker leads; a different object for each leader epoch."""
    isr: tuple[int, ...] = ()
    proposed: IsrChange | None = None
    leader_high_watermark: int = 0
    """The value kept by the leader's machine."""
    follower_ends: tuple[int, ...] = ()
    """Log ends of the followers, as known to the leader."""


class ReplicaStates:
    """The replicas of one broker process, and what they were at the last read."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._watched: list[Partition] = []
        self._table_size = -1
        self._committed = -1
        self._seen: dict[PartitionKey, ReplicaState] = {}

    def changes(self) -> Iterator[tuple[Partition, ReplicaState | None, ReplicaState]]:
        """(Partition, state before, state now) for each replica that has changed since the last call."""
        node = self._member.node
        if node is None or node.broker is None:
            return
        table, committed = node.broker.broker.partitions, node.image.committed.moment
        if len(table) != self._table_size or committed != self._committed:
            self._table_size, self._committed = len(table), committed
            self._watched = [each for each in table if each.topic_partition.topic.startswith(RECORDS_PREFIX)]
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
    return ReplicaState(
        log,
        log.log_end_offset,
        log.high_watermark,
        log.generation,
        leader,
        leader.isr,
        leader.proposed,
        leader.high_watermark.value,
        tuple([remote.log_end_offset for remote in leader.remotes.values()]),
    )


def partition_on(member: Member, key: PartitionKey) -> Partition | None:
    """The broker's replica of the partition, if the broker runs and has loaded it."""
    node = member.node if member.running else None
    if node is None or node.broker is None:
        return None
    table: PartitionTable = node.broker.broker.partitions
    return next((each for each in table if (each.topic_id, each.topic_partition.partition) == key), None)
