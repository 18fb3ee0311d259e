"""What a broker tells about its replicas, by the names of Kafka's ReplicaManager metrics, as committed metadata has it.

Made by `node` for every broker. Whether partitions have enough replicas in sync depends on settings that change by
themselves; so what is led here is counted by topic and by how many are in sync, and judged when somebody reads. Whether
a replica is offline is judged in the same way, by the directory it is in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from strandline.metadata.commit_observer import CommitObserver
from strandline.metadata.image import Image
from strandline.metadata.values import PartitionInfo, PartitionKey
from strandline.model.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid
from strandline.runtime.metrics import Metrics

_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="
_METADATA: Final = "kafka.server:type=broker-metadata-metrics,name="
T = TypeVar("T")


class _Led(NamedTuple):
    """Partitions that are led here and have this in common."""

    topic_id: Uuid
    in_sync: int
    replicas: int


class ReplicaMetrics:
    def __init__(self, node_id: int, image: Image, min_insync_replicas: Callable[[str], int]) -> None:
        """`min_insync_replicas` is asked by topic, with what counts right now."""
        self._node_id = node_id
        self._image = image
        self._min_insync_replicas = min_insync_replicas
        self._hosted: Counter[Uuid] = Counter()
        """By directory."""
        self._led: Counter[_Led] = Counter()
        self._reassigning = 0
        self._lacking = 0

    def register(self, metrics: Metrics) -> None:
        """Counts the committed image, follows its commits from now on, and publishes the gauges."""
        image = self._image
        CommitObserver(image, image.topics.partitions, self._on_partition).start()
        metrics.gauge(_REPLICAS + "PartitionCount", self._hosted.total)
        metrics.gauge(_REPLICAS + "OfflineReplicaCount", self._offline)
        metrics.gauge(_REPLICAS + "LeaderCount", self._led.total)
        metrics.gauge(_REPLICAS + "ReassigningPartitions", lambda: self._reassigning)
        metrics.gauge(_REPLICAS + "UnderReplicatedPartitions", lambda: self._lacking)
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
            self._lacking += weight

    def _count(self, is_meant: Callable[[int], bool]) -> int:
        """Partitions led here, by how many replicas in sync there are to spare."""
        view, count = self._image.committed, 0
        for led, number in self._led.items():
            topic = view.topic_by_id(led.topic_id)
            if topic is not None:
                needed = min(self._min_insync_replicas(topic.name), led.replicas)
                count += number * is_meant(led.in_sync - needed)
        return count

    def _offline(self) -> int:
        """Replicas in directories that have failed; not those whose directory is still to be told."""
        broker = self._image.committed.broker(self._node_id)
        if broker is None or not broker.directories:
            return self._hosted[DIRECTORY_LOST]
        online = (*broker.directories, DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING)
        return sum(number for directory, number in self._hosted.items() if directory not in online)


def _add(counts: Counter[T], key: T, weight: int) -> None:
    """What there is none of takes no room."""
    counts[key] += weight
    if not counts[key]:
        del counts[key]
