"""Making a log durable: a thread flushes while the event loop continues to append.

`LogFlusher` is owned by one PartitionLog. What survives a power loss:

1. `flushed_offset`: all batches below it are on disk, in files whose directory entries are on disk. A flush captures
   the log end first, then syncs every segment that grew, then the directories that changed; what is appended meanwhile
   waits for the next flush. Segments are synced oldest first, so that a log never has a hole.
2. the recovery-point checkpoint: recovery does not read below it. So before an offset may be recorded there, the leader
   epochs below it are synced as well, and sealed segments below it with their indexes.

Producer snapshots and the indexes of the active segment may be lost: recovery rebuilds them from the log.

A flush publishes (generation, offset) with one assignment. The event loop may truncate the log before a thread
publishes: then the generation no longer matches, and `flushed_offset` is what the truncation left.
"""

from __future__ import annotations

import os
import threading

from strandline.log import checkpoints, names
from strandline.log.epochs import EpochCache
from strandline.log.local_log import LocalLog
from strandline.log.producer_snapshots import ProducerSnapshots
from strandline.log.segment import Segment

# A checkpoint flushes a log first if a crash would leave at least this much to be read.
_CHECKPOINT_BYTES = 16 << 20

EpochEntries = tuple[tuple[int, int], ...]


class LogFlusher:
    __slots__ = (
        "_deadline_ms",
        "_entries_synced",
        "_epochs",
        "_is_directory_synced",
        "_local",
        "_lower_bound",
        "_published",
        "_snapshots",
        "lock",
    )

    def __init__(
        self,
        local: LocalLog,
        epochs: EpochCache,
        snapshots: ProducerSnapshots,
        *,
        flushed_offset: int,
        entries_synced: int,
        is_directory_synced: bool,
    ) -> None:
        self._local = local
        self._epochs = epochs
        self._snapshots = snapshots
        self._published = local.generation, flushed_offset
        self._lower_bound = flushed_offset
        """Flushed as of the last truncation; only the event loop assigns it."""
        self._entries_synced = entries_synced
        """Which count of `LocalLog.entries_changed` is synced."""
        self._is_directory_synced = is_directory_synced
        """Whether the directory's own entry in the log directory is synced."""
        self._deadline_ms: int | None = None
        self.lock = threading.RLock()
        """Held by the thread that flushes, checkpoints, truncates files or closes: two at once would write the same
        files. The event loop never takes it."""

    @property
    def flushed_offset(self) -> int:
        generation, offset = self._published
        return offset if generation == self._local.generation else self._lower_bound

    def is_due(self, now_ms: int) -> bool:
        local = self._local
        generation, flushed = self._published
        if generation != local.generation:
            flushed = self._lower_bound
        unflushed = local.end_offset - flushed
        if unflushed <= 0:
            self._deadline_ms = None
            return False
        settings = local.settings
        if unflushed >= settings.flush_messages or local.active.base_offset > flushed:
            return True
        if self._deadline_ms is None:
            self._deadline_ms = now_ms + settings.flush_ms
        return now_ms >= self._deadline_ms

    def flush(self, *, sealed_only: bool = False) -> int:
        """Blocking. Flushes the log; returns the offset up to which it is flushed."""
        local = self._local
        with self.lock:
            local.health.check_readable()
            generation = local.generation
            # The end before the segments: 1. the end is read; 2. the loop rolls and appends; 3. the segments are read.
            # The other way round a new segment would be counted and not be synced.
            end_offset = local.end_offset
            segments = local.segments
            if sealed_only:
                end_offset = segments[-1].base_offset
                segments = segments[:-1]
            try:
                # Captured before the files are synced: an entry made later is not about a segment seen here.
                entries_changed = local.entries_changed
                for segment in segments:
                    if not segment.is_synced():
                        self._sync_segment(segment)
                self._snapshots.write_captured(generation)
                self._sync_entries(entries_changed)
            except OSError as error:
                raise local.health.report_error(error, f"syncing {local.path}", syncing=True) from error
            if generation == local.generation and end_offset > self.flushed_offset:
                self._published = generation, end_offset
            return end_offset

    def flush_after_crash(self) -> None:
        """Blocking, on opening. The page cache may hold what the medium does not: Linux marks pages clean whose writing
        failed, so a sync alone would do nothing. The unflushed segments are written once more and then synced."""
        local = self._local
        try:
            for segment in local.segments:
                if local.end_of(segment) > self.flushed_offset:
                    segment.rewrite()
        except OSError as error:
            raise local.health.report_error(error, f"rewriting the end of {local.path}") from error
        self.flush()

    def assume_flushed(self) -> None:
        """The caller knows that all of the log, and its directory entries, are on disk."""
        local = self._local
        self._entries_synced = local.entries_changed
        self._is_directory_synced = True
        self._lower_bound = local.end_offset
        self._published = local.generation, local.end_offset

    def before_truncate(self, end_offset: int) -> None:
        """Lowers the flushed offset, on the event loop, before the generation of the log changes."""
        self._lower_bound = min(self.flushed_offset, end_offset)

    def checkpoint(self) -> int:
        """Blocking. Flushes the log if much of it is unflushed and writes its leader epochs; returns the offset that
        may now be recorded as its recovery point, which a concurrent flush can only raise."""
        local = self._local
        with self.lock:
            local.health.check_readable()
            if sum(segment.size - max(0, segment.synced_size) for segment in local.segments) >= _CHECKPOINT_BYTES:
                self.flush()
            offset = self.flushed_offset
            self._write_epochs()
            truncating_to = local.truncating_to
            return offset if truncating_to is None else min(offset, truncating_to)

    def write_truncated_epochs(self, entries: EpochEntries) -> None:
        """Blocking. Writes the epochs after a truncation; an earlier checkpoint must not write the old ones later."""
        with self.lock:
            self._store_epochs(entries)

    def close(self) -> None:
        """Blocking. Flushes everything and writes what makes the next opening cheap. The log is no longer in use."""
        local = self._local
        with self.lock:
            try:
                if local.health.is_online:
                    self._write_all()
            except OSError as error:
                raise local.health.report_error(error, f"closing {local.path}") from error
            finally:
                for segment in local.segments:
                    segment.release()

    def _write_all(self) -> None:
        local = self._local
        if not self._is_as_closed():
            local.active.seal()
            self._snapshots.capture(local.end_offset)
            self.flush()
            local.active.sync_indexes()
            local.disk.sync_dir(local.path)
        else:
            # Nothing was written, but the log may be new, or have got new leader epochs: thousands do so at once.
            if not local.disk.exists(local.active.path(names.OFFSET_INDEX)):
                local.active.seal()  # an empty log has index files too
            if self._epochs.entries != self._epochs.written:
                self._sync_entries(local.entries_changed)
        self._write_epochs()

    def _is_as_closed(self) -> bool:
        """Whether the log was closed cleanly and nothing was appended or truncated since."""
        local = self._local
        has_snapshot = self._snapshots.newest_offset == local.end_offset or local.size_bytes == 0
        return has_snapshot and self.flushed_offset == local.end_offset

    def _write_epochs(self) -> None:
        local, epochs = self._local, self._epochs
        entries = epochs.entries
        if entries == epochs.written or local.truncating_to is not None:
            return
        try:
            self._store_epochs(entries)
        except OSError as error:
            raise local.health.report_error(error, f"writing the leader epochs of {local.path}") from error
        epochs.written = entries

    def _store_epochs(self, entries: EpochEntries) -> None:
        path = os.path.join(self._local.path, names.EPOCH_CHECKPOINT)
        checkpoints.write_epochs(self._local.disk, path, entries)

    def _sync_segment(self, segment: Segment) -> None:
        try:
            segment.sync()
            if segment is not self._local.active:
                segment.sync_indexes()
        except FileNotFoundError:
            if not self._local.has_lost(segment):
                raise

    def _sync_entries(self, entries_changed: int) -> None:
        local = self._local
        if self._entries_synced < entries_changed:
            local.disk.sync_dir(local.path)
            self._entries_synced = entries_changed
        if not self._is_directory_synced:
            local.disk.sync_dir(os.path.dirname(local.path))
            self._is_directory_synced = True
