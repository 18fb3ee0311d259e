"""Background tasks on the logs of a broker: retention, flushing by time, checkpoints, removal of deleted files, release
of idle files. `node` starts them.

Shells only: each waits for its interval and calls a step of `log/maintenance`, in a thread if that blocks. Steps that
change the segments of a log (retention here, compaction, a follower's truncation) exclude each other by the lock
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
from strandline.replication.flush_scheduler import FlushScheduler
from strandline.replication.partition import Partition
from strandline.replication.table import PartitionTable
from strandline.runtime.tasks import TaskGroup, YieldCounter, yield_to_loop
from strandline.runtime.world import World

logger = logging.getLogger(__name__)

_REMOVAL_INTERVAL_MS = 5_000
# Each segment is four files to rename.
_RETIRED_PER_YIELD = 20
_UNOPENED_PER_YIELD = 1_000


class LogMaintenance:
    def __init__(
        self,
        store: LogStore,
        partitions: PartitionTable,
        flusher: FlushScheduler,
        world: World,
        config: Callable[[str], Any],
        log_settings: Callable[[str], LogSettings],
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._flusher = flusher
        self._world = world
        self._config = config
        self._log_settings = log_settings

    def start(self, tasks: TaskGroup) -> None:
        tasks.start(self._retention(), "retention")
        tasks.start(self._flushing(), "flushing by time")
        tasks.start(self._removal(), "removal of files")
        for key, step in (
            ("log.flush.offset.checkpoint.interval.ms", maintenance.checkpoint_recovery_points),
            ("log.flush.start.offset.checkpoint.interval.ms", maintenance.checkpoint_log_starts),
            ("replica.high.watermark.checkpoint.interval.ms", maintenance.checkpoint_high_watermarks),
        ):
            tasks.start(self._checkpointing(key, step), key)

    async def _retention(self) -> None:
        await asyncio.sleep(self._config("log.initial.task.delay.ms") / 1000)
        while True:
            await self.retain()
            await asyncio.sleep(self._config("log.retention.check.interval.ms") / 1000)

    async def retain(self) -> int:
        """One pass over all logs; the number of retired segments."""
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
                # Not of a log that was deleted meanwhile: the files may belong to a recreated topic.
                while count > retired and partition.log is log and self._store.log(log.topic_partition) is log:
                    segments = log.delete_oldest_segments(min(count - retired, _RETIRED_PER_YIELD), wall_ms)
                    due_ms = self._world.clock.now_ms() + log.settings.file_delete_delay_ms
                    self._store.segments_to_remove.extend((due_ms, segment) for segment in segments)
                    retired += len(segments)
                    if not segments:
                        break
                    await yield_to_loop()
        except KafkaError as error:
            logger.warning("retention skips %s: %s", log.topic_partition, error.why)
        if retired and partition.leader is not None:
            partition.leader.on_log_start_moved()
        return retired

    async def _settings_of_unopened(self) -> dict[TopicPartition, LogSettings]:
        """Collected here and not in the thread that lists the files: settings belong to the event loop."""
        settings = {}
        yields = YieldCounter(every=_UNOPENED_PER_YIELD)
        for topic_partition in self._store.partitions():
            if yields.due():
                await yield_to_loop()
            if self._store.log(topic_partition) is None:
                settings[topic_partition] = self._log_settings(topic_partition.topic)
        return settings

    async def _flushing(self) -> None:
        """Logs with a flush policy, and sealed segments that are not flushed yet."""
        while True:
            # Kafka's default interval is "never", with which flush.ms would have no effect without further appends.
            await asyncio.sleep(min(1_000, self._config("log.flush.scheduler.interval.ms")) / 1000)
            now_ms = self._world.clock.now_ms()
            for partition in self._partitions:
                log = partition.log
                if log is not None and log.health.is_online and log.flush_needed(now_ms):
                    self._flusher.request(partition)

    async def _checkpointing(self, key: str, step: Callable[[LogStore], None]) -> None:
        while True:
            await asyncio.sleep(self._config(key) / 1000)
            await self._world.offload.run(step, self._store)

    async def _removal(self) -> None:
        since_expiry_ms = 0
        while True:
            await asyncio.sleep(_REMOVAL_INTERVAL_MS / 1000)
            since_expiry_ms += _REMOVAL_INTERVAL_MS
            maintenance.release_idle(self._store)
            await self._world.offload.run(maintenance.remove_deleted, self._store, self._world.clock.now_ms())
            if since_expiry_ms >= self._config("producer.id.expiration.check.interval.ms"):
                since_expiry_ms = 0
                maintenance.expire_producers(self._store, self._world.clock.wall_ms())
