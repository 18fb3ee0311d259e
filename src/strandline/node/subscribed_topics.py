"""The committed metadata, as the coordinators of consumer groups see it (`coordinator.consumer.topics`)."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.coordinator.consumer.topics import Racks, SubscribedTopic
from strandline.metadata.values import TopicInfo
from strandline.metadata.views import View
from strandline.model.ids import Uuid


class CommittedTopics:
    def __init__(self, view: View) -> None:
        self._view = view

    @property
    def version(self) -> int:
        return self._view.offset

    def by_name(self, name: str) -> SubscribedTopic | None:
        return _subscribed(self._view.topic(name))

    def by_id(self, topic_id: Uuid) -> SubscribedTopic | None:
        return _subscribed(self._view.topic_by_id(topic_id))

    def names(self) -> Sequence[str]:
        return [topic.name for topic in self._view.topics()]

    def racks(self, topic: SubscribedTopic) -> Racks:
        racks = {broker.id: broker.rack for broker in self._view.brokers() if broker.rack is not None}
        if not racks:
            return ()
        return tuple(
            tuple(racks[replica] for replica in partition.replicas if replica in racks)
            for partition in self._view.partitions(topic.topic_id)
        )


def _subscribed(topic: TopicInfo | None) -> SubscribedTopic | None:
    return None if topic is None else SubscribedTopic(topic.name, topic.id, topic.partition_count)
