"""The log cleaner's shell: chooses the log with most to gain, compacts it step by step in threads, installs the result.

Each step holds the lock `Partition.changing`, so that a follower's truncation waits for one step and not for the whole
compaction, which ends by itself when the records it has read are gone.

The end offset of each log's last cleaning is stored in the `cleaner-offset-checkpoint` of its directory, as in Kafka. A
log that cannot be cleaned (damaged records) is logged once and skipped until the node restarts.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from strandline.log import checkpoints
from strandline.log.compaction.cleanable import Cleanable, cleanable
from strandline.log.directory import LogDirectory
from strandline.log.partition_log import PartitionLog
from strandline.log.store import LogStore
from strandline.model.errors import KafkaError
from strandline.model.ids import TopicPartition
from strandline.replication.partition import Partition
from strandline.replication.table import PartitionTable
from strandline.runtime.world import World

if TYPE_CHECKING:
    from strandline.log.compaction.cleaner import CleaningStats

logger = logging.getLogger(__name__)


class CompactionScheduler:
    def __init__(self, store: LogStore, partitions: PartitionTable, world: World, config: Callable[[str], Any]) -> None:
        self._store = store
        self._partitions = partitions
        self._world = world
        self._config = config
        self._offsets: dict[LogDirectory, dict[TopicPartition, int]] = {}
        self._uncleanable: dict[TopicPartition, PartitionLog] = {}

    async def run(self) -> None:
        while True:
            if not self._config("log.cleaner.enable") or not await self.clean_one():
                await asyncio.sleep(self._config("log.cleaner.backoff.ms") / 1000)

    async def clean_one(self) -> bool:
        """Compacts the dirtiest log; False when no log is due."""
        choice = await self._world.offload.run(self._choose)
        if choice is None:
            return False
        # Imported late: it delays the start of a node, which has nothing to compact.
        from strandline.log.compaction.cleaner import Uncleanable

        log, directory, todo = choice
        partition = self._partitions.partition_with_log(log)
        if partition is None:
            return False
        try:
            await self._clean(partition, log, directory, todo)
        except Uncleanable as error:
            logger.error("compaction skips a damaged log: %s", error)
            self._uncleanable[log.topic_partition] = log
        except KafkaError as error:
            # The directory fails, not the log: it may be full now and have room later.
            logger.warning("compaction of %s is postponed: %s", log.topic_partition, error.why)
            return False
        return True

    def _choose(self) -> tuple[PartitionLog, LogDirectory, Cleanable] | None:
        """Blocking. Chooses the next log: overdue logs first, then the dirtiest."""
        best: tuple[PartitionLog, LogDirectory, Cleanable] | None = None
        for log in self._store.open_logs():
            directory = self._store.directory_of(log.topic_partition)
            if not log.settings.cleanup_compact or directory is None or not log.health.is_online:
                continue
            if self._uncleanable.get(log.topic_partition) is log:
                continue
            todo = cleanable(log, self._known(directory).get(log.topic_partition), self._world.clock.wall_ms())
            if todo.is_due(log.settings.min_cleanable_dirty_ratio) and (best is None or _rank(todo) > _rank(best[2])):
                best = log, directory, todo
        return best

    async def _clean(self, partition: Partition, log: PartitionLog, directory: LogDirectory, todo: Cleanable) -> None:
        from strandline.log.compaction.cleaner import Cleaning

        cleaning = Cleaning(
            log,
            todo,
            wall_ms=self._world.clock.wall_ms(),
            random=self._world.random,
            dedupe_buffer_bytes=self._config("log.cleaner.dedupe.buffer.size"),
        )
        moved = 0
        try:
            while not cleaning.done:
                async with partition.changing:
                    replacement = await self._world.offload.run(cleaning.step)
                    if replacement is not None and self._store.log(log.topic_partition) is log:
                        due_ms = self._world.clock.now_ms() + log.settings.file_delete_delay_ms
                        retired = log.replace_segments(replacement)
                        self._store.segments_to_remove.extend((due_ms, segment) for segment in retired)
                moved = await self._throttle(cleaning.stats, moved)
        finally:
            if not cleaning.done:
                cleaning.abandon()
        self._known(directory)[log.topic_partition] = cleaning.end_offset
        await self._world.offload.run(self._write, directory)
        stats = cleaning.stats
        logger.info(
            "compacted %s: %d of %d records kept, %d bytes became %d",
            log.topic_partition, stats.records_kept, stats.records_read, stats.bytes_read, stats.bytes_written,
        )  # fmt: skip

    async def _throttle(self, stats: CleaningStats, before: int) -> int:
        """Sleeps so that reads and writes stay within log.cleaner.io.max.bytes.per.second."""
        moved = stats.bytes_read + stats.bytes_written
        if moved > before:
            await asyncio.sleep((moved - before) / self._config("log.cleaner.io.max.bytes.per.second"))
        return moved

    def _known(self, directory: LogDirectory) -> dict[TopicPartition, int]:
        offsets = self._offsets.get(directory)
        if offsets is None:
            try:
                offsets = checkpoints.read_offsets(directory.disk, self._path(directory))
            except (checkpoints.CorruptCheckpoint, FileNotFoundError):
                # Without it a log is cleaned from its start.
                offsets = {}
            self._offsets[directory] = offsets
        return offsets

    def _write(self, directory: LogDirectory) -> None:
        offsets = self._known(directory)
        for topic_partition in [known for known in offsets if known not in directory.partitions]:
            del offsets[topic_partition]
        try:
            checkpoints.write_offsets(directory.disk, self._path(directory), offsets)
        except OSError as error:
            raise directory.health.report_error(error, "writing the cleaner's checkpoint") from error

    def _path(self, directory: LogDirectory) -> str:
        return os.path.join(directory.path, checkpoints.CLEANER_OFFSETS)


def _rank(todo: Cleanable) -> tuple[bool, float]:
    return todo.overdue, todo.dirty_ratio
