"""Truncating a log, or truncating it fully to start at another offset: a follower whose log diverged from its leader's.

`PartitionLog.begin_truncation` makes a step of two halves. `run` blocks and is offloaded: it computes the state after
the truncation, lowers the checkpoints about the log, and truncates the files for good. `apply` is quick and runs on the
event loop: it installs the state. Nothing may be appended between the two; reads and flushes may continue, and leave
alone what is above `LocalLog.truncating_to`.

The truncation is synced before anything new can be appended. Otherwise a power loss could bring back the old end of a
segment beneath a new one that happens to start where the old end ended, and nothing would show it.

The segments that `apply` removes from the log have been renamed to `.deleted`; the caller removes their files in a
thread.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from strandline.log import names, transaction_index
from strandline.log.batch_lookup import BadIndex, Damaged, locate, walk
from strandline.log.epochs import EpochCache
from strandline.log.flushing import EpochEntries, LogFlusher
from strandline.log.index_file import NotLoaded
from strandline.log.index_loading import load_aborted, load_indexes
from strandline.log.local_log import LocalLog
from strandline.log.producer_replay import rebuild
from strandline.log.producer_snapshots import ProducerSnapshots
from strandline.log.producers import ProducerStates
from strandline.log.recovery import first_segment
from strandline.log.segment import NO_TIMESTAMP, BatchLocation, Segment
from strandline.log.segment_scan import Scan
from strandline.model.ids import TopicPartition
from strandline.runtime.disk import File

BeforeTruncation = Callable[[TopicPartition, int, int | None], None]
"""Called (blocking) with the new end offset and, if it changes, the new log start: the owner of the checkpoints about
this log lowers them."""


class Truncated(msgspec.Struct, frozen=True):
    """The state of a log after a truncation."""

    segments: list[Segment]
    end_offset: int
    epochs: EpochEntries
    producers: ProducerStates
    log_start_offset: int | None = None
    """None: unchanged."""


class LogParts(msgspec.Struct, frozen=True):
    """The parts of one log that a truncation works on, and what PartitionLog does with the result."""

    local: LocalLog
    epochs: EpochCache
    producers: ProducerStates
    snapshots: ProducerSnapshots
    flusher: LogFlusher
    before_truncation: BeforeTruncation | None
    install: Callable[[Truncated], None]
    """Called on the event loop."""


class Truncation:
    """Removes everything at or above `offset`, and a batch that spans it as a whole.

    At the log end there is no record to remove, but there may be an epoch: that of a leadership without appends, which
    the leader that reported the divergence does not know."""

    __slots__ = (
        "_aborted",
        "_end_offset",
        "_epochs",
        "_kept",
        "_largest_timestamp",
        "_log_start_offset",
        "_only_epochs",
        "_parts",
        "_position",
        "_producers",
    )

    def __init__(self, parts: LogParts, offset: int, log_start_offset: int) -> None:
        local = parts.local
        self._parts = parts
        self._log_start_offset = log_start_offset
        self._end_offset = min(max(offset, log_start_offset), local.end_offset)
        self._only_epochs = offset >= local.end_offset
        local.begin_truncation(self._end_offset)
        self._kept: list[Segment] = []
        self._position = 0
        self._largest_timestamp = (NO_TIMESTAMP, 0)
        self._aborted: tuple[transaction_index.AbortedTransaction, ...] = ()
        self._producers = ProducerStates()
        self._epochs: EpochEntries = ()

    def run(self) -> None:
        """Blocking. Truncates the files; `apply` then updates the log."""
        local = self._parts.local
        try:
            if self._only_epochs:
                self._epochs = self._truncated_epochs()
                self._parts.flusher.write_truncated_epochs(self._epochs)
            else:
                self._find_position()
                self._truncate()
        except OSError as error:
            where = f"truncating {local.path} to offset {self._end_offset}"
            raise local.health.report_error(error, where) from error

    def apply(self) -> list[Segment]:
        """Updates the log, on the event loop; returns the segments that were removed from it."""
        local = self._parts.local
        if self._only_epochs:
            self._parts.epochs.install(self._epochs)
            local.end_truncation()
            return []
        removed = local.segments[len(self._kept) :]
        try:
            self._kept[-1].on_truncated(self._position, self._end_offset, self._largest_timestamp, self._aborted)
        except OSError as error:
            where = f"truncating {local.path} to offset {self._end_offset}"
            raise local.health.report_error(error, where) from error
        self._parts.install(Truncated(self._kept, self._end_offset, self._epochs, self._producers))
        return removed

    def _truncated_epochs(self) -> EpochEntries:
        epochs = EpochCache(self._parts.epochs.entries)
        epochs.truncate_from_end(self._end_offset)
        return epochs.entries

    def _find_position(self) -> None:
        local = self._parts.local
        self._kept = local.segments[: local.segment_index(self._end_offset) + 1]
        segment = self._kept[-1]
        load_indexes(local, segment)
        load_aborted(local, segment)
        file = segment.disk.open(segment.path(names.LOG))
        try:
            found = self._locate(segment, file)
            if found is None:
                self._position = segment.size
            else:
                self._position = found.position
                self._end_offset = min(self._end_offset, found.base_offset)
            self._largest_timestamp = _largest_timestamp(segment, file, self._position)
            self._aborted = tuple(entry for entry in segment.aborted or () if entry.last_offset < self._end_offset)
        finally:
            file.close()
        local.begin_truncation(self._end_offset)

    def _locate(self, segment: Segment, file: File) -> BatchLocation | None:
        try:
            try:
                return locate(segment, self._end_offset, file.read_at)
            except (BadIndex, NotLoaded):
                return walk(segment, 0, self._end_offset, file.read_at)
        except Damaged as damage:
            # What cannot be read cannot be kept either.
            return BatchLocation(damage.position, 0, damage.offset)

    def _truncate(self) -> None:
        parts = self._parts
        local, snapshots, flusher = parts.local, parts.snapshots, parts.flusher
        on_disk = snapshots.on_disk()
        usable = [offset for offset in on_disk if self._log_start_offset <= offset <= self._end_offset]
        self._producers = rebuild(local, self._kept, usable, self._end_offset, 0, self._end_offset, {})
        _keep_last_seen(parts.producers, self._producers)
        self._epochs = self._truncated_epochs()
        if parts.before_truncation is not None:
            parts.before_truncation(local.topic_partition, self._end_offset, None)
        # After `before_truncation`, which takes the lock of the log directory: a checkpoint takes that one first.
        with flusher.lock:
            flusher.write_truncated_epochs(self._epochs)
            for offset in snapshots.on_disk():
                if offset > self._end_offset:
                    snapshots.remove(offset)
            self._truncate_files()

    def _truncate_files(self) -> None:
        """Newest first: whenever the power is lost, what is left is the beginning of the log."""
        local = self._parts.local
        for segment in reversed(local.segments[len(self._kept) :]):
            segment.rename_files(names.DELETED)
        local.disk.sync_dir(local.path)
        segment = self._kept[-1]
        file = local.disk.open(segment.path(names.LOG))
        try:
            file.truncate(self._position)
            file.sync()
        finally:
            file.close()
        self._truncate_indexes(segment)

    def _truncate_indexes(self, segment: Segment) -> None:
        """Entries about the removed part must not reappear: they would point into what is appended there next."""
        assert segment.offsets is not None and segment.times is not None
        for index, suffix in ((segment.offsets, names.OFFSET_INDEX), (segment.times, names.TIME_INDEX)):
            try:
                count = index.count_before(self._end_offset)
            except NotLoaded:
                count = 0  # released just now: `apply` finds the same and does without entries
            index.truncate_file(segment.disk, segment.path(suffix), count)
        if self._aborted != segment.aborted:
            transaction_index.rewrite(segment.disk, segment.path(names.TRANSACTION_INDEX), self._aborted)


class FullTruncation:
    """Removes everything; the log then starts, empty, at `offset`."""

    __slots__ = ("_first", "_offset", "_parts")

    def __init__(self, parts: LogParts, offset: int, log_start_offset: int) -> None:
        self._parts = parts
        self._offset = offset
        self._first: Segment | None = None
        parts.local.begin_truncation(min(offset, log_start_offset))

    def run(self, wall_ms: int = 0) -> None:
        """Blocking. Prepares the new first segment; `apply` then replaces all others."""
        parts = self._parts
        local, snapshots, flusher = parts.local, parts.snapshots, parts.flusher
        try:
            if parts.before_truncation is not None:
                parts.before_truncation(local.topic_partition, self._offset, self._offset)
            with flusher.lock:
                flusher.write_truncated_epochs(())
                for offset in snapshots.on_disk():
                    snapshots.remove(offset)
                for segment in reversed(local.segments):
                    segment.rename_files(names.DELETED)
                self._first = first_segment(local.disk, local.path, self._offset, wall_ms)
        except OSError as error:
            where = f"truncating {local.path} fully, to start at offset {self._offset}"
            raise local.health.report_error(error, where) from error

    def apply(self) -> list[Segment]:
        """Updates the log, on the event loop; returns the segments that were removed from it."""
        assert self._first is not None
        removed = self._parts.local.segments
        self._parts.install(
            Truncated([self._first], self._offset, (), ProducerStates(self._offset), log_start_offset=self._offset)
        )
        return removed


def _keep_last_seen(old: ProducerStates, new: ProducerStates) -> None:
    for state in new.all():
        before = old.get(state.producer_id)
        if before is not None:
            state.last_seen_ms = max(state.last_seen_ms, before.last_seen_ms)


def _largest_timestamp(segment: Segment, file: File, end: int) -> tuple[int, int]:
    """(timestamp, offset) of the batch with the largest timestamp before `end`."""
    best = (NO_TIMESTAMP, segment.base_offset)
    for _, header, _ in Scan(file, 0, end, segment.base_offset, checksums=False):
        if header.max_timestamp > best[0]:
            best = (header.max_timestamp, header.last_offset)
    return best
