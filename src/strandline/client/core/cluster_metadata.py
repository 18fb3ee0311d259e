"""The client's cached metadata: brokers, topics and partition leaders. A core, updated by Metadata responses and by the
leader hints of Produce and Fetch responses (KIP-951).

Invariant: the leader epoch of a partition never decreases while the topic id stays the same. A response of a broker
that lags behind would otherwise redirect the client to a former leader.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from strandline.model.errors import ErrorCode, code_of
from strandline.model.ids import ZERO_UUID, Endpoint, TopicPartition, Uuid
from strandline.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


class BrokerMetadata(msgspec.Struct, frozen=True):
    id: int
    endpoint: Endpoint
    rack: str | None = None


class PartitionMetadata(msgspec.Struct, frozen=True):
    index: int
    leader: int
    """-1: none."""
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


class TopicMetadata(msgspec.Struct):
    name: str
    id: Uuid
    internal: bool
    partitions: dict[int, PartitionMetadata]
    error: ErrorCode
    updated_ms: int
    stale: bool = False


class ClusterMetadata(msgspec.Struct):
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, BrokerMetadata] = msgspec.field(default_factory=dict)
    topics: dict[str, TopicMetadata] = msgspec.field(default_factory=dict)
    names: dict[Uuid, str] = msgspec.field(default_factory=dict)

    def on_metadata(self, response: MetadataResponse, now_ms: int, requested: Iterable[str] | None) -> None:
        """`requested` are the topics that the request named (None: all); those that the response lacks are removed."""
        if response.brokers:
            self.brokers = {
                broker.node_id: BrokerMetadata(broker.node_id, Endpoint(broker.host, broker.port), broker.rack)
                for broker in response.brokers
            }
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id
        described = [topic for topic in response.topics if topic.name]
        for topic in described:
            self._update(topic, now_ms)
        present = {topic.name for topic in described}
        for name in list(self.topics) if requested is None else requested:
            if name not in present:
                self.forget(name)

    def on_leader_hint(
        self, partition: TopicPartition, leader_id: int, leader_epoch: int, endpoint: BrokerMetadata | None
    ) -> bool:
        """Whether the hint is newer than the cached leader."""
        if endpoint is not None:
            self.brokers[endpoint.id] = endpoint
        topic = self.topics.get(partition.topic)
        known = topic.partitions.get(partition.partition) if topic is not None else None
        if topic is None or known is None or leader_id not in self.brokers or leader_epoch <= known.leader_epoch:
            return False
        topic.partitions[partition.partition] = PartitionMetadata(
            known.index, leader_id, leader_epoch, known.replicas, known.isr, known.offline
        )
        return True

    def on_wrong_leader(self, topic: str) -> None:
        """Marks the metadata of this topic as stale, after an error that shows it."""
        if topic in self.topics:
            self.topics[topic].stale = True

    def is_fresh(self, topic: str, now_ms: int, max_age_ms: int) -> bool:
        known = self.topics.get(topic)
        return known is not None and not known.stale and not known.error and now_ms - known.updated_ms < max_age_ms

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic is not None else None

    def leader_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        """(broker id, leader epoch), if there is a leader and its endpoint is known."""
        known = self.partition(partition)
        if known is None or known.leader not in self.brokers:
            return None
        return known.leader, known.leader_epoch

    def id_of(self, topic: str) -> Uuid:
        known = self.topics.get(topic)
        return known.id if known is not None else ZERO_UUID

    def _update(self, topic: MetadataResponseTopic, now_ms: int) -> None:
        name = topic.name or ""
        before = self.topics.get(name)
        same = before is not None and before.id == topic.topic_id and topic.topic_id != ZERO_UUID
        kept = before.partitions if before is not None and same else {}
        partitions = {entry.partition_index: _newer(entry, kept) for entry in topic.partitions}
        if before is not None and not same:
            self.names.pop(before.id, None)
        if topic.topic_id != ZERO_UUID:
            self.names[topic.topic_id] = name
        self.topics[name] = TopicMetadata(
            name, topic.topic_id, topic.is_internal, partitions, code_of(topic.error_code), now_ms
        )

    def forget(self, name: str) -> None:
        """The next use of the topic fetches its metadata again; called after this client has changed the topic."""
        removed = self.topics.pop(name, None)
        if removed is not None:
            self.names.pop(removed.id, None)


def _newer(entry: MetadataResponsePartition, kept: dict[int, PartitionMetadata]) -> PartitionMetadata:
    before = kept.get(entry.partition_index)
    if before is not None and 0 <= entry.leader_epoch < before.leader_epoch:
        return before
    return PartitionMetadata(
        entry.partition_index,
        entry.leader_id,
        entry.leader_epoch,
        tuple(entry.replica_nodes),
        tuple(entry.isr_nodes),
        tuple(entry.offline_replicas),
    )
