"""Making a log durable: group commit in a thread while the event loop goes on appending.

Called by PartitionLog. What survives a power loss, in this order of promises:

1. `flushed_offset`: all batches below it are on disk, in files whose directory entries are on disk. A flush takes the
   log end first, then syncs every segment that grew, then the directories that changed; what is appended meanwhile
   waits for the next flush. Segments are synced oldest first, so that a log never has a hole.
2. the recovery-point checkpoint: what lies below it is never read again to learn from. So before an offset may stand
   there, the leader epochs below it are synced as well, and sealed segments below it with their indexes.

A producer snapshot or the indexes of the active segment may be lost: they are made again from the log.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from strandline.log import checkpoints, names, producer_snapshots
from strandline.log.epochs import EpochCache
from strandline.log.producer_replay import snapshot_path
from strandline.log.segment import Segment

if TYPE_CHECKING:
    from strandline.log.partition_log import PartitionLog


# A log with less than this to read after a crash is not worth a sync of its own.
_CHECKPOINT_BYTES = 16 << 20


def flush_needed(log: PartitionLog, now_ms: int) -> bool:
    flushed = log.flushed_offset
    unflushed = log.log_end_offset - flushed
    if unflushed <= 0:
        log.flush_deadline_ms = None
        return False
    settings = log.settings
    if unflushed >= settings.flush_messages or log.active.base_offset > flushed:
        return True
    if log.flush_deadline_ms is None:
        log.flush_deadline_ms = now_ms + settings.flush_ms
    return now_ms >= log.flush_deadline_ms


def flush(log: PartitionLog, sealed_only: bool) -> int:
    log.health.check_readable()
    generation = log.generation
    # The end before the segments: 1. the end is read; 2. the loop rolls and appends; 3. the segments are read. The
    # other way round a new segment would be counted and not be synced.
    end_offset = log.log_end_offset
    segments = log.segments
    if sealed_only:
        end_offset = segments[-1].base_offset
        segments = segments[:-1]
    # What lies wholly below was synced before.
    segments = [segment for segment in segments if not segment.is_synced()]
    try:
        # Taken before the files are synced: an entry made later is not about a segment seen here.
        entries_changed = log.entries_changed
        for segment in segments:
            _sync_segment(log, segment)
        _write_captured_producers(log, generation)
        _sync_entries(log, entries_changed)
    except OSError as error:
        raise log.health.explain(error, f"syncing {log.path}", syncing=True) from error
    log.publish_flushed(end_offset, generation)
    return end_offset


def write_again(log: PartitionLog) -> None:
    """Blocking, on opening after a crash. The cache may show what the medium does not have: Linux calls pages clean
    whose writing failed, so a sync now would have nothing to do. Written once more they are dirty, and it has."""
    try:
        for index, segment in enumerate(log.segments):
            if log.end_of(index) > log.flushed_offset:
                segment.write_again()
    except OSError as error:
        raise log.health.explain(error, f"writing the end of {log.path} again") from error


def checkpoint(log: PartitionLog) -> int:
    """The least that is true before and after: a flush under way may only raise it."""
    log.health.check_readable()
    if log.unflushed_bytes() >= _CHECKPOINT_BYTES:
        flush(log, sealed_only=False)
    offset = log.flushed_offset
    write_epochs(log)
    truncating_to = log.truncating_to
    return offset if truncating_to is None else min(offset, truncating_to)


def write_epochs(log: PartitionLog) -> None:
    """Blocking, any thread."""
    epochs = log.epochs
    entries = epochs.entries
    if entries == epochs.written or log.truncating_to is not None:
        return
    try:
        store_epochs(log, EpochCache(entries))
    except OSError as error:
        raise log.health.explain(error, f"writing the leader epochs of {log.path}") from error
    epochs.written = entries


def store_epochs(log: PartitionLog, epochs: EpochCache) -> None:
    checkpoints.write_epochs(log.disk, os.path.join(log.path, names.EPOCH_CHECKPOINT), epochs.entries)


def close(log: PartitionLog, with_flush: bool) -> None:
    """On the thread that owns the log by now: nobody appends or reads any more."""
    try:
        if with_flush and log.health.is_online:
            if not _is_as_closed(log):
                log.active.seal()
                log.captured_producers[log.log_end_offset] = producer_snapshots.capture(log.producers)
                flush(log, sealed_only=False)
                log.active.sync_indexes()
                log.disk.sync_dir(log.path)
            else:
                _close_unwritten(log)
            write_epochs(log)
    except OSError as error:
        raise log.health.explain(error, f"closing {log.path}") from error
    finally:
        for segment in log.segments:
            segment.rest()


def _close_unwritten(log: PartitionLog) -> None:
    """Of a log to which nothing was written, but which may be new, or have changed hands: thousands do so at once."""
    if not log.disk.exists(log.active.path(names.OFFSET_INDEX)):
        log.active.seal()  # an empty log has indexes too; there is nothing in them that could be lost
    if log.epochs.entries != log.epochs.written:
        _sync_entries(log, log.entries_changed)


def _drop_stray_snapshot(log: PartitionLog, offset: int) -> None:
    """Snapshots stay with the segment that begins where they were taken; one from within a segment stays the newest."""
    if offset < 0 or any(segment.base_offset == offset for segment in log.segments):
        return
    path = snapshot_path(log, offset)
    if log.disk.exists(path):
        log.disk.remove(path)


def _is_as_closed(log: PartitionLog) -> bool:
    """Whether the log was closed cleanly and nothing was appended since, or cut off."""
    has_snapshot = log.snapshot_offset == log.log_end_offset or log.size_bytes == 0
    return has_snapshot and log.flushed_offset == log.log_end_offset


def _sync_segment(log: PartitionLog, segment: Segment) -> None:
    try:
        segment.sync()
        if segment is not log.active:
            segment.sync_indexes()
    except FileNotFoundError:
        if not log.has_lost(segment):
            raise


def _sync_entries(log: PartitionLog, entries_changed: int) -> None:
    if log.entries_synced < entries_changed:
        log.disk.sync_dir(log.path)
        log.entries_synced = entries_changed
    if not log.is_directory_synced:
        log.disk.sync_dir(os.path.dirname(log.path))
        log.is_directory_synced = True


def _write_captured_producers(log: PartitionLog, generation: int) -> None:
    """Snapshots need no sync: a damaged one is left out and an older one replayed from."""
    for offset in sorted(log.captured_producers):
        captured = log.captured_producers[offset]
        path = snapshot_path(log, offset)
        file = log.disk.open(path + ".tmp", create=True)
        try:
            file.truncate(0)
            file.write_at(0, producer_snapshots.encode(captured))
        finally:
            file.close()
        log.publish_file(path + ".tmp", path, generation)
        log.captured_producers.pop(offset, None)
        # A log that only changed its epochs is closed at the offset where it was closed before.
        if log.snapshot_offset != offset:
            _drop_stray_snapshot(log, log.snapshot_offset)
        log.snapshot_offset = offset
