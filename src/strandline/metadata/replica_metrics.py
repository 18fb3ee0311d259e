"""Metrics of a broker's replicas by committed metadata, under the names of Kafka's ReplicaManager metrics.

Registered by `node` for every broker. Whether a partition has enough replicas in sync depends on configs that change
independently. So led partitions are counted by topic and ISR size, and compared with min.insync.replicas when the
metric is read. Offline replicas are counted in the same way, by directory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from strandline.metadata.commit_observer import CommitObserver
from strandline.metadata.image import Image
from strandline.metadata.values import PartitionInfo, PartitionKey
from strandline.model.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid
from strandline.runtime.metrics import Metrics

_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="
_METADATA: Final = "kafka.server:type=broker-metadata-metrics,name="
T = TypeVar("T")


class _Led(msgspec.Struct, frozen=True):
    """Partitions that this broker leads, grouped by what determines their metrics."""

    topic_id: Uuid
    in_sync: int
    replicas: int


class ReplicaMetrics:
    def __init__(self, node_id: int, image: Image, min_insync_replicas: Callable[[str], int]) -> None:
        """`min_insync_replicas` returns the current value of a topic."""
        self._node_id = node_id
        self._image = image
        self._min_insync_replicas = min_insync_replicas
        self._hosted: Counter[Uuid] = Counter()
        """The number of hosted replicas by directory."""
        self._led: Counter[_Led] = Counter()
        self._reassigning = 0
        self._under_replicated = 0

    def register(self, metrics: Metrics) -> None:
        """Counts the committed image, follows its commits from now on, and publishes the gauges."""
        image = self._image
        CommitObserver(image, image.topics.partitions, self._on_partition).start()
        metrics.gauge(_REPLICAS + "PartitionCount", self._hosted.total)
        metrics.gauge(_REPLICAS + "OfflineReplicaCount", self._offline)
        metrics.gauge(_REPLICAS + "LeaderCount", self._led.total)
        metrics.gauge(_REPLICAS + "ReassigningPartitions", lambda: self._reassigning)
        metrics.gauge(_REPLICAS + "UnderReplicatedPartitions", lambda: self._under_replicated)
        metrics.gauge(_REPLICAS + "UnderMinIsrPartitionCount", lambda: self._count(lambda spare: spare < 0))
        metrics.gauge(_REPLICAS + "AtMinIsrPartitionCount", lambda: self._count(lambda spare: spare == 0))
        metrics.gauge(_METADATA + "last-applied-record-offset", lambda: image.committed.offset - 1)

    def _on_partition(self, key: PartitionKey, old: PartitionInfo | None, new: PartitionInfo | None) -> None:
        for partition, weight in ((old, -1), (new, 1)):
            if partition is not None and self._node_id in partition.replicas:
                _add(self._hosted, partition.directory_of(self._node_id) or DIRECTORY_MIGRATING, weight)
                if partition.leader == self._node_id:
                    self._count_led(key[0], partition, weight)

    def _count_led(self, topic_id: Uuid, partition: PartitionInfo, weight: int) -> None:
        in_sync, replicas = len(partition.isr), len(partition.replicas)
        _add(self._led, _Led(topic_id, in_sync, replicas), weight)
        if partition.adding or partition.removing:
            self._reassigning += weight
        if in_sync < replicas - len(partition.adding):
            self._under_replicated += weight

    def _count(self, condition: Callable[[int], bool]) -> int:
        """Partitions led here, by the number of in-sync replicas above min.insync.replicas."""
        view, count = self._image.committed, 0
        for led, number in self._led.items():
            topic = view.topic_by_id(led.topic_id)
            if topic is not None:
                needed = min(self._min_insync_replicas(topic.name), led.replicas)
                count += number * condition(led.in_sync - needed)
        return count

    def _offline(self) -> int:
        """Replicas in failed directories, without those whose directory is not assigned yet."""
        broker = self._image.committed.broker(self._node_id)
        if broker is None or not broker.directories:
            return self._hosted[DIRECTORY_LOST]
        online = (*broker.directories, DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING)
        return sum(number for directory, number in self._hosted.items() if directory not in online)


def _add(counts: Counter[T], key: T, weight: int) -> None:
    """Removes a count that becomes 0."""
    counts[key] += weight
    if not counts[key]:
        del counts[key]
