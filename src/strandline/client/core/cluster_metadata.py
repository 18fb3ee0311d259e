"""What the client believes of the cluster: brokers, topics, who leads which partition. A core, fed by Metadata answers
and by the leader hints that Produce and Fetch carry (KIP-951).

The belief about a partition never goes back to an older leader epoch of the same topic id: a broker that lags behind
would otherwise send us to a leader that was deposed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from strandline.model.errors import ErrorCode, code_of
from strandline.model.ids import ZERO_UUID, Endpoint, TopicPartition, Uuid
from strandline.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


@dataclass(frozen=True, slots=True)
class BrokerMetadata:
    id: int
    endpoint: Endpoint
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    index: int
    leader: int  # -1: none
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(slots=True)
class TopicMetadata:
    name: str
    id: Uuid
    internal: bool
    partitions: dict[int, PartitionMetadata]
    error: ErrorCode
    learned_ms: int
    stale: bool = False


@dataclass(slots=True)
class ClusterMetadata:
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, BrokerMetadata] = field(default_factory=dict)
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    names: dict[Uuid, str] = field(default_factory=dict)

    def on_metadata(self, answer: MetadataResponse, now_ms: int, asked: Iterable[str] | None) -> None:
        """`asked` are the topics the question named; None means all, so that a topic left out is gone."""
        if answer.brokers:
            self.brokers = {
                broker.node_id: BrokerMetadata(broker.node_id, Endpoint(broker.host, broker.port), broker.rack)
                for broker in answer.brokers
            }
        self.cluster_id = answer.cluster_id or self.cluster_id
        self.controller_id = answer.controller_id
        answered = [topic for topic in answer.topics if topic.name]
        for topic in answered:
            self._learn(topic, now_ms)
        present = {topic.name for topic in answered}
        for name in list(self.topics) if asked is None else asked:
            if name not in present:
                self.forget(name)

    def on_leader_hint(
        self, partition: TopicPartition, leader_id: int, leader_epoch: int, endpoint: BrokerMetadata | None
    ) -> bool:
        """Whether the hint told us something new."""
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
        """An answer has shown that what we believe of this topic is out of date."""
        if topic in self.topics:
            self.topics[topic].stale = True

    def is_fresh(self, topic: str, now_ms: int, max_age_ms: int) -> bool:
        known = self.topics.get(topic)
        return known is not None and not known.stale and not known.error and now_ms - known.learned_ms < max_age_ms

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic is not None else None

    def leader_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        """(broker id, leader epoch), when there is a leader and we know where it lives."""
        known = self.partition(partition)
        if known is None or known.leader not in self.brokers:
            return None
        return known.leader, known.leader_epoch

    def id_of(self, topic: str) -> Uuid:
        known = self.topics.get(topic)
        return known.id if known is not None else ZERO_UUID

    def _learn(self, topic: MetadataResponseTopic, now_ms: int) -> None:
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
        """Whoever needs the topic next asks for it anew: we have changed it ourselves."""
        gone = self.topics.pop(name, None)
        if gone is not None:
            self.names.pop(gone.id, None)


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
