"""Dropping the end of a log, or all of it: what a follower does that went another way than its leader.

Called by PartitionLog, in two halves: `run` blocks and is offloaded; it finds out everything, lowers what is written
down about the log, and cuts the files for good. `apply` is quick and belongs to the event loop; it installs the state.
Nobody may append between the two; reads and flushes may go on, they see `truncating_to` and leave alone what is
above it.

The cut is synced before anything new can be appended. Otherwise a power loss could bring back the old end of a segment
beneath a new one that happens to begin where the old end ended, and nothing would show it.

The segments that `apply` takes out of the log carry `.deleted` and are handed back, for the caller to remove in a
thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.log import names, transaction_index
from strandline.log.epochs import EpochCache
from strandline.log.flushing import store_epochs
from strandline.log.index_file import NotLoaded
from strandline.log.index_loading import load_aborted, load_indexes
from strandline.log.positions import BadIndex, Damaged, locate, walk
from strandline.log.producer_replay import rebuild, snapshot_path
from strandline.log.producers import ProducerStates
from strandline.log.recovery import first_segment
from strandline.log.scan import Scan
from strandline.log.segment import NO_TIMESTAMP, Located, Segment
from strandline.runtime.disk import File

if TYPE_CHECKING:
    from strandline.log.partition_log import PartitionLog


class Truncation:
    """Everything at or above `offset` goes; a batch that reaches over it goes as a whole.

    Where there is no record to cut there may still be an epoch to forget: that of a leadership in which nobody wrote,
    and of which the leader, who tells where the histories part, has never heard."""

    __slots__ = (
        "_aborted",
        "_end_offset",
        "_epochs",
        "_kept",
        "_log",
        "_only_epochs",
        "_position",
        "_producers",
        "_timestamp",
    )

    def __init__(self, log: PartitionLog, offset: int) -> None:
        self._log = log
        self._end_offset = min(max(offset, log.log_start_offset), log.log_end_offset)
        self._only_epochs = offset >= log.log_end_offset
        log.truncating_to = self._end_offset
        self._kept: list[Segment] = []
        self._position = 0
        self._timestamp = (NO_TIMESTAMP, 0)
        self._aborted: tuple[transaction_index.AbortedTransaction, ...] = ()
        self._producers = ProducerStates()
        self._epochs = EpochCache()

    def run(self) -> None:
        """Blocking."""
        try:
            if self._only_epochs:
                self._cut_epochs()
            else:
                self._cut()
        except OSError as error:
            where = f"truncating {self._log.path} to offset {self._end_offset}"
            raise self._log.health.explain(error, where) from error

    def _cut_epochs(self) -> None:
        log = self._log
        self._epochs = EpochCache(log.epochs.entries)
        self._epochs.truncate_from_end(self._end_offset)
        # A checkpoint that began before the cut must not write them once more.
        with log.writing:
            store_epochs(log, self._epochs)

    def _cut(self) -> None:
        log = self._log
        self._find_cut()
        snapshots = _snapshots(log)
        usable = [offset for offset in snapshots if log.log_start_offset <= offset <= self._end_offset]
        self._producers = rebuild(log, self._kept, usable, self._end_offset, 0, self._end_offset, {})
        _keep_seen_times(log.producers, self._producers)
        self._epochs = EpochCache(log.epochs.entries)
        self._epochs.truncate_from_end(self._end_offset)
        _announce_cut(log, self._end_offset, None)
        store_epochs(log, self._epochs)
        for offset in snapshots:
            if offset > self._end_offset:
                log.disk.remove(snapshot_path(log, offset))
        self._cut_files()

    def apply(self) -> list[Segment]:
        """On the event loop; the segments that were taken out."""
        log = self._log
        if self._only_epochs:
            _install_epochs(log, self._epochs)
            log.truncating_to = None
            return []
        dropped = log.segments[len(self._kept) :]
        try:
            self._shorten(self._kept[-1])
        except OSError as error:
            raise log.health.explain(error, f"truncating {log.path} to offset {self._end_offset}") from error
        _install(log, self._kept, self._end_offset, self._epochs, self._producers)
        return dropped

    def _cut_files(self) -> None:
        """Newest first: whenever the power goes, what is left is the beginning of the log."""
        log = self._log
        for segment in reversed(log.segments[len(self._kept) :]):
            segment.mark(names.DELETED)
        log.disk.sync_dir(log.path)
        segment = self._kept[-1]
        file = log.disk.open(segment.path(names.LOG))
        try:
            file.truncate(self._position)
            file.sync()
        finally:
            file.close()
        self._cut_indexes(segment)

    def _cut_indexes(self, segment: Segment) -> None:
        """What they said about the part that is gone must not come back either: it would be believed of what is
        appended there next."""
        assert segment.offsets is not None and segment.times is not None
        for index, suffix in ((segment.offsets, names.OFFSET_INDEX), (segment.times, names.TIME_INDEX)):
            try:
                count = index.count_before(self._end_offset)
            except NotLoaded:
                count = 0  # put down just now: `apply` will find the same and do without entries
            index.cut_file(segment.disk, segment.path(suffix), count)
        if self._aborted != segment.aborted:
            transaction_index.rewrite(segment.disk, segment.path(names.TRANSACTION_INDEX), self._aborted)

    def _find_cut(self) -> None:
        log = self._log
        index = log.segment_index(self._end_offset)
        self._kept = log.segments[: index + 1]
        segment = self._kept[-1]
        load_indexes(log, segment)
        load_aborted(log, segment)
        file = segment.disk.open(segment.path(names.LOG))
        try:
            located = self._locate(segment, file)
            if located is None:
                self._position = segment.size
            else:
                self._position = located.position
                self._end_offset = min(self._end_offset, located.base_offset)
            self._timestamp = _largest_timestamp(segment, file, self._position)
            self._aborted = tuple(entry for entry in segment.aborted or () if entry.last_offset < self._end_offset)
        finally:
            file.close()

    def _locate(self, segment: Segment, file: File) -> Located | None:
        try:
            try:
                return locate(segment, self._end_offset, file.read_at)
            except (BadIndex, NotLoaded):
                return walk(segment, 0, self._end_offset, file.read_at)
        except Damaged as damage:
            # What cannot be read cannot be kept either.
            return Located(damage.position, 0, damage.offset)

    def _shorten(self, segment: Segment) -> None:
        assert segment.offsets is not None and segment.times is not None
        segment.forget_from(self._position)
        segment.size = self._position
        try:
            segment.offsets.keep_before(self._end_offset)
            segment.times.keep_before(self._end_offset)
        except NotLoaded:
            # They were put down in between; without entries, reading walks from the beginning.
            segment.offsets.clear()
            segment.times.clear()
            segment.times.recall(b"")
        segment.offsets.trim(segment.disk, segment.path(names.OFFSET_INDEX))
        segment.times.trim(segment.disk, segment.path(names.TIME_INDEX))
        segment.largest_timestamp, segment.largest_timestamp_offset = self._timestamp
        segment.unindexed = self._position - segment.offsets.floor_position(self._position)[1]
        segment.aborted = self._aborted


class FullTruncation:
    """Everything goes, and the log begins again, empty, at `offset`."""

    __slots__ = ("_begun", "_log", "_offset")

    def __init__(self, log: PartitionLog, offset: int) -> None:
        self._log = log
        self._offset = offset
        self._begun: Segment | None = None
        log.truncating_to = min(offset, log.log_start_offset)

    def run(self, wall_ms: int = 0) -> None:
        """Blocking."""
        log = self._log
        try:
            _announce_cut(log, self._offset, self._offset)
            store_epochs(log, EpochCache())
            for offset in _snapshots(log):
                log.disk.remove(snapshot_path(log, offset))
            for segment in reversed(log.segments):
                segment.mark(names.DELETED)
            self._begun = first_segment(log.disk, log.path, self._offset, wall_ms)
        except OSError as error:
            raise log.health.explain(error, f"restarting {log.path} at offset {self._offset}") from error

    def apply(self) -> list[Segment]:
        """On the event loop; the segments that were taken out."""
        assert self._begun is not None
        log = self._log
        dropped = log.segments
        log.log_start_offset = self._offset
        _install(log, [self._begun], self._offset, EpochCache(), ProducerStates(self._offset))
        log.high_watermark = self._offset
        return dropped


def _install(
    log: PartitionLog, segments: list[Segment], end_offset: int, epochs: EpochCache, producers: ProducerStates
) -> None:
    log.cut_flushed(end_offset)
    log.segments = segments
    log.active = segments[-1]
    log.log_end_offset = end_offset
    log.high_watermark = min(log.high_watermark, end_offset)
    log.size_bytes = sum(segment.size for segment in segments)
    _install_epochs(log, epochs)
    log.producers = producers
    producers.on_high_watermark(log.high_watermark)
    log.captured_producers = {
        offset: captured for offset, captured in log.captured_producers.items() if offset <= end_offset
    }
    log.entries_changed += 1
    log.truncating_to = None
    log.snapshot_offset = -1
    log.captured_at_bytes = log.active.size
    for offset in _snapshots(log):
        if offset > end_offset:
            # Written by a flush that had begun before the cut.
            log.disk.remove(snapshot_path(log, offset))


def _install_epochs(log: PartitionLog, epochs: EpochCache) -> None:
    epochs.written = epochs.entries
    log.epochs = epochs


def _announce_cut(log: PartitionLog, end_offset: int, log_start_offset: int | None) -> None:
    if log.before_truncation is not None:
        log.before_truncation(log.topic_partition, end_offset, log_start_offset)


def _snapshots(log: PartitionLog) -> list[int]:
    files = (names.parse_segment_file(name) for name in log.disk.list(log.path))
    return sorted(file.base_offset for file in files if file and file.suffix == names.SNAPSHOT and not file.extra)


def _keep_seen_times(old: ProducerStates, new: ProducerStates) -> None:
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
