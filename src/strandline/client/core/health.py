"""Judges the health of a cluster from its descriptions. A core: descriptions in, facts and problems out.

Facts carry the names of Kafka's metrics. A condition that resolves by itself and harms nothing (leaders that are not
the preferred replicas, ongoing reassignments) is a note; every other deviation is a problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from strandline.client.core.cluster_metadata import PartitionMetadata
from strandline.client.core.descriptions import (
    ClusterDescription,
    QuorumDescription,
    QuorumMember,
    Reassignment,
    TopicDescription,
)
from strandline.model.ids import TopicPartition
from strandline.runtime.exposition import sample_name

MAX_FETCH_AGE_MS = 3_000
"""Voters fetch at least every half second."""
MAX_LISTED = 5

# From the metrics pages: of the active controller, and summed over all brokers.
_OF_CONTROLLER: Final = {
    "LastAppliedRecordOffset": "kafka.controller:type=KafkaController,name=LastAppliedRecordOffset",
    "LastAppliedRecordLagMs": "kafka.controller:type=KafkaController,name=LastAppliedRecordLagMs",
    "EventQueueTimeMs": "kafka.controller:type=ControllerEventManager,name=EventQueueTimeMs,attribute=99thPercentile",
    "MetadataErrorCount": "kafka.controller:type=KafkaController,name=MetadataErrorCount",
}
_OF_BROKERS: Final = {
    "UnderMinIsrPartitionCount": "kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount",
    "AtMinIsrPartitionCount": "kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount",
}


class Health(msgspec.Struct, frozen=True):
    facts: dict[str, int]
    problems: list[str]
    notes: list[str]

    @property
    def is_healthy(self) -> bool:
        return not self.problems


def assess(
    cluster: ClusterDescription,
    quorum: QuorumDescription | str,
    topics: Sequence[TopicDescription],
    moving: Sequence[Reassignment] = (),
    metrics: Mapping[int, Mapping[str, float]] | None = None,
) -> Health:
    """`quorum` is the reason as text if no node could describe it; `metrics` are by node id, where available."""
    facts: dict[str, int] = {}
    problems: list[str] = []
    notes: list[str] = []
    _assess_quorum(quorum, facts, problems)
    fenced = [broker.id for broker in cluster.brokers if broker.fenced]
    facts["ActiveBrokerCount"] = len(cluster.brokers) - len(fenced)
    facts["FencedBrokerCount"] = len(fenced)
    if fenced:
        problems.append(f"fenced brokers: {_some(fenced)}")
    if not facts["ActiveBrokerCount"]:
        problems.append("no broker is active")
    _assess_partitions(topics, {each.partition: each for each in moving}, facts, problems, notes)
    if moving:
        notes.append(f"replicas of {len(moving)} partitions are being moved")
    if metrics:
        _assess_metrics(cluster.controller_id if isinstance(quorum, str) else quorum.leader_id, metrics, facts, notes)
    return Health(facts, problems, notes)


def _assess_quorum(quorum: QuorumDescription | str, facts: dict[str, int], problems: list[str]) -> None:
    if isinstance(quorum, str):
        facts["ActiveControllerCount"] = 0
        problems.append(f"no active controller: {quorum}")
        return
    facts["ActiveControllerCount"] = int(quorum.leader_id >= 0)
    if quorum.leader_id < 0:
        problems.append("no active controller: the controllers have not elected one")
    leader = quorum.voter(quorum.leader_id)
    others = [voter for voter in quorum.voters if voter.id != quorum.leader_id]
    facts["number-of-voters"] = len(quorum.voters)
    facts["number-of-observers"] = len(quorum.observers)
    facts["high-watermark"] = quorum.high_watermark
    # As in Kafka, a voter that has never fetched (-1) lags by the whole log.
    facts["MaxFollowerLag"] = max((quorum.log_end_offset - voter.log_end_offset for voter in others), default=0)
    if leader is None:
        return
    facts["MaxFollowerLagTimeMs"] = _behind_ms(others, leader)
    silent = [voter.id for voter in others if leader.last_fetch_ms - voter.last_fetch_ms > MAX_FETCH_AGE_MS]
    if silent:
        problems.append(f"voters that do not fetch from the active controller: {_some(silent)}")


def _behind_ms(voters: Sequence[QuorumMember], leader: QuorumMember) -> int:
    """How far the slowest voter is behind, by the leader's clock; -1 if a voter has never caught up."""
    if any(voter.last_caught_up_ms < 0 for voter in voters):
        return -1
    return max((max(0, leader.last_caught_up_ms - voter.last_caught_up_ms) for voter in voters), default=0)


def _assess_partitions(
    topics: Sequence[TopicDescription],
    moving: dict[TopicPartition, Reassignment],
    facts: dict[str, int],
    problems: list[str],
    notes: list[str],
) -> None:
    offline, lagging, imbalanced = [], [], []
    count = 0
    for topic in topics:
        count += len(topic.partitions)
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.index)
            if each.leader < 0:
                offline.append(partition)
            elif each.replicas and each.leader != each.replicas[0]:
                imbalanced.append(partition)
            if _out_of_sync(each, moving.get(partition)):
                lagging.append(partition)
    facts["GlobalTopicCount"] = len(topics)
    facts["GlobalPartitionCount"] = count
    facts["OfflinePartitionsCount"] = len(offline)
    facts["UnderReplicatedPartitions"] = len(lagging)
    facts["OfflineReplicaCount"] = sum(len(each.offline) for topic in topics for each in topic.partitions)
    facts["PreferredReplicaImbalanceCount"] = len(imbalanced) + len(offline)
    if offline:
        problems.append(f"partitions without a leader: {_some(offline)}")
    if lagging:
        problems.append(f"under-replicated partitions: {_some(lagging)}")
    if imbalanced:
        notes.append(f"partitions not led by their preferred replica: {_some(imbalanced)}")


def _out_of_sync(partition: PartitionMetadata, move: Reassignment | None) -> bool:
    """Replicas that are being added need not be in sync yet."""
    added = move.adding if move is not None else ()
    return any(replica not in partition.isr and replica not in added for replica in partition.replicas)


def _assess_metrics(
    active: int, metrics: Mapping[int, Mapping[str, float]], facts: dict[str, int], notes: list[str]
) -> None:
    of_controller = metrics.get(active, {})
    for fact, metric in _OF_CONTROLLER.items():
        if (value := of_controller.get(sample_name(metric))) is not None:
            facts[fact] = int(value)
    for fact, metric in _OF_BROKERS.items():
        name = sample_name(metric)
        if values := [numbers[name] for numbers in metrics.values() if name in numbers]:
            facts[fact] = int(sum(values))
    if facts.get("MetadataErrorCount"):
        notes.append(f"the active controller had errors in metadata: see the log of node {active}")


def _some(things: Sequence[object]) -> str:
    shown = ", ".join(str(each) for each in things[:MAX_LISTED])
    return shown if len(things) <= MAX_LISTED else f"{shown} and {len(things) - MAX_LISTED} more"
