"""Committed metadata → the local parts. Belongs to the commit itself, and is done before anybody who waited for that is
answered, so that a client which was told "created" finds the topic there.

A large step is published in portions, with a breath after each: in between the image shows all of it while some
partitions do not know yet, as if word reached them a little later. Nothing else is committed before the last portion.
A step that deletes a topic and makes another of its name is published at once, however large: a client that asks for
the new one must not find its log in the way of the old one's deletion. Only who was far behind sees both in one step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from strandline.metadata.changes import Changes, changes_of, changing, everything, portions, recreates_a_topic
from strandline.metadata.image import Image
from strandline.model.ids import TopicPartition
from strandline.model.timeline import Touched
from strandline.node.dynamic_config import DynamicConfig
from strandline.replication.broker_replication import BrokerReplication
from strandline.replication.hosted_logs import HostedLogs
from strandline.replication.table import PartitionTable

logger = logging.getLogger(__name__)


class MetadataPublisher:
    def __init__(
        self,
        node_id: int,
        image: Image,
        settings: DynamicConfig,
        partitions: PartitionTable,
        logs: HostedLogs,
        replication: BrokerReplication,
        on_settings: Callable[[], None],
    ) -> None:
        """`on_settings` hears that this broker's dynamic settings may be different now."""
        self._node_id = node_id
        self._image = image
        self._settings = settings
        self._partitions = partitions
        self._logs = logs
        self._replication = replication
        self._on_settings = on_settings

    def publish_everything(self) -> Changes:
        """Once, when the broker starts."""
        changes = everything(self._image, self._node_id)
        self._apply(changes)
        return changes

    def publish(self, touched: list[Touched]) -> Iterator[None]:
        """What the last commit of the image touched. A small step is done with the first `next`."""
        if recreates_a_topic(self._image, touched):
            self._apply(changes_of(self._image, touched, self._node_id))
            return
        changes = yield from changing(self._image, touched, self._node_id)
        for number, portion in enumerate(portions(changes)):
            if number > 0:
                yield
            self._apply(portion)

    def _apply(self, changes: Changes) -> None:
        if changes.broker_config or changes.default_broker_config:
            self._settings.changed()
            self._on_settings()
        for step in changes.dropped:
            self._partitions.drop(step.topic_id, step.partition)
            delay_ms = self._settings.get("log.segment.delete.delay.ms")
            self._logs.delete_soon(TopicPartition(step.topic, step.partition), delay_ms)
        for step in (*changes.leadership, *changes.membership):
            if step.new is not None:
                self._partitions.on_metadata(step.topic_id, step.partition, step.new)
        self._replication.on_metadata(changes)
        if not changes.whole:
            # New partitions get their directories soon; those of a node that starts have theirs.
            for step in changes.hosted:
                self._logs.open_soon(TopicPartition(step.topic, step.partition), step.topic_id)
        if changes.broker_config or changes.default_broker_config:
            self._partitions.all_settings_changed()
        else:
            for topic in changes.topic_configs:
                self._partitions.topic_settings_changed(topic)
        for topic_info in changes.topics_created:
            if not changes.whole:
                logger.info(
                    "topic %s (%s) has %d partitions", topic_info.name, topic_info.id, topic_info.partition_count
                )
        for topic_info in changes.topics_deleted:
            logger.info("topic %s (%s) is deleted", topic_info.name, topic_info.id)
