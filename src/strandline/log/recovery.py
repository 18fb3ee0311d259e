"""Opening a log: which files belong to it, what of them is whole, and the state they add up to.

Called by PartitionLog.open, away from the event loop. After a clean shutdown only the end of the active segment is
looked at. Otherwise everything past the recovery point is read: batches are kept up to the first that is not whole, the
rest is cut off, later segments are removed, indexes, leader epochs and producers are brought up to that end.

A crash tears the very end of a log. Where something whole stood behind the cut, more than that is gone, and the log
says so (`lost_up_to`): whoever replicates it has to get it back from others.

What lies below the recovery point was synced and is not read here; each of its batches is verified before it is first
served (see `reading`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from strandline.log import checkpoints, flushing, names
from strandline.log.checkpoints import CorruptCheckpoint
from strandline.log.crash_cleanup import tidy
from strandline.log.epochs import EpochCache
from strandline.log.health import is_write_refused
from strandline.log.integrity_check import end_of_intact_batches_after
from strandline.log.producer_replay import load_producers
from strandline.log.scan import Scan
from strandline.log.segment import MAX_SPAN, Segment
from strandline.log.segment_recovery import Resume, Scanned, resume_point, scan_segment, trim_indexes
from strandline.runtime.disk import Disk

if TYPE_CHECKING:
    from strandline.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


class Listed(NamedTuple):
    """What is in a partition directory: segments in order (one at least), offsets of producer snapshots."""

    segments: list[Segment]
    snapshots: list[int]
    is_new_directory: bool
    is_new_log: bool


def list_segments(disk: Disk, path: str, first_offset: int, wall_ms: int) -> Listed:
    """Blocking. Makes the directory and a first segment where there is none; tidies away what does not belong there."""
    is_new = not disk.exists(path)
    if is_new:
        disk.make_dirs(path)
    found = tidy(disk, path)
    with_aborted = {file.base_offset for file in found if file.suffix == names.TRANSACTION_INDEX}
    segments = []
    for file in found:
        if file.suffix == names.LOG:
            size = disk.size(os.path.join(path, names.offset_name(file.base_offset) + names.LOG))
            segment = Segment(disk, path, file.base_offset, size=size)
            segment.created_ms = wall_ms
            if file.base_offset not in with_aborted:
                segment.aborted = ()
            segments.append(segment)
    segments.sort(key=lambda segment: segment.base_offset)
    snapshots = sorted(file.base_offset for file in found if file.suffix == names.SNAPSHOT)
    if segments:
        return Listed(segments, snapshots, is_new, False)
    for offset in snapshots:
        disk.remove(os.path.join(path, names.offset_name(offset) + names.SNAPSHOT))
    return Listed([first_segment(disk, path, first_offset, wall_ms)], [], is_new, True)


def first_segment(disk: Disk, path: str, base_offset: int, wall_ms: int) -> Segment:
    """Blocking. The segment that a log begins with is there for good before there can be a second one. Of all others it
    shows when one is missing; if this one were lost, the log would only seem to begin later."""
    segment = Segment.create(disk, path, base_offset, wall_ms)
    disk.sync_dir(path)
    return segment


def recover(
    log: PartitionLog,
    listed: Listed,
    *,
    recovery_point: int,
    log_start_offset: int | None,
    clean: bool,
    wall_ms: int,
) -> None:
    """Blocking. Bring the log, made of the segments listed, to the state that its files add up to."""
    if listed.is_new_log:
        log.is_directory_synced = not listed.is_new_directory
    else:
        _Opening(log, recovery_point, clean, wall_ms).run(log_start_offset, listed.snapshots)
        if not clean:
            # Files that the killed process made are here, but perhaps not yet on disk.
            log.entries_changed = 1
            log.is_directory_synced = False
    log.flushed_offset = log.log_end_offset if clean else min(recovery_point, log.log_end_offset)
    log.high_watermark = log.log_start_offset
    if log.log_end_offset - log.flushed_offset >= log.settings.flush_messages:
        # Where every append must be on disk before it counts, so must what is found after a crash.
        flushing.write_again(log)
        log.flush()
    for segment in log.segments:
        segment.rest()


class _Opening:
    """One opening of one log that has segments.

    `scanned_from` is the least offset whose batches were read because the shutdown was not clean: what concerns offsets
    from there on (epochs, aborted transactions) is learnt from the batches and not believed from other files.
    """

    def __init__(self, log: PartitionLog, recovery_point: int, clean: bool, wall_ms: int) -> None:
        self._log = log
        self._recovery_point = recovery_point
        self._clean = clean
        self._wall_ms = wall_ms
        self._epochs_seen: list[tuple[int, int]] = []
        self._scanned_from = 0
        self._saw_markers = False

    def run(self, log_start_offset: int | None, snapshots: list[int]) -> None:
        log = self._log
        if not (self._clean and self._open_active()):
            self._recover()
        log.active = log.segments[-1]
        log.size_bytes = sum(segment.size for segment in log.segments)
        log.log_start_offset = max(log_start_offset or 0, log.segments[0].base_offset)
        if log.log_end_offset < log.log_start_offset:
            self._begin_again()
        self._load_epochs()
        load_producers(log, snapshots, self._wall_ms, aborted_from=self._scanned_from, has_markers=self._saw_markers)

    def _open_active(self) -> bool:
        """After a clean shutdown: trust everything but the very end, which must be where the file ends."""
        log = self._log
        active = log.segments[-1]
        scan = self._scan(active, resume_point(active, None, self._wall_ms), None)
        if scan.damage is not None:
            logger.warning("%s: not as clean as its shutdown said: %s", log.topic_partition, scan.damage)
            self._clean = False
            self._recovery_point = active.base_offset
            self._epochs_seen.clear()
            return False
        log.log_end_offset = self._scanned_from = scan.next_offset
        # As closing left it: cutting the last entry off, to add it again later, costs more than writing it.
        active.note_largest_timestamp()
        self._write_indexes(trim_indexes, active)
        return True

    def _recover(self) -> None:
        log = self._log
        segments = log.segments
        # A segment that ends at the recovery point may have been the active one when that was written down: its batches
        # were synced by then, the end of its indexes perhaps not.
        first = log.segment_index(self._recovery_point - 1)
        kept = segments[:first]
        log.log_end_offset = segments[first].base_offset
        for segment in segments[first:]:
            if not self._follows(segment):
                break
            following = segments[len(kept) + 1].base_offset if len(kept) + 1 < len(segments) else None
            kept.append(segment)
            if not self._recover_segment(segment, following, is_first=segment is segments[first]):
                break
        self._remove(segments[len(kept) :])
        log.segments = kept
        for segment in kept[first:-1]:
            self._write_indexes(Segment.seal, segment)
        self._write_indexes(trim_indexes, kept[-1])

    def _write_indexes(self, write: Callable[[Segment], None], segment: Segment) -> None:
        """On a full disk the indexes stay in memory for now, and the log can be read."""
        try:
            write(segment)
        except OSError as error:
            if not is_write_refused(error):
                raise
            self._log.health.explain(error, f"writing the indexes of {segment!r}")

    def _follows(self, segment: Segment) -> bool:
        """Whether the segment can come after what is there. If it begins earlier, it is a removed file that came back:
        its offsets were written again. If it begins later, the end of the one before is lost, though it ends with a
        whole batch; unless that was compacted away."""
        end_offset = self._log.log_end_offset
        if self._log.settings.cleanup_compact:
            return segment.base_offset >= end_offset
        return segment.base_offset == end_offset

    def _scan(self, segment: Segment, resume: Resume, end_offset: int | None) -> Scanned:
        settings = self._log.settings
        scanned = scan_segment(
            segment,
            resume,
            settings.index_interval_bytes,
            self._epochs_seen,
            end_offset=end_offset,
            gaps_expected=settings.cleanup_compact,
        )
        self._saw_markers |= scanned.saw_markers
        return scanned

    def _recover_segment(self, segment: Segment, following: int | None, *, is_first: bool) -> bool:
        """Whether the whole segment is good; if not, its file is cut behind the last good batch."""
        log = self._log
        limit = self._recovery_point if is_first else segment.base_offset
        scan = self._scan(segment, resume_point(segment, limit, self._wall_ms), following)
        log.log_end_offset = max(log.log_end_offset, scan.next_offset)
        segment.synced_size = 0
        if is_first:
            self._scanned_from = scan.first_offset
        if scan.damage is None:
            return True
        logger.warning(
            "%s: cutting %s from %d to %d bytes, the log ends at offset %d: %s",
            log.topic_partition,
            segment.path(names.LOG),
            segment.size,
            scan.position,
            log.log_end_offset,
            scan.damage,
        )
        most = segment.base_offset + MAX_SPAN if following is None else following
        behind = end_of_intact_batches_after(segment.log(), scan.position, log.log_end_offset, most)
        if behind is not None:
            log.lost_up_to = max(log.lost_up_to, behind)
        segment.log().truncate(scan.position)
        segment.size = scan.position
        return False

    def _remove(self, segments: list[Segment]) -> None:
        for segment in segments:
            logger.warning(
                "%s: removing %s, it does not follow offset %d",
                self._log.topic_partition,
                segment.path(names.LOG),
                self._log.log_end_offset - 1,
            )
            if segment.base_offset > self._log.log_end_offset:
                self._log.lost_up_to = max(self._log.lost_up_to, segment.base_offset)
            segment.remove()
        if segments:
            self._log.disk.sync_dir(self._log.path)

    def _begin_again(self) -> None:
        """Everything that is left lies below the log start: nothing of it may be shown again."""
        log = self._log
        logger.warning(
            "%s: the log ends at %d, before its start %d: beginning again there",
            log.topic_partition,
            log.log_end_offset,
            log.log_start_offset,
        )
        for segment in log.segments:
            segment.remove()
        log.segments = [first_segment(log.disk, log.path, log.log_start_offset, self._wall_ms)]
        log.active = log.segments[0]
        log.size_bytes = 0
        log.log_end_offset = self._scanned_from = log.log_start_offset
        self._epochs_seen.clear()

    def _load_epochs(self) -> None:
        log = self._log
        path = os.path.join(log.path, names.EPOCH_CHECKPOINT)
        try:
            log.epochs = EpochCache(checkpoints.read_epochs(log.disk, path))
            known = bool(log.epochs.entries) or self._scanned_from <= log.log_start_offset
        except CorruptCheckpoint as error:
            logger.warning("%s: reading the leader epochs from the batches instead: %s", log.topic_partition, error)
            known = False
        epochs = log.epochs
        if not known:
            for epoch, start_offset in _epochs_of(log.segments, self._scanned_from):
                epochs.assign(epoch, start_offset)
        if not self._clean:
            epochs.truncate_from_end(self._scanned_from)
        for epoch, start_offset in self._epochs_seen:
            if epoch > epochs.latest:
                epochs.assign(epoch, start_offset)
        epochs.truncate_from_end(log.log_end_offset)
        if epochs.entries and epochs.entries[0][1] < log.log_start_offset:
            epochs.truncate_from_start(log.log_start_offset)


def _epochs_of(segments: list[Segment], end_offset: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        file = segment.disk.open(segment.path(names.LOG))
        try:
            for _, header, _ in Scan(file, 0, segment.size, segment.base_offset, checksums=False):
                if header.base_offset < end_offset and header.partition_leader_epoch > (found[-1][0] if found else -1):
                    found.append((header.partition_leader_epoch, header.base_offset))
        finally:
            file.close()
    return found
