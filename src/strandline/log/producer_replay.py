"""The producers of a log as of its end: the newest valid snapshot, and a replay of the batches behind it.

Called when a log is opened or truncated, away from the event loop. Only headers and control batches are read.
"""

from __future__ import annotations

import logging

from strandline.log import names, producer_snapshots, transaction_index
from strandline.log.directory_health import is_write_refused
from strandline.log.index_loading import load_aborted
from strandline.log.local_log import LocalLog
from strandline.log.producer_snapshots import CorruptSnapshot, snapshot_path
from strandline.log.producers import ProducerStates
from strandline.log.segment import Segment
from strandline.log.segment_scan import OldFormat, Scan
from strandline.log.transaction_index import AbortedTransaction

logger = logging.getLogger(__name__)

AbortedBySegment = dict[int, list[AbortedTransaction]]


def load_producers(
    local: LocalLog,
    snapshots: list[int],
    wall_ms: int,
    *,
    log_start_offset: int,
    aborted_from: int,
    has_markers: bool,
) -> tuple[ProducerStates, int]:
    """Blocking, while the log is being opened. The producers, and the offset of the newest snapshot (-1: none).

    Snapshots outside of the log are removed. Transactions aborted at or above `aborted_from` are not taken from index
    files but found again by replay, if there are markers at all (else the newest snapshot is enough)."""
    base_offsets = {segment.base_offset for segment in local.segments}
    fitting = [offset for offset in snapshots if log_start_offset <= offset <= local.end_offset]
    for offset in snapshots:
        if offset not in fitting or (offset not in base_offsets and offset != fitting[-1]):
            local.disk.remove(snapshot_path(local, offset))
    if snapshots and snapshots[-1] > local.end_offset:
        # It must not reappear after a crash, when the log has grown to that offset with other records.
        local.disk.sync_dir(local.path)
    aborted = _known_aborted(local, aborted_from)
    usable = [offset for offset in fitting if offset <= aborted_from or not has_markers]
    producers = rebuild(local, local.segments, usable, local.end_offset, wall_ms, aborted_from, aborted)
    for segment in local.segments:
        if segment.base_offset in aborted:
            _write_aborted(local, segment, tuple(aborted[segment.base_offset]))
    load_aborted(local, local.active)
    return producers, fitting[-1] if fitting else -1


def _write_aborted(local: LocalLog, segment: Segment, entries: tuple[AbortedTransaction, ...]) -> None:
    segment.aborted = entries
    path = segment.path(names.TRANSACTION_INDEX)
    on_disk, sane = transaction_index.load(local.disk, path, segment.base_offset, 1 << 63)
    if sane and on_disk == entries:
        return
    try:
        transaction_index.rewrite(local.disk, path, entries)
    except OSError as error:
        if not is_write_refused(error):
            raise
        local.health.report_error(error, f"writing {path}")


def _known_aborted(local: LocalLog, aborted_from: int) -> AbortedBySegment:
    """The transactions of each recovered segment that were aborted before `aborted_from`, from its index file."""
    known: AbortedBySegment = {}
    if aborted_from >= local.end_offset:
        return known
    for segment in local.segments[local.segment_index(aborted_from) :]:
        path = segment.path(names.TRANSACTION_INDEX)
        end_offset = max(aborted_from, segment.base_offset)
        entries, _ = transaction_index.load(local.disk, path, segment.base_offset, end_offset)
        known[segment.base_offset] = list(entries)
    return known


def rebuild(
    local: LocalLog,
    segments: list[Segment],
    snapshots: list[int],
    end_offset: int,
    wall_ms: int,
    aborted_from: int,
    aborted: AbortedBySegment,
) -> ProducerStates:
    """Blocking. The producers as of `end_offset`, from the newest of the snapshots on; transactions aborted at or above
    `aborted_from` are added to `aborted`."""
    producers = _newest_snapshot(local, snapshots, wall_ms)
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        if following > producers.map_end_offset and segment.size:
            _replay_segment(local, segment, producers, end_offset, wall_ms, aborted_from, aborted)
    producers.map_end_offset = end_offset
    return producers


def _newest_snapshot(local: LocalLog, snapshots: list[int], wall_ms: int) -> ProducerStates:
    for offset in reversed(snapshots):
        path = snapshot_path(local, offset)
        try:
            return producer_snapshots.decode(local.disk.read(path), offset, wall_ms)
        except CorruptSnapshot as error:
            logger.warning("%s: ignoring the producer snapshot %s: %s", local.topic_partition, path, error)
            local.disk.remove(path)
        except FileNotFoundError:
            continue
    return ProducerStates(0)


def _replay_segment(
    local: LocalLog,
    segment: Segment,
    producers: ProducerStates,
    end_offset: int,
    wall_ms: int,
    aborted_from: int,
    aborted: AbortedBySegment,
) -> None:
    start = producers.map_end_offset
    position = segment.offsets.floor(start)[1] if segment.offsets is not None and segment.offsets.is_loaded() else 0
    file = segment.disk.open(segment.path(names.LOG))
    try:
        scan = Scan(file, position, segment.size, segment.base_offset, checksums=False)
        for _, header, batch in scan:
            if header.base_offset >= end_offset:
                break
            if header.producer_id < 0 or header.base_offset < start:
                continue
            entry = producers.replay_batch(batch, header, header.base_offset, wall_ms)
            if entry is not None and entry.last_offset >= aborted_from and segment.base_offset in aborted:
                aborted[segment.base_offset].append(entry)
        if scan.damage is not None:
            logger.warning("%s: the producers of %r are incomplete: %s", local.topic_partition, segment, scan.damage)
    except OldFormat as error:
        logger.warning("%s: %s", local.topic_partition, error)
    finally:
        file.close()
