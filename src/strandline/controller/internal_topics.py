"""Replication of the internal topics, raised when brokers join: a periodic task of the active controller.

An internal topic is created on first use, perhaps by a cluster of one broker, with a replication factor fitted to the
brokers of that time (`handlers/internal_topics.py`). Without this task a cluster that grew would lose its groups with
its first broker. Where the replication factor is configured (in the properties file of the active controller), it is
obeyed as in Kafka, and never changed.

Partitions get live brokers until they have as many replicas as Kafka's default, 3, by ordinary reassignments: the new
replicas fetch, the leader proposes them for the ISR. Replicas are ordered so that preferred leaders, and so
coordinators, are spread over the brokers. Once all replicas are in sync, a `min.insync.replicas` that was fitted is
raised too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from strandline.controller.decisions import Decision
from strandline.controller.leader_eligibility import MIN_INSYNC_REPLICAS
from strandline.controller.partition_changes import PartitionChanges
from strandline.controller.placement import takes_new_replicas
from strandline.controller.reassignments import is_reassigning, started_reassignment
from strandline.controller.settings import ControllerSettings
from strandline.metadata.values import TOPIC_RESOURCE, BrokerInfo, PartitionInfo, TopicInfo
from strandline.metadata.views import View
from strandline.model.config_keys.broker import broker_default
from strandline.protocol.messages.metadata_records import ConfigRecord
from strandline.protocol.types import Message

CHECK_INTERVAL_MS: Final = 5_000


class _InternalTopic(msgspec.Struct, frozen=True):
    name: str
    replication_factor: str
    """The broker key that sets it."""
    min_isr: str | None = None


_TOPICS: Final = (
    _InternalTopic("__consumer_offsets", "offsets.topic.replication.factor"),
    _InternalTopic("__transaction_state", "transaction.state.log.replication.factor", "transaction.state.log.min.isr"),
)


class InternalTopics:
    def __init__(self, view: View, settings: ControllerSettings, new_changes: Callable[[], PartitionChanges]) -> None:
        self._view = view
        self._settings = settings
        self._new_changes = new_changes

    def raise_replication(self) -> Decision[bool]:
        changes = self._new_changes()
        configs: list[Message] = []
        for each in _TOPICS:
            topic = self._view.topic(each.name)
            if topic is None or each.replication_factor in self._settings.static:
                continue
            factor = int(broker_default(each.replication_factor))
            self._add_replicas(changes, topic, factor)
            if each.min_isr is not None and each.min_isr not in self._settings.static:
                configs += self._raised_min_isr(topic, int(broker_default(each.min_isr)))
        # Each change is valid alone.
        return Decision(False, [*changes.records, *configs], atomic=False)

    def _add_replicas(self, changes: PartitionChanges, topic: TopicInfo, factor: int) -> None:
        live = [broker for broker in self._view.brokers() if broker.active and takes_new_replicas(broker)]
        partitions = self._view.partitions(topic.id)
        load = Counter(replica for partition in partitions for replica in partition.replicas)
        for index, partition in enumerate(partitions):
            missing = factor - len(partition.replicas)
            if missing <= 0 or is_reassigning(partition):
                continue
            added = _chosen(live, partition, load, missing)
            if added:
                load.update(added)
                wanted = _rotated([*partition.replicas, *added], index)
                changes.change(topic, index, partition, started_reassignment(partition, wanted))

    def _raised_min_isr(self, topic: TopicInfo, min_isr: int) -> list[Message]:
        partitions = self._view.partitions(topic.id)
        configured = self._view.topic_configs(topic.name).get(MIN_INSYNC_REPLICAS)
        if configured is None or int(configured) >= min_isr:
            return []
        if any(is_reassigning(each) or len(each.isr) <= min_isr for each in partitions):
            return []
        record = ConfigRecord(
            resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=MIN_INSYNC_REPLICAS, value=str(min_isr)
        )
        return [record]


def _chosen(live: Sequence[BrokerInfo], partition: PartitionInfo, load: Counter[int], count: int) -> list[int]:
    """Brokers in racks without a replica first, then those with the fewest replicas of the topic."""
    racks = {broker.rack for broker in live if broker.id in partition.replicas and broker.rack is not None}
    chosen: list[int] = []
    for _ in range(count):
        candidates = [each for each in live if each.id not in partition.replicas and each.id not in chosen]
        if not candidates:
            break
        best = min(candidates, key=lambda broker: (broker.rack in racks, load[broker.id], broker.id))
        chosen.append(best.id)
        if best.rack is not None:
            racks.add(best.rack)
    return chosen


def _rotated(replicas: list[int], index: int) -> list[int]:
    ordered = sorted(replicas)
    turn = index % len(ordered)
    return ordered[turn:] + ordered[:turn]
