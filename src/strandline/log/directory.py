"""One log directory of a node: its lock, its checkpoints, its partition directories, and its health.

Owned by the store. Opening it reads the names in it and its checkpoints, never a log. The checkpoint maps hold what the
files hold, about open and unopened logs alike; the entry of a log does not change until the log has been opened.

Threads: everything here blocks and may be called from any thread; `_writing` orders the writers of checkpoint files, so
that a periodic write that began earlier cannot undo `before_truncation`, which lowers offsets.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from random import Random

from strandline.log import checkpoints, names
from strandline.log.checkpoints import CorruptCheckpoint
from strandline.log.directory_health import DirectoryHealth
from strandline.model.ids import METADATA_TOPIC, TopicPartition, Uuid
from strandline.runtime.disk import DirectoryLock, Disk

logger = logging.getLogger(__name__)

_LOCK = ".lock"


class DirectoryInUse(Exception):
    """Another process uses this directory; the message says so."""


class LogDirectory:
    def __init__(self, disk: Disk, path: str, directory_id: Uuid) -> None:
        self.disk = disk
        self.path = path
        self.id = directory_id
        self.health = DirectoryHealth(path)
        self.is_clean = False
        """Whether the last process shut down cleanly."""
        self.clean_broker_epoch = -1
        """The broker epoch at that shutdown (-1: none)."""
        self.recorded_broker_epoch = -1
        """The broker epoch that was last recorded here, cleanly shut down or not (-1: none)."""
        self.partitions: dict[TopicPartition, str] = {}
        self.unrecovered: dict[TopicPartition, None] = {}
        """Logs that have not been opened since a shutdown that was not clean."""
        self.deleted: list[str] = []
        """Partition directories renamed to `-delete`, to be removed."""
        self.missing: dict[TopicPartition, int] = {}
        """High watermarks of partitions that have a checkpoint entry but no directory."""
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self._stale: dict[str, set[TopicPartition]] = {}
        """Removed partitions whose entries are still in the checkpoint file of this name."""
        self._lock: DirectoryLock | None = None
        self._writing = threading.Lock()

    @classmethod
    def open(cls, disk: Disk, path: str, directory_id: Uuid) -> LogDirectory:
        """Blocking. Locks the directory; it is returned offline if it cannot be read. Raises DirectoryInUse."""
        directory = cls(disk, path, directory_id)
        try:
            directory._lock = disk.lock(os.path.join(path, _LOCK))
            directory._read_clean_shutdown()
            recorded = checkpoints.read_clean_shutdown(disk, os.path.join(path, checkpoints.BROKER_EPOCH))
            directory.recorded_broker_epoch = -1 if recorded is None else recorded
            directory.recovery_points = directory._read(checkpoints.RECOVERY_POINTS)
            directory.log_starts = directory._read(checkpoints.LOG_STARTS)
            directory.high_watermarks = directory._read(checkpoints.HIGH_WATERMARKS)
            directory._list_partitions()
        except BlockingIOError as error:
            raise DirectoryInUse(f"{path} is in use by another process (it holds {path}/{_LOCK})") from error
        except OSError as error:
            directory.health.fail(f"opening it failed: {error}")
        return directory

    def partition_path(self, topic_partition: TopicPartition) -> str:
        return os.path.join(self.path, str(topic_partition))

    def topic_id(self, topic_partition: TopicPartition) -> Uuid | None:
        """Blocking. The topic id in partition.metadata; None when there is no such file. Raises CorruptCheckpoint."""
        path = os.path.join(self.partition_path(topic_partition), names.PARTITION_METADATA)
        return checkpoints.read_topic_id(self.disk, path)

    def write_topic_id(self, topic_partition: TopicPartition, topic_id: Uuid) -> None:
        """Blocking. Creates the directory of a new partition and writes partition.metadata before the first record."""
        with self._writing:
            for name, offsets in self._checkpoints():
                # After a crash, checkpoints of a deleted topic must not be used for a new one of its name.
                if topic_partition in self._stale.get(name, ()):
                    self._write(name, offsets)
        path = self.partition_path(topic_partition)
        self.disk.make_dirs(path)
        file = self.disk.open(os.path.join(path, names.PARTITION_METADATA), create=True)
        try:
            file.truncate(0)
            file.write_at(0, checkpoints.topic_id_bytes(topic_id))
            file.sync()
        finally:
            file.close()

    def rename_partition(self, topic_partition: TopicPartition, suffix: str, random: Random) -> str:
        """Blocking. Renames the directory of a partition that is removed (`-delete`, `-stray`); returns the new
        path."""
        old = self.partition_path(topic_partition)
        new = os.path.join(self.path, names.suffixed_directory(topic_partition, suffix, random))
        self.disk.rename(old, new)
        self.disk.sync_dir(self.path)
        self.forget(topic_partition)
        return new

    def forget(self, topic_partition: TopicPartition) -> None:
        with self._writing:
            self.partitions.pop(topic_partition, None)
            self.unrecovered.pop(topic_partition, None)
            for name, offsets in self._checkpoints():
                if offsets.pop(topic_partition, None) is not None:
                    self._stale.setdefault(name, set()).add(topic_partition)

    def _checkpoints(self) -> tuple[tuple[str, dict[TopicPartition, int]], ...]:
        return (
            (checkpoints.RECOVERY_POINTS, self.recovery_points),
            (checkpoints.LOG_STARTS, self.log_starts),
            (checkpoints.HIGH_WATERMARKS, self.high_watermarks),
        )

    def before_truncation(self, topic_partition: TopicPartition, end_offset: int, log_start_offset: int | None) -> None:
        """Blocking. Lower the checkpoints about a log to what it will hold after the truncation."""
        with self._writing:
            if self.recovery_points.get(topic_partition, 0) > end_offset:
                self.recovery_points[topic_partition] = end_offset
                self._write(checkpoints.RECOVERY_POINTS, self.recovery_points)
            if log_start_offset is not None and topic_partition in self.log_starts:
                self.log_starts[topic_partition] = log_start_offset
                self._write(checkpoints.LOG_STARTS, self.log_starts)

    def write_recovery_points(self, of_open_logs: Callable[[], dict[TopicPartition, int]]) -> None:
        """Blocking. Writes the checkpoint; the offsets are computed with the lock held: see `before_truncation`."""
        with self._writing:
            self._merge(checkpoints.RECOVERY_POINTS, self.recovery_points, of_open_logs())

    def write_log_starts(self, of_open_logs: Callable[[], dict[TopicPartition, int | None]]) -> None:
        """Blocking. Writes the checkpoint of log start offsets; None: the log starts where its first segment does."""
        with self._writing:
            self._merge(checkpoints.LOG_STARTS, self.log_starts, of_open_logs())

    def write_high_watermarks(self, of_open_logs: Callable[[], dict[TopicPartition, int]]) -> None:
        """Blocking. Writes the checkpoint of high watermarks."""
        with self._writing:
            self._merge(checkpoints.HIGH_WATERMARKS, self.high_watermarks, of_open_logs())

    def mark_clean(self, broker_epoch: int) -> bool:
        """Blocking. The last write of a shutdown; not made if a log has not been opened since a crash."""
        if self.unrecovered or not self.health.is_online:
            return False
        checkpoints.write_clean_shutdown(self.disk, os.path.join(self.path, checkpoints.CLEAN_SHUTDOWN), broker_epoch)
        return True

    def record_broker_epoch(self, broker_epoch: int) -> None:
        """Blocking. Records which registration wrote here, in case the process does not shut down cleanly."""
        try:
            path = os.path.join(self.path, checkpoints.BROKER_EPOCH)
            checkpoints.write_clean_shutdown(self.disk, path, broker_epoch)
        except OSError as error:
            raise self.health.report_error(error, "recording the broker epoch") from error
        self.recorded_broker_epoch = broker_epoch

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _merge(self, name: str, known: dict[TopicPartition, int], found: Mapping[TopicPartition, int | None]) -> None:
        changed = name in self._stale
        for topic_partition, offset in found.items():
            if known.get(topic_partition) == offset or topic_partition not in self.partitions:
                continue
            changed = True
            if offset is None:
                del known[topic_partition]
            else:
                known[topic_partition] = offset
        if changed:
            self._write(name, known)

    def _write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        try:
            checkpoints.write_offsets(self.disk, os.path.join(self.path, name), offsets)
        except OSError as error:
            raise self.health.report_error(error, f"writing {name}") from error
        self._stale.pop(name, None)

    def _read(self, name: str) -> dict[TopicPartition, int]:
        """A damaged checkpoint is ignored: more of the logs is read instead."""
        try:
            return checkpoints.read_offsets(self.disk, os.path.join(self.path, name))
        except CorruptCheckpoint as error:
            logger.error("Ignoring a damaged checkpoint, logs will be read instead: %s", error)
            return {}

    def _read_clean_shutdown(self) -> None:
        path = os.path.join(self.path, checkpoints.CLEAN_SHUTDOWN)
        broker_epoch = checkpoints.read_clean_shutdown(self.disk, path)
        self.is_clean = broker_epoch is not None
        self.clean_broker_epoch = -1 if broker_epoch is None else broker_epoch
        if self.disk.exists(path):
            # Removed and synced before anything is appended: else a crash would pass for a clean shutdown.
            self.disk.remove(path)
            self.disk.sync_dir(self.path)

    def _list_partitions(self) -> None:
        for name in self.disk.list(self.path):
            found = names.parse_partition_directory(name)
            path = os.path.join(self.path, name)
            if found is None or found.topic_partition.topic == METADATA_TOPIC or not self.disk.is_dir(path):
                continue
            if found.suffix == names.DELETE_DIRECTORY:
                self.deleted.append(path)
            elif found.suffix:
                logger.info("Ignoring %s", path)
            else:
                self.partitions[found.topic_partition] = path
        if not self.is_clean:
            self.unrecovered = dict.fromkeys(self.partitions)
        self.missing = {known: offset for known, offset in self.high_watermarks.items() if known not in self.partitions}
        for offsets in (self.recovery_points, self.log_starts, self.high_watermarks):
            for topic_partition in [known for known in offsets if known not in self.partitions]:
                del offsets[topic_partition]
