"""All logs of a node in all its log directories: which exist, which are open, where a new one is created.

Owned by the node; replication opens logs through it. Start-up reads directory names and checkpoints only: a log is
opened when it is first used (`open_log`, blocking), and an unopened log keeps its entries in the checkpoints.

Threads: `open_log`, `delete_log` and `close` block and may run in any thread, one at a time for each partition; they
publish in the maps with single assignments. The periodic steps are in `maintenance`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from random import Random

from strandline.log import names
from strandline.log.checkpoints import CorruptCheckpoint
from strandline.log.directory import LogDirectory
from strandline.log.directory_health import Condition
from strandline.log.partition_log import PartitionLog
from strandline.log.segment import Segment
from strandline.log.segment_scan import OldFormat
from strandline.log.settings import LogSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition, Uuid
from strandline.runtime.disk import Disk

logger = logging.getLogger(__name__)


class LogStore:
    def __init__(self, directories: Sequence[LogDirectory], random: Random) -> None:
        self.directories = list(directories)
        self._random = random
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._topic_ids: dict[TopicPartition, Uuid] = {}
        self._directory_of: dict[TopicPartition, LogDirectory] = {}
        self._duplicates: dict[TopicPartition, str] = {}
        """Partitions found in two directories, which are not served: an operator has to decide which is right."""
        self.losses: dict[TopicPartition, str] = {}
        """Logs that lack records they once had, and which."""
        self.cordoned: frozenset[Uuid] = frozenset()
        """Directories in which no new partitions are placed (KIP-1066)."""
        self.segments_to_remove: list[tuple[int, Segment]] = []
        """Segments with the (monotonic) time of their removal."""
        self.directories_to_remove: list[tuple[int, str]] = []
        """Directories likewise; those left by an earlier process are removed at once."""
        for directory in self.directories:
            for topic_partition in directory.partitions:
                self._assign(topic_partition, directory)
            self.directories_to_remove.extend((0, path) for path in directory.deleted)

    @classmethod
    def open(cls, disk: Disk, directories: Mapping[str, Uuid], random: Random) -> LogStore:
        """Blocking. Opens all log directories; `directories` are log.dirs with their ids. Raises DirectoryInUse."""
        opened: list[LogDirectory] = []
        try:
            for path, directory_id in directories.items():
                opened.append(LogDirectory.open(disk, path, directory_id))
        except BaseException:
            for directory in opened:
                directory.release()
            raise
        return cls(opened, random)

    def log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log if it is open."""
        return self._logs.get(topic_partition)

    def open_logs(self) -> list[PartitionLog]:
        return list(self._logs.values())

    def directory_of(self, topic_partition: TopicPartition) -> LogDirectory | None:
        """Where the partition is; None when this node does not have it."""
        return self._directory_of.get(topic_partition)

    def partitions(self) -> list[TopicPartition]:
        """All that have a directory here, open or not."""
        return list(self._directory_of)

    def unrecovered(self) -> list[TopicPartition]:
        """Logs that have not been opened since a shutdown that was not clean. The next shutdown is clean only if all of
        them have been opened, so they are opened in the background."""
        return [tp for directory in self.directories for tp in directory.unrecovered]

    def open_log(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        settings: LogSettings,
        *,
        wall_ms: int,
        directory_id: Uuid | None = None,
    ) -> PartitionLog:
        """Blocking. The log, opened or created; if it is new, in the directory with this id if one is given. A log of
        another topic of the same name is renamed to `-stray`. Raises KafkaError."""
        log = self._logs.get(topic_partition)
        if log is not None and self._topic_ids.get(topic_partition) == topic_id:
            log.update_settings(settings)
            return log
        if topic_partition in self._duplicates:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._duplicates[topic_partition])
        directory = self._directory_of.get(topic_partition)
        if directory is not None:
            directory.health.check_readable()
            if not self._belongs(directory, topic_partition, topic_id):
                self._remove(directory, topic_partition, names.STRAY_DIRECTORY)
                directory = None
        is_new, lost_up_to = directory is None, 0
        if directory is None:
            directory = self._choose(directory_id)
            self._assign(topic_partition, directory)
            lost_up_to = self._report_missing(topic_partition)
        try:
            if is_new:
                directory.write_topic_id(topic_partition, topic_id)
            log = self._open_in(directory, topic_partition, settings, wall_ms, is_new=is_new)
        except OSError as error:
            if is_new:
                # The next attempt may choose another directory.
                self._directory_of.pop(topic_partition, None)
                directory.forget(topic_partition)
            raise directory.health.report_error(error, f"opening {topic_partition}") from error
        except OldFormat as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        log.require_up_to(lost_up_to)
        self._logs[topic_partition] = log
        self._topic_ids[topic_partition] = topic_id
        directory.unrecovered.pop(topic_partition, None)
        return log

    def delete_log(self, topic_partition: TopicPartition, *, remove_at_ms: int = 0) -> bool:
        """Blocking. Renames the directory of a partition to `-delete`; a later step removes it. Returns False when
        there is none."""
        directory = self._directory_of.get(topic_partition)
        if directory is None:
            return False
        path = self._remove(directory, topic_partition, names.DELETE_DIRECTORY)
        self.directories_to_remove.append((remove_at_ms, path))
        return True

    def mark_strays(self, expected: Mapping[TopicPartition, Uuid]) -> list[TopicPartition]:
        """Blocking, once the committed metadata is known after a start. Partitions that are not assigned to this node,
        or are of another topic of the same name, are renamed to `-stray`; an operator may want them."""
        strays = []
        for topic_partition, directory in list(self._directory_of.items()):
            topic_id = expected.get(topic_partition)
            try:
                stray = topic_id is None or not self._belongs(directory, topic_partition, topic_id)
            except KafkaError as error:
                # Left as it is: every request for it gets the same error.
                logger.error("%s is not served: %s", topic_partition, error.why)
                continue
            if stray:
                self._remove(directory, topic_partition, names.STRAY_DIRECTORY)
                strays.append(topic_partition)
        return strays

    def sizes(self, directory: LogDirectory) -> dict[TopicPartition, int]:
        """Blocking. Bytes of every partition in a directory, open or not."""
        sizes: dict[TopicPartition, int] = {}
        for topic_partition in list(directory.partitions):
            log = self._logs.get(topic_partition)
            try:
                sizes[topic_partition] = _size_on_disk(directory, topic_partition) if log is None else log.size_bytes
            except FileNotFoundError:
                continue
            except OSError as error:
                raise directory.health.report_error(error, f"reading the size of {topic_partition}") from error
        return sizes

    def _open_in(
        self,
        directory: LogDirectory,
        topic_partition: TopicPartition,
        settings: LogSettings,
        wall_ms: int,
        *,
        is_new: bool,
    ) -> PartitionLog:
        log = PartitionLog.open(
            directory.disk,
            directory.partition_path(topic_partition),
            topic_partition,
            settings,
            recovery_point=directory.recovery_points.get(topic_partition, 0),
            log_start_offset=directory.log_starts.get(topic_partition),
            clean=directory.is_clean and topic_partition not in directory.unrecovered,
            is_new_directory=is_new,
            wall_ms=wall_ms,
            health=directory.health,
            before_truncation=directory.before_truncation,
        )
        high_watermark = directory.high_watermarks.get(topic_partition, 0)
        if high_watermark > log.log_end_offset:
            self._report_loss(
                topic_partition,
                f"it ends at {log.log_end_offset}, before its last known high watermark {high_watermark}",
            )
            log.require_up_to(high_watermark)
        elif log.lacks_records:
            self._report_loss(
                topic_partition,
                f"it was truncated to {log.log_end_offset}, where it is damaged, with intact records behind",
            )
        log.advance_high_watermark(high_watermark)
        return log

    def _report_missing(self, topic_partition: TopicPartition) -> int:
        """The high watermark of a partition that is created although checkpoints know it from before; 0 if none do."""
        lost_up_to = 0
        for directory in self.directories:
            high_watermark = directory.missing.pop(topic_partition, 0)
            if high_watermark:
                why = f"its directory is missing from {directory.path}, where its high watermark was {high_watermark}"
                self._report_loss(topic_partition, why)
            lost_up_to = max(lost_up_to, high_watermark)
        return lost_up_to

    def _report_loss(self, topic_partition: TopicPartition, why: str) -> None:
        logger.error("%s has lost records: %s", topic_partition, why)
        self.losses[topic_partition] = why

    def _belongs(self, directory: LogDirectory, topic_partition: TopicPartition, topic_id: Uuid) -> bool:
        """Whether the directory is of this topic. Without partition.metadata (an old Kafka's) it gets the id."""
        try:
            found = self._topic_id_in(directory, topic_partition)
            if found is None:
                directory.write_topic_id(topic_partition, topic_id)
        except CorruptCheckpoint as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the topic of {directory.partition_path(topic_partition)} is unknown: {error}. If its records are "
                f"of the topic that exists now, restore the file with the lines `version: 0` and "
                f"`topic_id: {topic_id}`",
            ) from error
        except OSError as error:
            raise directory.health.report_error(error, f"reading the topic id of {topic_partition}") from error
        return found in (None, topic_id)

    def _topic_id_in(self, directory: LogDirectory, topic_partition: TopicPartition) -> Uuid | None:
        """The topic id of a partition in this directory; None when there is no partition.metadata."""
        try:
            return directory.topic_id(topic_partition)
        except CorruptCheckpoint:
            if _size_on_disk(directory, topic_partition) > 0:
                raise
            # The power was lost while it was created: the id is synced before the first append.
            return None

    def _choose(self, directory_id: Uuid | None) -> LogDirectory:
        for directory in self.directories:
            if directory.id == directory_id:
                directory.health.check_readable()
                return directory
        online = [directory for directory in self.directories if directory.health.is_online]
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory of this node is online")
        writable = [directory for directory in online if directory.health.condition is Condition.ONLINE]
        # The controller places nothing here when all are cordoned; what it placed before must be created somewhere.
        uncordoned = [directory for directory in writable if directory.id not in self.cordoned]
        return min(uncordoned or writable or online, key=lambda directory: len(directory.partitions))

    def _assign(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        other = self._directory_of.get(topic_partition)
        if other is not None:
            self._duplicates[topic_partition] = (
                f"{topic_partition} is in {other.path} and in {directory.path}: remove the wrong one"
            )
            logger.error("%s", self._duplicates[topic_partition])
            return
        directory.partitions.setdefault(topic_partition, directory.partition_path(topic_partition))
        self._directory_of[topic_partition] = directory

    def _remove(self, directory: LogDirectory, topic_partition: TopicPartition, suffix: str) -> str:
        """Closes the log and renames its directory; returns the new path."""
        log = self._logs.pop(topic_partition, None)
        self._topic_ids.pop(topic_partition, None)
        if log is not None:
            log.abandon(f"{topic_partition} was removed")
        self._directory_of.pop(topic_partition, None)
        self.losses.pop(topic_partition, None)
        try:
            path = directory.rename_partition(topic_partition, suffix, self._random)
        except OSError as error:
            raise directory.health.report_error(error, f"renaming {topic_partition}") from error
        logger.info("%s was renamed to %s", topic_partition, path)
        return path


def _size_on_disk(directory: LogDirectory, topic_partition: TopicPartition) -> int:
    path = directory.partition_path(topic_partition)
    return sum(
        directory.disk.size(os.path.join(path, name)) for name in directory.disk.list(path) if name.endswith(names.LOG)
    )
