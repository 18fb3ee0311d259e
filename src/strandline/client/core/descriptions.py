"""Descriptions of a cluster as admin responses give them: the results of `client/admin`, and the input of `core/health`
and `core/replica_placement`.
"""

from __future__ import annotations

import msgspec

from strandline.client.core.cluster_metadata import PartitionMetadata
from strandline.model.ids import Endpoint, TopicPartition, Uuid


class BrokerDescription(msgspec.Struct, frozen=True):
    id: int
    endpoint: Endpoint
    rack: str | None
    fenced: bool


class ClusterDescription(msgspec.Struct, frozen=True):
    cluster_id: str
    controller_id: int
    brokers: list[BrokerDescription]


class TopicDescription(msgspec.Struct, frozen=True):
    name: str
    id: Uuid
    internal: bool
    partitions: list[PartitionMetadata]

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0


class Reassignment(msgspec.Struct, frozen=True):
    """An ongoing one: `replicas` includes those being added and those being removed."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.removing)


class QuorumMember(msgspec.Struct, frozen=True):
    """A voter or observer; values that the leader does not know are -1."""

    id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumDescription(msgspec.Struct, frozen=True):
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumMember]
    observers: list[QuorumMember]
    listeners: dict[int, list[tuple[str, Endpoint]]]
    """The listeners of the voters, by node id; empty before kraft.version 1."""

    @property
    def log_end_offset(self) -> int:
        """The leader's."""
        return next((each.log_end_offset for each in self.voters if each.id == self.leader_id), self.high_watermark)

    def voter(self, node_id: int) -> QuorumMember | None:
        return next((each for each in self.voters if each.id == node_id), None)

    def observer(self, node_id: int) -> QuorumMember | None:
        """The most recent one: a node whose disk was replaced is listed with its old directory id for a while."""
        same = [each for each in self.observers if each.id == node_id]
        return max(same, key=lambda each: each.last_fetch_ms, default=None)

    def lag(self, member: QuorumMember) -> int | None:
        """How many records it is behind the leader."""
        return None if member.log_end_offset < 0 else max(0, self.log_end_offset - member.log_end_offset)
