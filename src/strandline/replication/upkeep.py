"""What a broker does to its logs when nobody asks: retention, flushing by time, checkpoints, removal, rest.

Shells only: each waits for its interval and calls a step of `log/housekeeping`, offloading what blocks. Steps that
change which segments a log has (retention here, compaction in `replication/compaction`) take turns through `changing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from strandline.log import housekeeping
from strandline.log.settings import LogSettings
from strandline.log.store import LogStore
from strandline.model.errors import KafkaError
from strandline.model.ids import ZERO_UUID, TopicPartition
from strandline.replication.flusher import Flusher
from strandline.replication.table import PartitionTable
from strandline.runtime.tasks import TaskGroup
from strandline.runtime.world import World

_TIDY_INTERVAL_MS = 5_000


class Upkeep:
    def __init__(
        self,
        store: LogStore,
        partitions: PartitionTable,
        flusher: Flusher,
        world: World,
        setting: Callable[[str], Any],
        log_settings: Callable[[str], LogSettings],
        changing: asyncio.Lock,
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._flusher = flusher
        self._world = world
        self._setting = setting
        self._log_settings = log_settings
        self._changing = changing

    def start(self, tasks: TaskGroup) -> None:
        tasks.start(self._retention(), "retention")
        tasks.start(self._flushing(), "flushing by time")
        tasks.start(self._tidying(), "tidying of logs")
        for key, step in (
            ("log.flush.offset.checkpoint.interval.ms", housekeeping.checkpoint_recovery_points),
            ("log.flush.start.offset.checkpoint.interval.ms", housekeeping.checkpoint_log_starts),
            ("replica.high.watermark.checkpoint.interval.ms", housekeeping.checkpoint_high_watermarks),
        ):
            tasks.start(self._checkpointing(key, step), key)

    async def _retention(self) -> None:
        await asyncio.sleep(self._setting("log.initial.task.delay.ms") / 1000)
        while True:
            await self.retain()
            await asyncio.sleep(self._setting("log.retention.check.interval.ms") / 1000)

    async def retain(self) -> int:
        """One pass over all logs; how many segments were retired."""
        wall_ms = self._world.clock.wall_ms()
        unopened = await self._world.offload.run(
            partial(housekeeping.unopened_with_old_segments, self._store, self._settings_of, wall_ms)
        )
        for topic_partition in unopened:
            try:
                await self._partitions.find(topic_partition.topic, ZERO_UUID, topic_partition.partition).ready()
            except KafkaError:
                continue
        async with self._changing:
            retention = housekeeping.Retention(self._store, wall_ms)
            await self._world.offload.run(retention.run)
            retired = retention.apply(self._world.clock.now_ms())
        if retired:
            for partition in self._partitions:
                if partition.leader is not None:
                    partition.leader.on_log_start_moved()
        return retired

    def _settings_of(self, topic_partition: TopicPartition) -> LogSettings | None:
        return self._log_settings(topic_partition.topic)

    async def _flushing(self) -> None:
        """Logs with a flush policy, and sealed segments that wait for their sync."""
        while True:
            # Kafka's default interval is "never"; a second keeps flush.ms honest without being asked.
            await asyncio.sleep(min(1_000, self._setting("log.flush.scheduler.interval.ms")) / 1000)
            now_ms = self._world.clock.now_ms()
            for partition in self._partitions:
                log = partition.log
                if log is not None and log.health.is_online and log.flush_needed(now_ms):
                    self._flusher.request(partition)

    async def _checkpointing(self, key: str, step: Callable[[LogStore], None]) -> None:
        while True:
            await asyncio.sleep(self._setting(key) / 1000)
            await self._world.offload.run(step, self._store)

    async def _tidying(self) -> None:
        since_expiry_ms = 0
        while True:
            await asyncio.sleep(_TIDY_INTERVAL_MS / 1000)
            since_expiry_ms += _TIDY_INTERVAL_MS
            housekeeping.rest_idle(self._store)
            await self._world.offload.run(housekeeping.remove_doomed, self._store, self._world.clock.now_ms())
            if since_expiry_ms >= self._setting("producer.id.expiration.check.interval.ms"):
                since_expiry_ms = 0
                housekeeping.expire_producers(self._store, self._world.clock.wall_ms())
