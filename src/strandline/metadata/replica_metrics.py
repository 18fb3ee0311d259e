"""What a broker tells about its replicas, by the names of Kafka's ReplicaManager metrics, as committed metadata has it.

Made by `node` for every broker. Partitions that are led here and lack a replica in sync are remembered, since whether
they have enough depends on settings that change by themselves; usually there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.metadata.image import Image
from strandline.metadata.values import PartitionInfo, PartitionKey
from strandline.metadata.watching import Watch
from strandline.runtime.metrics import Metrics

_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="
_METADATA: Final = "kafka.server:type=broker-metadata-metrics,name="


class ReplicaMetrics:
    def __init__(self, node_id: int, image: Image, metrics: Metrics, min_insync_replicas: Callable[[str], int]) -> None:
        """`min_insync_replicas` is asked by topic, with what counts right now."""
        self._node_id = node_id
        self._image = image
        self._min_insync_replicas = min_insync_replicas
        self._hosted = 0
        self._led = 0
        self._reassigning = 0
        self._lacking: dict[PartitionKey, PartitionInfo] = {}
        Watch(image, image.topics.partitions, self._on_partition)
        metrics.gauge(_REPLICAS + "PartitionCount", lambda: self._hosted)
        metrics.gauge(_REPLICAS + "LeaderCount", lambda: self._led)
        metrics.gauge(_REPLICAS + "ReassigningPartitions", lambda: self._reassigning)
        metrics.gauge(_REPLICAS + "UnderReplicatedPartitions", lambda: len(self._lacking))
        metrics.gauge(_REPLICAS + "UnderMinIsrPartitionCount", self._under_min_isr)
        metrics.gauge(_METADATA + "last-applied-record-offset", lambda: image.committed.offset - 1)

    def _on_partition(self, key: PartitionKey, old: PartitionInfo | None, new: PartitionInfo | None) -> None:
        me = self._node_id
        if old is not None and me in old.replicas:
            self._hosted -= 1
            if old.leader == me:
                self._lacking.pop(key, None)
                self._count_led(old, -1)
        if new is not None and me in new.replicas:
            self._hosted += 1
            if new.leader == me:
                self._count_led(new, 1)
                if len(new.isr) < len(new.replicas) - len(new.adding):
                    self._lacking[key] = new

    def _count_led(self, partition: PartitionInfo, weight: int) -> None:
        self._led += weight
        if partition.adding or partition.removing:
            self._reassigning += weight

    def _under_min_isr(self) -> int:
        view, count = self._image.committed, 0
        for (topic_id, _), partition in self._lacking.items():
            topic = view.topic_by_id(topic_id)
            if topic is not None:
                needed = min(self._min_insync_replicas(topic.name), len(partition.replicas))
                count += len(partition.isr) < needed
        return count
