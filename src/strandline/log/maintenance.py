"""The periodic steps of a log store, for shells to call: those marked *blocking* are offloaded, the rest is the loop's.

    every                                  step
    log.retention.check.interval.ms       `unopened_with_old_segments`, `logs_with_expired_segments` (blocking)
    log.flush.offset.checkpoint…          `checkpoint_recovery_points` (blocking)
    log.flush.start.offset.checkpoint…    `checkpoint_log_starts` (blocking)
    replica.high.watermark.checkpoint…    `checkpoint_high_watermarks` (blocking)
    producer.id.expiration.check…         `expire_producers`
    some seconds                          `remove_deleted` (blocking), `release_idle`
    once, at the end                      `close` (blocking)

A directory that fails is left out and reported by its health; the others are served.
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
    """Blocking. Open logs that retention has something to do in; what exactly, is asked again when they are changed."""
    found = []
    for log in store.open_logs():
        # A directory that is offline has said so once.
        with contextlib.suppress(KafkaError):
            if log.health.is_online and log.expired_segments(wall_ms):
                found.append(log)
    return found


def unopened_with_old_segments(
    store: LogStore, settings: Mapping[TopicPartition, LogSettings], wall_ms: int
) -> list[TopicPartition]:
    """Blocking. Logs that nobody uses but that retention may have something to do in: open them before a pass."""
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
            directory.health.explain(error, f"looking into {topic_partition}")
    return found


def _may_have_expired(
    directory: LogDirectory, topic_partition: TopicPartition, settings: LogSettings, wall_ms: int
) -> bool:
    """Judged by sizes and times of files alone; no record in a file is much younger than the file's last change."""
    path = directory.partition_path(topic_partition)
    logs = [os.path.join(path, name) for name in directory.disk.list(path) if name.endswith(names.LOG)]
    sizes = [directory.disk.size(log) for log in logs]
    if not settings.cleanup_delete or not any(sizes):
        return False
    if 0 <= settings.retention_bytes < sum(sizes):
        return True
    return settings.retention_ms >= 0 and wall_ms - directory.disk.modified_ms(logs[0]) > settings.retention_ms


def checkpoint_recovery_points(store: LogStore) -> None:
    """Blocking. After it a crash costs reading only what was not flushed by now."""
    for directory in store.directories:
        _guarded(directory, directory.write_recovery_points, partial(_recovery_points, store, directory))


def checkpoint_log_starts(store: LogStore) -> None:
    """Blocking."""
    for directory in store.directories:
        _guarded(directory, directory.write_log_starts, partial(_log_starts, store, directory))


def checkpoint_high_watermarks(store: LogStore) -> None:
    """Blocking."""
    for directory in store.directories:
        _guarded(directory, directory.write_high_watermarks, partial(_high_watermarks, store, directory))


def remove_deleted(store: LogStore, now_ms: int) -> int:
    """Blocking. Remove segments and directories whose time has come; how many."""
    removed = 0
    for doomed in [doomed for doomed in store.segments_to_remove if doomed[0] <= now_ms]:
        store.segments_to_remove.remove(doomed)
        removed += _removed(doomed[1].remove, doomed[1])
    for due in [due for due in store.directories_to_remove if due[0] <= now_ms]:
        store.directories_to_remove.remove(due)
        disk = store.directories[0].disk
        removed += _removed(partial(disk.remove_tree, due[1]), due[1])
    return removed


def expire_producers(store: LogStore, wall_ms: int) -> int:
    """On the loop; how many producers were forgotten."""
    return sum(
        log.producers.expire(wall_ms, log.settings.producer_id_expiration_ms)
        for log in store.open_logs()
        if len(log.producers)
    )


def release_idle(store: LogStore) -> None:
    """On the loop. Logs that nobody used since the last call put down their files."""
    for log in store.open_logs():
        log.release_if_idle()


def close_share(store: LogStore, share: int, shares: int) -> None:
    """Blocking. One share of the logs, for several threads to close side by side before `close`, which tells of what
    failed: thousands of syncs take their time one after the other."""
    for log in store.open_logs()[share::shares]:
        with contextlib.suppress(KafkaError):
            log.close()


def close(store: LogStore, broker_epoch: int = -1) -> None:
    """Blocking. Everything flushed and written down; where that went well, the directory is marked clean.

    Logs are closed one after the other; who has threads to spare closes them there before (`PartitionLog.close`).
    """
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
        # The directory's health has said why, once.
        return
    except OSError as error:
        directory.health.explain(error, "writing its checkpoints")


def _removed(remove: Callable[[], None], what: object) -> int:
    try:
        remove()
    except FileNotFoundError:
        return 0
    except OSError as error:
        logger.warning("%s could not be removed: %s", what, error)
        return 0
    return 1
