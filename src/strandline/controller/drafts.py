"""The changes that one decision makes to partitions, each seeing those before it.

A request may name a partition twice. Kafka then decides both times on what was before the request; here the second sees
what the first made of it, so that epochs are compared with what they will be and no record contradicts another.
"""

from __future__ import annotations

from strandline.controller.election_rules import TopicElectionRules
from strandline.controller.live_brokers import LiveBrokers
from strandline.controller.partitions import AS_IT_IS, ElectionRules, Target, change
from strandline.controller.settings import ControllerSettings
from strandline.controller.unconfirmed_failures import UnconfirmedFailures
from strandline.metadata.topics_image import changed_partition
from strandline.metadata.values import PartitionInfo, PartitionKey, TopicInfo
from strandline.metadata.views import View
from strandline.protocol.types import Message


class PartitionChanges:
    def __init__(self, view: View, settings: ControllerSettings, doubts: UnconfirmedFailures | None = None) -> None:
        self.records: list[Message] = []
        self.hosts = LiveBrokers(view)
        self._view = view
        self._rules = TopicElectionRules(view, settings.static, settings.node_id, doubts)
        self._changed: dict[PartitionKey, PartitionInfo] = {}

    def rules(self, topic: TopicInfo, partition: PartitionInfo) -> ElectionRules:
        return self._rules.of_partition(topic.name, partition)

    def partition(self, topic: TopicInfo, index: int) -> PartitionInfo | None:
        """As it is after the changes drafted so far."""
        changed = self._changed.get((topic.id, index))
        return self._view.partition(topic.id, index) if changed is None else changed

    def change(
        self,
        topic: TopicInfo,
        index: int,
        partition: PartitionInfo,
        target: Target = AS_IT_IS,
        *,
        leaving: int | None = None,
    ) -> PartitionInfo:
        """The partition as it will be: the very same object when it needs no change."""
        hosts = self.hosts if leaving is None else LiveBrokers(self._view, leaving=leaving)
        record = change(partition, topic.id, index, hosts, self.rules(topic, partition), target)
        if record is None:
            return partition
        self.records.append(record)
        changed = self._changed[topic.id, index] = changed_partition(partition, record)
        return changed
