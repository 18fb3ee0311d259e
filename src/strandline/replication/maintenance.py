"""What a broker does to its logs when nobody asks: retention, flushing by time, checkpoints, removal, rest.

Shells only: each waits for its interval and calls a step of `log/maintenance`, offloading what blocks. Steps that
change which segments a log has (retention here, compaction, a follower's truncation) take turns at each log, through
`Partition.changing`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from strandline.log import maintenance
from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.log.store import LogStore
from strandline.model.errors import KafkaError
from strandline.model.ids import ZERO_UUID, TopicPartition
from strandline.replication.flusher import Flusher
from strandline.replication.partition import Partition
from strandline.replication.table import PartitionTable
from strandline.runtime.tasks import TaskGroup, yield_to_loop
from strandline.runtime.world import World

logger = logging.getLogger(__name__)

_TIDY_INTERVAL_MS = 5_000
# Each is four files to be renamed.
_RETIRED_PER_TURN = 20
_LOOKED_AT_PER_TURN = 1_000


class LogMaintenance:
    def __init__(
        self,
        store: LogStore,
        partitions: PartitionTable,
        flusher: Flusher,
        world: World,
        setting: Callable[[str], Any],
        log_settings: Callable[[str], LogSettings],
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._flusher = flusher
        self._world = world
        self._setting = setting
        self._log_settings = log_settings

    def start(self, tasks: TaskGroup) -> None:
        tasks.start(self._retention(), "retention")
        tasks.start(self._flushing(), "flushing by time")
        tasks.start(self._tidying(), "tidying of logs")
        for key, step in (
            ("log.flush.offset.checkpoint.interval.ms", maintenance.checkpoint_recovery_points),
            ("log.flush.start.offset.checkpoint.interval.ms", maintenance.checkpoint_log_starts),
            ("replica.high.watermark.checkpoint.interval.ms", maintenance.checkpoint_high_watermarks),
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
        settings = await self._settings_of_unopened()
        for topic_partition in await self._world.offload.run(
            maintenance.unopened_with_old_segments, self._store, settings, wall_ms
        ):
            with contextlib.suppress(KafkaError):
                await self._partitions.find(topic_partition.topic, ZERO_UUID, topic_partition.partition).ready()
        retired = 0
        for log in await self._world.offload.run(maintenance.logs_with_expired_segments, self._store, wall_ms):
            partition = self._partitions.partition_with_log(log)
            if partition is not None:
                retired += await self._retain_one(partition, log, wall_ms)
        return retired

    async def _retain_one(self, partition: Partition, log: PartitionLog, wall_ms: int) -> int:
        retired = 0
        try:
            async with partition.changing:
                count = await self._world.offload.run(log.expired_segments, wall_ms)
                # A log that was deleted meanwhile is left alone: its files may be those of a successor by now.
                while count > retired and partition.log is log and self._store.log(log.topic_partition) is log:
                    segments = log.retire(min(count - retired, _RETIRED_PER_TURN), wall_ms)
                    due_ms = self._world.clock.now_ms() + log.settings.file_delete_delay_ms
                    self._store.segments_to_remove.extend((due_ms, segment) for segment in segments)
                    retired += len(segments)
                    if not segments:
                        break
                    await yield_to_loop()
        except KafkaError as error:
            logger.warning("retention leaves out %s: %s", log.topic_partition, error.why)
        if retired and partition.leader is not None:
            partition.leader.on_log_start_moved()
        return retired

    async def _settings_of_unopened(self) -> dict[TopicPartition, LogSettings]:
        """Asked for here, not by the thread that looks at their files: settings belong to the event loop."""
        settings = {}
        for number, topic_partition in enumerate(self._store.partitions()):
            if number % _LOOKED_AT_PER_TURN == _LOOKED_AT_PER_TURN - 1:
                await yield_to_loop()
            if self._store.log(topic_partition) is None:
                settings[topic_partition] = self._log_settings(topic_partition.topic)
        return settings

    async def _flushing(self) -> None:
        """HostedLogs with a flush policy, and sealed segments that wait for their sync."""
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
            maintenance.release_idle(self._store)
            await self._world.offload.run(maintenance.remove_deleted, self._store, self._world.clock.now_ms())
            if since_expiry_ms >= self._setting("producer.id.expiration.check.interval.ms"):
                since_expiry_ms = 0
                maintenance.expire_producers(self._store, self._world.clock.wall_ms())
