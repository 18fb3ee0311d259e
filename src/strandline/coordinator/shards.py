"""The shards of one internal topic on this broker: loaded when it becomes a partition's leader, unloaded afterwards.

`node` tells it of every committed change of leadership. Handlers ask it for the shard of a group or transactional id.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic

from strandline.coordinator.log_port import CoordinatorLog
from strandline.coordinator.partitioning import partition_for
from strandline.coordinator.records import RecordTypes
from strandline.coordinator.shard import M, Shard, ShardSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.records.errors import CorruptBatch
from strandline.runtime.clock import Clock
from strandline.runtime.tasks import TaskGroup

logger = logging.getLogger(__name__)

OpenLog = Callable[[TopicPartition, int], Coroutine[Any, Any, CoordinatorLog]]
"""The log of a partition, for the leadership of one leader epoch. Raises KafkaError when that has ended."""


class Shards(Generic[M]):
    def __init__(
        self,
        topic: str,
        types: RecordTypes,
        make_machine: Callable[[int, int], M],
        open_log: OpenLog,
        partition_count: Callable[[], int | None],
        clock: Clock,
        settings: ShardSettings,
        tasks: TaskGroup,
        on_loaded: Callable[[Shard[M]], Coroutine[Any, Any, None]] | None = None,
        perform: Callable[[Shard[M], object], None] | None = None,
    ) -> None:
        """`make_machine` gets the partition and its leader epoch; `partition_count` is None while there is no topic;
        `on_loaded` is called with each shard that starts to serve; `perform` carries out the effects of a shard's
        decisions once their records are committed."""
        self.topic = topic
        self._types = types
        self._make_machine = make_machine
        self._open_log = open_log
        self._partition_count = partition_count
        self._clock = clock
        self._settings = settings
        self._tasks = tasks
        self._on_loaded = on_loaded
        self._perform = perform
        # None: this broker leads the partition, and its log is being opened.
        self._shards: dict[int, Shard[M] | None] = {}
        self._leader_epochs: dict[int, int] = {}
        self.failed = 0
        """How often a partition could not be loaded."""
        self.longest_load_ms = 0

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition in this leader epoch: a shard is loaded."""
        if self._leader_epochs.get(partition, -1) >= leader_epoch:
            return
        self._unload(partition)
        self._leader_epochs[partition] = leader_epoch
        self._shards[partition] = None
        self._tasks.start(self._load(partition, leader_epoch))

    def on_resigned(self, partition: int) -> None:
        """Another broker leads the partition, or it was deleted."""
        self._unload(partition)
        self._shards.pop(partition, None)
        self._leader_epochs.pop(partition, None)

    def unload_all(self) -> None:
        for partition in list(self._shards):
            self.on_resigned(partition)

    def partition_for(self, key: str) -> int:
        """The partition that coordinates this group or transactional id; COORDINATOR_NOT_AVAILABLE without topic."""
        count = self._partition_count()
        if not count:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} does not exist yet")
        return partition_for(key, count)

    def for_key(self, key: str) -> Shard[M]:
        return self.for_partition(self.partition_for(key))

    def for_partition(self, partition: int) -> Shard[M]:
        """Raises NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS."""
        if partition not in self._shards:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"this broker does not lead {TopicPartition(self.topic, partition)}"
            )
        shard = self._shards[partition]
        if shard is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{TopicPartition(self.topic, partition)} is being loaded"
            )
        shard.check_active()
        return shard

    def active(self) -> list[Shard[M]]:
        """By partition."""
        return [shard for _, shard in sorted(self._shards.items()) if shard is not None and not shard.is_loading]

    def loading(self) -> int:
        return sum(shard is None or shard.is_loading for shard in self._shards.values())

    @property
    def is_loading(self) -> bool:
        return self.loading() > 0

    async def _load(self, partition: int, leader_epoch: int) -> None:
        topic_partition = TopicPartition(self.topic, partition)
        try:
            log = await self._open_log(topic_partition, leader_epoch)
            if self._leader_epochs.get(partition) != leader_epoch:
                return
            machine = self._make_machine(partition, leader_epoch)
            shard = Shard(topic_partition, log, machine, self._types, self._clock, self._settings)
            if self._perform is not None:
                shard.perform = partial(self._perform, shard)
            self._shards[partition] = shard
            started_ms = self._clock.now_ms()
            await shard.load()
            self.longest_load_ms = max(self.longest_load_ms, self._clock.now_ms() - started_ms)
            if self._on_loaded is not None:
                await self._on_loaded(shard)
        except (KafkaError, CorruptBatch, OSError) as error:
            if self._leader_epochs.get(partition) == leader_epoch:
                logger.error("%s could not be loaded: %s", topic_partition, error)
                self.failed += 1
                self.on_resigned(partition)

    def _unload(self, partition: int) -> None:
        shard = self._shards.get(partition)
        if shard is not None:
            shard.unload(KafkaError(ErrorCode.NOT_COORDINATOR, f"this broker no longer leads {shard.topic_partition}"))
