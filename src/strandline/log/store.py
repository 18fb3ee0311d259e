"""All logs of a node, over all its log directories: which are known, which are open, where a new one goes.

Owned by the node; replication opens logs through it. Start-up costs the names and the checkpoints: a log is opened when
somebody needs it (`open_log`, blocking), and what is not opened keeps its entries in the checkpoints.

Threads: `open_log`, `delete_log` and `close` block and may run in any thread, one at a time for each partition; they
publish in the registry with single assignments. The periodic steps are in `maintenance`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from random import Random

from strandline.log import names
from strandline.log.checkpoints import CorruptCheckpoint
from strandline.log.directory import LogDirectory
from strandline.log.health import Condition, DirectoryHealth
from strandline.log.partition_log import PartitionLog
from strandline.log.scan import OldFormat
from strandline.log.segment import Segment
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
        self._homes: dict[TopicPartition, LogDirectory] = {}
        # Partitions that lie in two directories; nobody but a person can say which is the right one.
        self.doubled: dict[TopicPartition, str] = {}
        # Logs that came back without what they once had: what was lost, for whoever replicates them.
        self.damaged: dict[TopicPartition, str] = {}
        # Directories that get no new partitions of their own accord (KIP-1066).
        self.cordoned: frozenset[Uuid] = frozenset()
        # What is to be removed, and when (monotonic time); directories that were doomed before go at once.
        self.segments_to_remove: list[tuple[int, Segment]] = []
        self.directories_to_remove: list[tuple[int, str]] = []
        for directory in self.directories:
            for topic_partition in directory.partitions:
                self._settle(topic_partition, directory)
            self.directories_to_remove.extend((0, path) for path in directory.doomed)

    @classmethod
    def open(cls, disk: Disk, directories: Mapping[str, Uuid], random: Random) -> LogStore:
        """Blocking. `directories` are log.dirs with their ids. Raises DirectoryInUse."""
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
        """Where the partition lives; None when this node has never had it."""
        return self._homes.get(topic_partition)

    def partitions(self) -> list[TopicPartition]:
        """All that have a directory here, opened or not."""
        return list(self._homes)

    def unrecovered(self) -> list[TopicPartition]:
        """Logs that nobody has looked at since a shutdown that was not clean. Opening them in the background, when
        there is nothing else to do, makes the next shutdown a clean one."""
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
        """Blocking. The log, opened or made; in the directory with this id if it is new and one is asked for. What lies
        there of another topic of the same name is set aside. Raises KafkaError."""
        log = self._logs.get(topic_partition)
        if log is not None and self._topic_ids.get(topic_partition) == topic_id:
            log.settings = settings
            return log
        if topic_partition in self.doubled:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.doubled[topic_partition])
        directory = self._homes.get(topic_partition)
        if directory is not None:
            directory.health.check_readable()
            if not self._belongs(directory, topic_partition, topic_id):
                self._set_aside(directory, topic_partition, names.STRAY_DIRECTORY)
                directory = None
        is_new, lost_up_to = directory is None, 0
        if directory is None:
            directory = self._choose(directory_id)
            self._settle(topic_partition, directory)
            lost_up_to = self._report_missing(topic_partition)
        try:
            if is_new:
                directory.write_topic_id(topic_partition, topic_id)
            log = self._open_in(directory, topic_partition, settings, wall_ms)
        except OSError as error:
            if is_new:
                # Another directory may take it next time.
                self._homes.pop(topic_partition, None)
                directory.forget(topic_partition)
            raise directory.health.explain(error, f"opening {topic_partition}") from error
        except OldFormat as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        log.is_directory_synced = log.is_directory_synced and not is_new
        log.lost_up_to = max(log.lost_up_to, lost_up_to)
        self._logs[topic_partition] = log
        self._topic_ids[topic_partition] = topic_id
        directory.unrecovered.pop(topic_partition, None)
        return log

    def delete_log(self, topic_partition: TopicPartition, *, remove_at_ms: int = 0) -> bool:
        """Blocking. The partition is gone from this node: its directory is renamed, and removed by a later step. False
        when there is none."""
        directory = self._homes.get(topic_partition)
        if directory is None:
            return False
        path = self._set_aside(directory, topic_partition, names.DELETE_DIRECTORY)
        self.directories_to_remove.append((remove_at_ms, path))
        return True

    def mark_strays(self, expected: Mapping[TopicPartition, Uuid]) -> list[TopicPartition]:
        """Blocking, once the committed metadata is known after a start. Partitions this node is not meant to have, or
        has of another topic of the same name, become `-stray`; a person may want them."""
        strays = []
        for topic_partition, directory in list(self._homes.items()):
            topic_id = expected.get(topic_partition)
            try:
                stray = topic_id is None or not self._belongs(directory, topic_partition, topic_id)
            except KafkaError as error:
                # Left as it is: every request for it will be told the same.
                logger.error("%s is not served: %s", topic_partition, error.why)
                continue
            if stray:
                self._set_aside(directory, topic_partition, names.STRAY_DIRECTORY)
                strays.append(topic_partition)
        return strays

    def sizes(self, directory: LogDirectory) -> dict[TopicPartition, int]:
        """Blocking. Bytes of every partition in a directory, opened or not."""
        sizes: dict[TopicPartition, int] = {}
        for topic_partition in list(directory.partitions):
            log = self._logs.get(topic_partition)
            try:
                sizes[topic_partition] = _size_on_disk(directory, topic_partition) if log is None else log.size_bytes
            except FileNotFoundError:
                continue
            except OSError as error:
                raise directory.health.explain(error, f"looking into {topic_partition}") from error
        return sizes

    def _open_in(
        self, directory: LogDirectory, topic_partition: TopicPartition, settings: LogSettings, wall_ms: int
    ) -> PartitionLog:
        log = PartitionLog.open(
            directory.disk,
            directory.partition_path(topic_partition),
            topic_partition,
            settings,
            recovery_point=directory.recovery_points.get(topic_partition, 0),
            log_start_offset=directory.log_starts.get(topic_partition),
            clean=directory.is_clean and topic_partition not in directory.unrecovered,
            wall_ms=wall_ms,
            health=directory.health,
        )
        log.before_truncation = directory.before_truncation
        high_watermark = directory.high_watermarks.get(topic_partition, 0)
        if high_watermark > log.log_end_offset:
            self._report_loss(
                topic_partition,
                f"it ends at {log.log_end_offset}, before {high_watermark}, to where it had been committed",
            )
            log.lost_up_to = max(log.lost_up_to, high_watermark)
        elif log.lost_up_to > log.log_end_offset:
            self._report_loss(
                topic_partition,
                f"it ends at {log.log_end_offset}, where something damaged was cut off with whole records behind it",
            )
        log.advance_high_watermark(high_watermark)
        return log

    def _report_missing(self, topic_partition: TopicPartition) -> int:
        """A partition that gets a new directory although something was written down about an old one: up to where it
        had committed records."""
        lost_up_to = 0
        for directory in self.directories:
            high_watermark = directory.missing.pop(topic_partition, 0)
            if high_watermark:
                why = f"its directory is gone from {directory.path}, where its high watermark had been {high_watermark}"
                self._report_loss(topic_partition, why)
            lost_up_to = max(lost_up_to, high_watermark)
        return lost_up_to

    def _report_loss(self, topic_partition: TopicPartition, why: str) -> None:
        logger.error("%s has lost records: %s", topic_partition, why)
        self.damaged[topic_partition] = why

    def _belongs(self, directory: LogDirectory, topic_partition: TopicPartition, topic_id: Uuid) -> bool:
        """Whether what is on disk is of this topic. A directory that does not say (an old Kafka's) is given the id."""
        try:
            found = self._topic_id_in(directory, topic_partition)
            if found is None:
                directory.write_topic_id(topic_partition, topic_id)
        except CorruptCheckpoint as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"it cannot be told whose records {directory.partition_path(topic_partition)} holds: {error}. If they "
                f"are of the topic that is there now, restore the file with the lines `version: 0` and "
                f"`topic_id: {topic_id}`",
            ) from error
        except OSError as error:
            raise directory.health.explain(error, f"finding out the topic of {topic_partition}") from error
        return found in (None, topic_id)

    def _topic_id_in(self, directory: LogDirectory, topic_partition: TopicPartition) -> Uuid | None:
        """None when it does not say."""
        try:
            return directory.topic_id(topic_partition)
        except CorruptCheckpoint:
            if _size_on_disk(directory, topic_partition) > 0:
                raise
            # The power went while it was being made: the id is synced before the first record is taken.
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
        # The controller places nothing here when all are cordoned; what it placed before must go somewhere.
        open_to_all = [directory for directory in writable if directory.id not in self.cordoned]
        return min(open_to_all or writable or online, key=lambda directory: len(directory.partitions))

    def _settle(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        other = self._homes.get(topic_partition)
        if other is not None:
            self.doubled[topic_partition] = (
                f"{topic_partition} is in {other.path} and in {directory.path}: move the one that is not wanted away"
            )
            logger.error("%s", self.doubled[topic_partition])
            return
        directory.partitions.setdefault(topic_partition, directory.partition_path(topic_partition))
        self._homes[topic_partition] = directory

    def _set_aside(self, directory: LogDirectory, topic_partition: TopicPartition, mark: str) -> str:
        log = self._logs.pop(topic_partition, None)
        self._topic_ids.pop(topic_partition, None)
        if log is not None:
            with log.writing:
                # Whoever still reads or flushes it must not take missing files for a broken disk, nor write new ones.
                log.health = DirectoryHealth.gone(log.path, f"{topic_partition} was removed")
                log.close(flush=False)
        self._homes.pop(topic_partition, None)
        self.damaged.pop(topic_partition, None)
        try:
            path = directory.set_aside(topic_partition, mark, self._random)
        except OSError as error:
            raise directory.health.explain(error, f"setting {topic_partition} aside") from error
        logger.info("%s is now %s", topic_partition, path)
        return path


def _size_on_disk(directory: LogDirectory, topic_partition: TopicPartition) -> int:
    path = directory.partition_path(topic_partition)
    return sum(
        directory.disk.size(os.path.join(path, name)) for name in directory.disk.list(path) if name.endswith(names.LOG)
    )
