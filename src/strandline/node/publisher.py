"""Applies committed metadata to the parts of this broker: partitions, logs, replication, dynamic configs.

Called by the quorum as part of each commit, before requests that waited for the commit are answered: a client that
received the response to CreateTopics finds the topic on this broker.

Large changes are published in portions, yielding to the event loop after each. In between, the image shows the whole
commit while some partitions still have the previous state; no other commit happens before the last portion. A commit
that deletes a topic and creates another one of the same name is published in one portion: otherwise a client of the new
topic could find the old log before its deletion. Only a broker that lagged far behind sees both in one commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from strandline.metadata.changes import (
    Changes,
    changes_in_steps,
    changes_of,
    initial_changes,
    portions,
    recreates_a_topic,
)
from strandline.metadata.image import Image
from strandline.model.ids import TopicPartition
from strandline.model.timeline import Touched
from strandline.node.dynamic_config import DynamicConfig
from strandline.raft.shell.replay import QuorumListener
from strandline.replication.broker_replication import BrokerReplication
from strandline.replication.hosted_logs import HostedLogs
from strandline.replication.table import PartitionTable

logger = logging.getLogger(__name__)


class MetadataPublisher(QuorumListener):
    def __init__(
        self,
        node_id: int,
        image: Image,
        dynamic_config: DynamicConfig,
        partitions: PartitionTable,
        logs: HostedLogs,
        replication: BrokerReplication,
        on_coordinators: Callable[[Changes], None],
        on_config_changed: Callable[[], None],
    ) -> None:
        """`on_coordinators` starts and stops shards with the leadership of internal topics; `on_config_changed` is
        called after each change of this broker's dynamic configs."""
        self._node_id = node_id
        self._image = image
        self._dynamic_config = dynamic_config
        self._partitions = partitions
        self._logs = logs
        self._replication = replication
        self._on_coordinators = on_coordinators
        self._on_config_changed = on_config_changed

    def publish_everything(self) -> Changes:
        """The whole image, once, when the broker starts."""
        changes = initial_changes(self._image, self._node_id)
        self._apply(changes)
        return changes

    def on_commit(self, touched: list[Touched]) -> Iterator[None]:
        """What the last commit touched. A small change is complete after the first `next`."""
        if recreates_a_topic(self._image, touched):
            self._apply(changes_of(self._image, touched, self._node_id))
            return
        changes = yield from changes_in_steps(self._image, touched, self._node_id)
        for number, portion in enumerate(portions(changes)):
            if number > 0:
                yield
            self._apply(portion)

    def _apply(self, changes: Changes) -> None:
        if changes.broker_config or changes.default_broker_config:
            self._dynamic_config.on_change()
            self._on_config_changed()
        for step in changes.dropped:
            self._partitions.drop(step.topic_id, step.partition)
            delay_ms = self._dynamic_config.get("log.segment.delete.delay.ms")
            self._logs.delete_soon(TopicPartition(step.topic, step.partition), delay_ms)
        for step in (*changes.leadership, *changes.membership):
            if step.new is not None:
                self._partitions.on_metadata(step.topic_id, step.partition, step.new)
        self._replication.on_metadata(changes)
        self._on_coordinators(changes)
        if changes.broker_config or changes.default_broker_config:
            self._partitions.all_settings_changed()
        else:
            for topic in changes.topic_configs:
                self._partitions.topic_settings_changed(topic)
        for topic_info in changes.topics_created:
            if not changes.is_initial:
                logger.info(
                    "topic %s (%s) has %d partitions", topic_info.name, topic_info.id, topic_info.partition_count
                )
        for topic_info in changes.topics_deleted:
            logger.info("topic %s (%s) is deleted", topic_info.name, topic_info.id)
