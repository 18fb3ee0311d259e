"""The cleaner at work: picks the log that gains most, compacts it in slices off the event loop, installs the result.

A cleaning takes turns with retention and truncation at its log, slice by slice: a follower that must cut its log does
not wait for a long compaction, which ends by itself when it finds that what it read is no longer there.

Where each log's last cleaning ended is kept in `cleaner-offset-checkpoint` of its directory, as Kafka keeps it. A log
that cannot be cleaned (damage) is left alone until the node restarts, and said so once.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from strandline.log import checkpoints
from strandline.log.cleanable import Cleanable, cleanable
from strandline.log.directory import LogDirectory
from strandline.log.partition_log import PartitionLog
from strandline.log.store import LogStore
from strandline.model.errors import KafkaError
from strandline.model.ids import TopicPartition
from strandline.replication.partition import Partition
from strandline.replication.table import PartitionTable
from strandline.runtime.world import World

if TYPE_CHECKING:
    from strandline.log.cleaner import CleaningStats

logger = logging.getLogger(__name__)


class Compaction:
    def __init__(
        self, store: LogStore, partitions: PartitionTable, world: World, setting: Callable[[str], Any]
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._world = world
        self._setting = setting
        self._offsets: dict[LogDirectory, dict[TopicPartition, int]] = {}
        self._uncleanable: dict[TopicPartition, PartitionLog] = {}

    async def run(self) -> None:
        while True:
            if not self._setting("log.cleaner.enable") or not await self.clean_one():
                await asyncio.sleep(self._setting("log.cleaner.backoff.ms") / 1000)

    async def clean_one(self) -> bool:
        """Compacts the log that needs it most; False when none does."""
        choice = await self._world.offload.run(self._choose)
        if choice is None:
            return False
        # A node that starts has nothing to compact, and waits for nothing.
        from strandline.log.cleaner import Uncleanable

        log, directory, todo = choice
        partition = self._partitions.partition_with_log(log)
        if partition is None:
            return False
        try:
            await self._clean(partition, log, directory, todo)
        except Uncleanable as error:
            logger.error("%s", error)
            self._uncleanable[log.topic_partition] = log
        except KafkaError as error:
            # The directory, not the log: it may be full now and have room later.
            logger.warning("compaction of %s is put off: %s", log.topic_partition, error.why)
            return False
        return True

    def _choose(self) -> tuple[PartitionLog, LogDirectory, Cleanable] | None:
        """Blocking. Overdue logs first, then the dirtiest."""
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
        from strandline.log.cleaner import Cleaning

        cleaning = Cleaning(
            log,
            todo,
            wall_ms=self._world.clock.wall_ms(),
            random=self._world.random,
            dedupe_buffer_bytes=self._setting("log.cleaner.dedupe.buffer.size"),
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
                moved = await self._rest_after(cleaning.stats, moved)
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

    async def _rest_after(self, stats: CleaningStats, before: int) -> int:
        """As long as log.cleaner.io.max.bytes.per.second wants it for what was read and written since."""
        moved = stats.bytes_read + stats.bytes_written
        if moved > before:
            await asyncio.sleep((moved - before) / self._setting("log.cleaner.io.max.bytes.per.second"))
        return moved

    def _known(self, directory: LogDirectory) -> dict[TopicPartition, int]:
        offsets = self._offsets.get(directory)
        if offsets is None:
            try:
                offsets = checkpoints.read_offsets(directory.disk, self._path(directory))
            except (checkpoints.CorruptCheckpoint, FileNotFoundError):
                # It only saves work: without it a log is cleaned from its start.
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
