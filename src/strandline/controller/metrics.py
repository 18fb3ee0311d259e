"""Metrics of a controller, under the names of Kafka's KafkaController metrics.

Every controller, active or not, counts what its committed metadata shows. The counts are updated with each commit, at
the cost of the keys it changes. Two differ from Kafka's: `LastAppliedRecordTimestamp` is when this node applied the
last record, not when the record was written, and `NewActiveControllersCount` counts the activations of this controller
only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.metadata.commit_observer import CommitObserver
from strandline.metadata.image import Image
from strandline.metadata.values import NO_LEADER, RECOVERING, PartitionInfo, PartitionKey, TopicInfo
from strandline.model.ids import Uuid
from strandline.model.timeline import Touched
from strandline.runtime.clock import Clock
from strandline.runtime.metrics import Metrics

CONTROLLER: Final = "kafka.controller:type=KafkaController,name="
STATISTICS: Final = "kafka.controller:type=ControllerStats,name="


class ControllerMetrics:
    def __init__(self, image: Image, clock: Clock, metrics: Metrics, is_active: Callable[[], bool]) -> None:
        self._image = image
        self._clock = clock
        self._metrics = metrics
        self._is_active = is_active
        self._topics = 0
        self._partitions = 0
        self._offline = 0
        self._imbalanced = 0
        self._applied_ms = clock.wall_ms()
        self._unclean = metrics.counter(STATISTICS + "UncleanLeaderElectionsPerSec")
        self._from_eligible = metrics.counter(STATISTICS + "ElectionFromEligibleLeaderReplicasPerSec")
        self.late_heartbeats = metrics.counter(CONTROLLER + "TimedOutBrokerHeartbeatCount")
        self.activations = metrics.counter(CONTROLLER + "NewActiveControllersCount")

    def register(self) -> None:
        """Counts the committed image, follows its commits from now on, and publishes the gauges."""
        image, is_active = self._image, self._is_active
        CommitObserver(image, image.topics.topics, self._on_topic).start()
        CommitObserver(image, image.topics.partitions, self._on_partition).start()
        image.commit_listeners.append(self._on_commit)
        view = image.committed
        numbers: dict[str, Callable[[], float]] = {
            "ActiveControllerCount": is_active,
            "LastAppliedRecordOffset": lambda: view.offset - 1,
            "LastCommittedRecordOffset": lambda: view.offset - 1,
            "LastAppliedRecordTimestamp": lambda: self._applied_ms,
            "LastAppliedRecordLagMs": lambda: 0 if is_active() else max(0, self._clock.wall_ms() - self._applied_ms),
            "FencedBrokerCount": lambda: sum(broker.fenced for broker in view.brokers()),
            "ActiveBrokerCount": lambda: sum(not broker.fenced for broker in view.brokers()),
            "ControlledShutdownBrokerCount": lambda: sum(
                broker.in_controlled_shutdown and not broker.fenced for broker in view.brokers()
            ),
            "GlobalTopicCount": lambda: self._topics,
            "GlobalPartitionCount": lambda: self._partitions,
            "OfflinePartitionsCount": lambda: self._offline,
            "PreferredReplicaImbalanceCount": lambda: self._imbalanced,
        }
        for name, read in numbers.items():
            self._metrics.gauge(CONTROLLER + name, read)

    def _on_commit(self, touched: list[Touched]) -> None:
        self._applied_ms = self._clock.wall_ms()

    def _on_topic(self, topic_id: Uuid, old: TopicInfo | None, new: TopicInfo | None) -> None:
        self._topics += (new is not None) - (old is not None)

    def _on_partition(self, key: PartitionKey, old: PartitionInfo | None, new: PartitionInfo | None) -> None:
        if old is not None:
            if new is not None and old.leader_epoch == new.leader_epoch and old.replicas == new.replicas:
                return
            self._count(old, -1)
        if new is None:
            return
        self._count(new, 1)
        if old is not None and new.leader != NO_LEADER and old.leader_epoch != new.leader_epoch:
            if new.leader_recovery_state == RECOVERING:
                self._unclean.add()
            elif new.leader in old.elr:
                self._from_eligible.add()

    def _count(self, partition: PartitionInfo, weight: int) -> None:
        self._partitions += weight
        leader = partition.leader
        if leader == NO_LEADER:
            self._offline += weight
        if not partition.replicas or leader != partition.replicas[0]:
            self._imbalanced += weight
