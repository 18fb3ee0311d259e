"""The periodic steps of a log store. Shells offload those marked *blocking*; the others run on the event loop.

    every                                  step
    log.retention.check.interval.ms       `unopened_with_old_segments`, `logs_with_expired_segments` (blocking)
    log.flush.offset.checkpoint…          `checkpoint_recovery_points` (blocking)
    log.flush.start.offset.checkpoint…    `checkpoint_log_starts` (blocking)
    replica.high.watermark.checkpoint…    `checkpoint_high_watermarks` (blocking)
    producer.id.expiration.check…         `expire_producers`
    some seconds                          `remove_deleted` (blocking), `release_idle`
    once, on shutdown                     `close` (blocking)

A directory that fails is skipped, and its health reports why; the others are served.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from functools import partial

from strandline.log import names
from strandline.log.directory import LogDirectory
from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.log.store import LogStore
from strandline.model.errors import KafkaError
from strandline.model.ids import TopicPartition

logger = logging.getLogger(__name__)


def logs_with_expired_segments(store: LogStore, wall_ms: int) -> list[PartitionLog]:
    """Blocking. Open logs with segments to delete; which, is computed again when they are deleted."""
    found = []
    for log in store.open_logs():
        # The health of an offline directory has been logged once.
        with contextlib.suppress(KafkaError):
            if log.health.is_online and log.expired_segments(wall_ms):
                found.append(log)
    return found


def unopened_with_old_segments(
    store: LogStore, settings: Mapping[TopicPartition, LogSettings], wall_ms: int
) -> list[TopicPartition]:
    """Blocking. Unopened logs in which retention may delete segments: they are opened before a pass."""
    found = []
    for topic_partition, its_settings in settings.items():
        directory = store.directory_of(topic_partition)
        if store.log(topic_partition) is not None or directory is None or not directory.health.is_online:
            continue
        try:
            if _may_have_expired(directory, topic_partition, its_settings, wall_ms):
                found.append(topic_partition)
        except FileNotFoundError:
            continue
        except OSError as error:
            directory.health.report_error(error, f"looking for old segments in {topic_partition}")
    return found


def _may_have_expired(
    directory: LogDirectory, topic_partition: TopicPartition, settings: LogSettings, wall_ms: int
) -> bool:
    """Judges by file sizes and times alone: no record in a file is much younger than the file's last change."""
    path = directory.partition_path(topic_partition)
    logs = [os.path.join(path, name) for name in directory.disk.list(path) if name.endswith(names.LOG)]
    sizes = [directory.disk.size(log) for log in logs]
    if not settings.cleanup_delete or not any(sizes):
        return False
    if 0 <= settings.retention_bytes < sum(sizes):
        return True
    return settings.retention_ms >= 0 and wall_ms - directory.disk.modified_ms(logs[0]) > settings.retention_ms


def checkpoint_recovery_points(store: LogStore) -> None:
    """Blocking. Writes the recovery points of all logs: after a crash, only what was not flushed by now is read."""
    for directory in store.directories:
        _guarded(directory, directory.write_recovery_points, partial(_recovery_points, store, directory))


def checkpoint_log_starts(store: LogStore) -> None:
    """Blocking. Writes the log start offsets of all logs."""
    for directory in store.directories:
        _guarded(directory, directory.write_log_starts, partial(_log_starts, store, directory))


def checkpoint_high_watermarks(store: LogStore) -> None:
    """Blocking. Writes the high watermarks of all logs."""
    for directory in store.directories:
        _guarded(directory, directory.write_high_watermarks, partial(_high_watermarks, store, directory))


def remove_deleted(store: LogStore, now_ms: int) -> int:
    """Blocking. Removes deleted segments and directories whose delay has passed; returns how many."""
    removed = 0
    for due in [due for due in store.segments_to_remove if due[0] <= now_ms]:
        store.segments_to_remove.remove(due)
        removed += _removed(due[1].remove, due[1])
    for removable in [removable for removable in store.directories_to_remove if removable[0] <= now_ms]:
        store.directories_to_remove.remove(removable)
        disk = store.directories[0].disk
        removed += _removed(partial(disk.remove_tree, removable[1]), removable[1])
    return removed


def expire_producers(store: LogStore, wall_ms: int) -> int:
    """Removes, on the loop, producers after producer.id.expiration.ms; returns how many."""
    return sum(
        log.producers.expire(wall_ms, log.settings.producer_id_expiration_ms)
        for log in store.open_logs()
        if len(log.producers)
    )


def release_idle(store: LogStore) -> None:
    """Closes, on the loop, the files of logs that were not used since the last call."""
    for log in store.open_logs():
        log.release_if_idle()


def close_share(store: LogStore, share: int, shares: int) -> None:
    """Blocking. Closes one share of the logs. Several threads do this before `close`, which reports what failed:
    thousands of syncs take long one after the other."""
    for log in store.open_logs()[share::shares]:
        with contextlib.suppress(KafkaError):
            log.close()


def close(store: LogStore, broker_epoch: int = -1) -> None:
    """Blocking. Flushes all logs, writes the checkpoints, and marks the directories clean where nothing failed."""
    failed: dict[str, None] = {}
    for log in store.open_logs():
        try:
            log.close()
        except KafkaError as error:
            logger.error("%s was not closed cleanly: %s", log.topic_partition, error.why)
            failed[log.health.path] = None
    checkpoint_recovery_points(store)
    checkpoint_log_starts(store)
    checkpoint_high_watermarks(store)
    for directory in store.directories:
        if directory.path not in failed:
            _guarded(directory, directory.mark_clean, broker_epoch)
        directory.release()


def _recovery_points(store: LogStore, directory: LogDirectory) -> dict[TopicPartition, int]:
    points: dict[TopicPartition, int] = {}
    for log in _logs_in(store, directory):
        try:
            points[log.topic_partition] = log.checkpoint()
        except KafkaError as error:
            logger.debug("No recovery point of %s: %s", log.topic_partition, error.why)
    return points


def _log_starts(store: LogStore, directory: LogDirectory) -> dict[TopicPartition, int | None]:
    return {
        log.topic_partition: log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None
        for log in _logs_in(store, directory)
    }


def _high_watermarks(store: LogStore, directory: LogDirectory) -> dict[TopicPartition, int]:
    return {log.topic_partition: log.high_watermark for log in _logs_in(store, directory)}


def _logs_in(store: LogStore, directory: LogDirectory) -> list[PartitionLog]:
    return [log for log in store.open_logs() if store.directory_of(log.topic_partition) is directory]


def _guarded(directory: LogDirectory, step: Callable[..., object], *arguments: object) -> None:
    if not directory.health.is_online:
        return
    try:
        step(*arguments)
    except KafkaError:
        # The health of the directory has logged why.
        return
    except OSError as error:
        directory.health.report_error(error, "writing its checkpoints")


def _removed(remove: Callable[[], None], what: object) -> int:
    try:
        remove()
    except FileNotFoundError:
        return 0
    except OSError as error:
        logger.warning("%s could not be removed: %s", what, error)
        return 0
    return 1
