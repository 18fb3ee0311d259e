"""Opening a log: which files belong to it, how far they are intact, and the state they add up to.

Called by PartitionLog.open, away from the event loop. After a clean shutdown only the end of the active segment is
read. Otherwise everything past the recovery point is read: batches are kept up to the first that is not intact, the
rest is truncated, later segments are removed, and indexes, leader epochs and producers are brought up to that end.

A crash damages the very end of a log. Where an intact batch is found behind the truncation point, the log has lost more
than that and reports it (`lost_up_to`): the replica has to fetch those records from others.

Records below the recovery point were synced and are not read here; each of their batches is verified before it is first
served (see `cold_reads`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import msgspec

from strandline.log import checkpoints, names
from strandline.log.checkpoints import CorruptCheckpoint
from strandline.log.crash_cleanup import clean_up
from strandline.log.directory_health import DirectoryHealth, is_write_refused
from strandline.log.epochs import EpochCache
from strandline.log.integrity_check import end_of_intact_batches_after
from strandline.log.local_log import LocalLog, segment_index
from strandline.log.producer_replay import load_producers
from strandline.log.producers import ProducerStates
from strandline.log.recovery_scan import Scanned, ScanStart, scan_segment, scan_start, trim_indexes
from strandline.log.segment import MAX_SPAN, Segment
from strandline.log.segment_scan import Scan
from strandline.log.settings import LogSettings
from strandline.model.ids import TopicPartition
from strandline.runtime.disk import Disk

logger = logging.getLogger(__name__)


class Recovered(msgspec.Struct, frozen=True):
    """The state of a log as its files have it."""

    local: LocalLog
    log_start_offset: int
    epochs: EpochCache
    producers: ProducerStates
    snapshot_offset: int
    """The offset of the newest producer snapshot; -1 when there is none."""
    lost_up_to: int
    """The log once had records below this offset; 0 when none are known to be lost."""
    is_new: bool
    is_new_directory: bool


def recover(
    disk: Disk,
    path: str,
    topic_partition: TopicPartition,
    settings: LogSettings,
    health: DirectoryHealth,
    *,
    recovery_point: int,
    log_start_offset: int | None,
    clean: bool,
    wall_ms: int,
) -> Recovered:
    """Blocking. Opens and recovers a log. Creates the directory and a first segment where there are none."""
    is_new_directory = not disk.exists(path)
    if is_new_directory:
        disk.make_dirs(path)
    segments, snapshots = _list_files(disk, path, wall_ms)
    if segments:
        recovery = _Recovery(disk, path, topic_partition, settings, health, recovery_point, clean, wall_ms)
        return recovery.run(segments, log_start_offset, snapshots)
    for offset in snapshots:
        disk.remove(os.path.join(path, names.offset_name(offset) + names.SNAPSHOT))
    base_offset = log_start_offset or 0
    checkpoints.create_epochs(disk, os.path.join(path, names.EPOCH_CHECKPOINT))
    segments = [first_segment(disk, path, base_offset, wall_ms)]
    local = LocalLog(disk, path, topic_partition, settings, health, segments, base_offset)
    return Recovered(
        local,
        base_offset,
        EpochCache(),
        ProducerStates(),
        snapshot_offset=-1,
        lost_up_to=0,
        is_new=True,
        is_new_directory=is_new_directory,
    )


def _list_files(disk: Disk, path: str, wall_ms: int) -> tuple[list[Segment], list[int]]:
    """Blocking. The segments in order and the offsets of producer snapshots, after the cleanup of what a crash left."""
    found = clean_up(disk, path)
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
    return segments, sorted(file.base_offset for file in found if file.suffix == names.SNAPSHOT)


def first_segment(disk: Disk, path: str, base_offset: int, wall_ms: int) -> Segment:
    """Blocking. The first segment of a log, its directory entry synced before there can be a second one. A gap between
    later segments shows that one is missing; if the first were lost, the log would only seem to start later."""
    segment = Segment.create(disk, path, base_offset, wall_ms)
    disk.sync_dir(path)
    return segment


class _Recovery:
    """The recovery of one log that has segments.

    `_scanned_from` is the smallest offset whose batches were read because the shutdown was not clean: epochs and
    aborted transactions from there on are taken from the batches and not from other files."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
        health: DirectoryHealth,
        recovery_point: int,
        clean: bool,
        wall_ms: int,
    ) -> None:
        self._disk = disk
        self._path = path
        self._topic_partition = topic_partition
        self._settings = settings
        self._health = health
        self._recovery_point = recovery_point
        self._clean = clean
        self._wall_ms = wall_ms
        self._end_offset = 0
        self._lost_up_to = 0
        self._epochs_seen: list[tuple[int, int]] = []
        self._scanned_from = 0
        self._saw_markers = False

    def run(self, segments: list[Segment], checkpointed_start: int | None, snapshots: list[int]) -> Recovered:
        if not (self._clean and self._open_active(segments[-1])):
            segments = self._recover(segments)
        log_start_offset = max(checkpointed_start or 0, segments[0].base_offset)
        if self._end_offset < log_start_offset:
            segments = [self._start_empty_at(log_start_offset, segments)]
        local = LocalLog(
            self._disk, self._path, self._topic_partition, self._settings, self._health, segments, self._end_offset
        )
        epochs = self._load_epochs(segments, log_start_offset)
        producers, snapshot_offset = load_producers(
            local,
            snapshots,
            self._wall_ms,
            log_start_offset=log_start_offset,
            aborted_from=self._scanned_from,
            has_markers=self._saw_markers,
        )
        return Recovered(
            local,
            log_start_offset,
            epochs,
            producers,
            snapshot_offset,
            self._lost_up_to,
            is_new=False,
            is_new_directory=False,
        )

    def _open_active(self, active: Segment) -> bool:
        """Opens the active segment after a clean shutdown: only its end is verified, which must be the file's end."""
        scan = self._scan(active, scan_start(active, None, self._wall_ms), None)
        if scan.damage is not None:
            logger.warning("%s: recovering in spite of a clean shutdown: %s", self._topic_partition, scan.damage)
            self._clean = False
            self._recovery_point = active.base_offset
            self._epochs_seen.clear()
            return False
        self._end_offset = self._scanned_from = scan.next_offset
        # As closing left it: removing the last entry, to add it again later, costs more than writing it.
        active.add_last_time_entry()
        self._write_indexes(trim_indexes, active)
        return True

    def _recover(self, segments: list[Segment]) -> list[Segment]:
        # A segment that ends at the recovery point may have been the active one when that was recorded: its batches
        # were synced by then, the end of its indexes perhaps not.
        first = segment_index(segments, self._recovery_point - 1)
        kept = segments[:first]
        self._end_offset = segments[first].base_offset
        for segment in segments[first:]:
            if not self._follows(segment):
                break
            following = segments[len(kept) + 1].base_offset if len(kept) + 1 < len(segments) else None
            kept.append(segment)
            if not self._recover_segment(segment, following, is_first=segment is segments[first]):
                break
        self._remove(segments[len(kept) :])
        for segment in kept[first:-1]:
            self._write_indexes(Segment.seal, segment)
        self._write_indexes(trim_indexes, kept[-1])
        return kept

    def _write_indexes(self, write: Callable[[Segment], None], segment: Segment) -> None:
        """Writes indexes; on a full disk they stay in memory for now, and the log can be read."""
        try:
            write(segment)
        except OSError as error:
            if not is_write_refused(error):
                raise
            self._health.report_error(error, f"writing the indexes of {segment!r}")

    def _follows(self, segment: Segment) -> bool:
        """Whether the segment continues the log. If it starts earlier, it is a removed file that a crash brought back:
        its offsets were written again. If it starts later, the end of the one before is lost, though it ends with an
        intact batch; unless that was compacted away."""
        if self._settings.cleanup_compact:
            return segment.base_offset >= self._end_offset
        return segment.base_offset == self._end_offset

    def _scan(self, segment: Segment, start: ScanStart, end_offset: int | None) -> Scanned:
        scanned = scan_segment(
            segment,
            start,
            self._settings.index_interval_bytes,
            self._epochs_seen,
            end_offset=end_offset,
            gaps_expected=self._settings.cleanup_compact,
        )
        self._saw_markers |= scanned.saw_markers
        return scanned

    def _recover_segment(self, segment: Segment, following: int | None, *, is_first: bool) -> bool:
        """Whether the whole segment is intact; if not, its file is truncated after the last intact batch."""
        limit = self._recovery_point if is_first else segment.base_offset
        scan = self._scan(segment, scan_start(segment, limit, self._wall_ms), following)
        self._end_offset = max(self._end_offset, scan.next_offset)
        segment.synced_size = 0
        if is_first:
            self._scanned_from = scan.first_offset
        if scan.damage is None:
            return True
        logger.warning(
            "%s: truncating %s from %d to %d bytes, the log ends at offset %d: %s",
            self._topic_partition,
            segment.path(names.LOG),
            segment.size,
            scan.position,
            self._end_offset,
            scan.damage,
        )
        most = segment.base_offset + MAX_SPAN if following is None else following
        behind = end_of_intact_batches_after(segment.log_file(), scan.position, self._end_offset, most)
        if behind is not None:
            self._lost_up_to = max(self._lost_up_to, behind)
        segment.log_file().truncate(scan.position)
        segment.size = scan.position
        return False

    def _remove(self, segments: list[Segment]) -> None:
        for segment in segments:
            logger.warning(
                "%s: removing %s, which does not follow offset %d",
                self._topic_partition,
                segment.path(names.LOG),
                self._end_offset - 1,
            )
            if segment.base_offset > self._end_offset:
                self._lost_up_to = max(self._lost_up_to, segment.base_offset)
            segment.remove()
        if segments:
            self._disk.sync_dir(self._path)

    def _start_empty_at(self, log_start_offset: int, segments: list[Segment]) -> Segment:
        """Everything that is left lies below the log start and must not be served again."""
        logger.warning(
            "%s: the log ends at %d, before its start %d: truncating it fully",
            self._topic_partition,
            self._end_offset,
            log_start_offset,
        )
        for segment in segments:
            segment.remove()
        self._end_offset = self._scanned_from = log_start_offset
        self._epochs_seen.clear()
        return first_segment(self._disk, self._path, log_start_offset, self._wall_ms)

    def _load_epochs(self, segments: list[Segment], log_start_offset: int) -> EpochCache:
        path = os.path.join(self._path, names.EPOCH_CHECKPOINT)
        try:
            epochs = EpochCache(checkpoints.read_epochs(self._disk, path))
            known = bool(epochs.entries) or self._scanned_from <= log_start_offset
        except CorruptCheckpoint as error:
            logger.warning("%s: reading the leader epochs from the batches instead: %s", self._topic_partition, error)
            epochs, known = EpochCache(), False
        if not known:
            for epoch, start_offset in _epochs_of(segments, self._scanned_from):
                epochs.assign(epoch, start_offset)
        if not self._clean:
            epochs.truncate_from_end(self._scanned_from)
        for epoch, start_offset in self._epochs_seen:
            if epoch > epochs.latest:
                epochs.assign(epoch, start_offset)
        epochs.truncate_from_end(self._end_offset)
        if epochs.entries and epochs.entries[0][1] < log_start_offset:
            epochs.truncate_from_start(log_start_offset)
        return epochs


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
