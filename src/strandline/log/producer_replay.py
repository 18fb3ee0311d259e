"""The producers of a log as of its end: the newest snapshot that can be trusted, and the batches behind it.

Called when a log is opened or truncated, away from the event loop. Only headers and control batches are read.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from strandline.log import names, producer_snapshots, transaction_index
from strandline.log.appending import replay_batch
from strandline.log.health import is_write_refused
from strandline.log.index_loading import load_aborted
from strandline.log.producer_snapshots import CorruptSnapshot
from strandline.log.producers import ProducerStates
from strandline.log.scan import OldFormat, Scan
from strandline.log.segment import Segment
from strandline.log.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from strandline.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


def load_producers(
    log: PartitionLog, snapshots: list[int], wall_ms: int, *, aborted_from: int, has_markers: bool
) -> None:
    """Blocking, while the log is being opened. Snapshots that no longer fit the log are removed. Transactions aborted
    at or above `aborted_from` are not believed from index files but found again; if there are markers at all (else the
    newest snapshot will do)."""
    bases = {segment.base_offset for segment in log.segments}
    fitting = [offset for offset in snapshots if log.log_start_offset <= offset <= log.log_end_offset]
    for offset in snapshots:
        if offset not in fitting or (offset not in bases and offset != fitting[-1]):
            log.disk.remove(snapshot_path(log, offset))
    if snapshots and snapshots[-1] > log.log_end_offset:
        # Of a future that did not come: it must not turn up again when the log has grown that far in another way.
        log.disk.sync_dir(log.path)
    log.snapshot_offset = fitting[-1] if fitting else -1
    aborted = _known_aborted(log, aborted_from)
    end_offset = log.log_end_offset
    usable = [offset for offset in fitting if offset <= aborted_from or not has_markers]
    log.producers = rebuild(log, log.segments, usable, end_offset, wall_ms, aborted_from, aborted)
    for segment in log.segments:
        if segment.base_offset in aborted:
            _write_aborted(log, segment, tuple(aborted[segment.base_offset]))
    load_aborted(log, log.segments[-1])


def _write_aborted(log: PartitionLog, segment: Segment, entries: tuple[AbortedTransaction, ...]) -> None:
    segment.aborted = entries
    path = segment.path(names.TRANSACTION_INDEX)
    on_disk, sane = transaction_index.load(log.disk, path, segment.base_offset, 1 << 63)
    if sane and on_disk == entries:
        return
    try:
        transaction_index.rewrite(log.disk, path, entries)
    except OSError as error:
        if not is_write_refused(error):
            raise
        log.health.explain(error, f"writing {path}")


def _known_aborted(log: PartitionLog, aborted_from: int) -> dict[int, list[AbortedTransaction]]:
    """Of every segment that was recovered: the aborted transactions from before, as its file has them."""
    known: dict[int, list[AbortedTransaction]] = {}
    if aborted_from >= log.log_end_offset:
        return known
    for index in range(log.segment_index(aborted_from), len(log.segments)):
        segment = log.segments[index]
        path = segment.path(names.TRANSACTION_INDEX)
        entries, _ = transaction_index.load(log.disk, path, segment.base_offset, max(aborted_from, segment.base_offset))
        known[segment.base_offset] = list(entries)
    return known


def rebuild(
    log: PartitionLog,
    segments: list[Segment],
    snapshots: list[int],
    end_offset: int,
    wall_ms: int,
    aborted_from: int,
    aborted: dict[int, list[AbortedTransaction]],
) -> ProducerStates:
    """Blocking. The producers as of `end_offset`, beginning with the newest of the snapshots; what was aborted at or
    above `aborted_from` is added to `aborted` by segment."""
    producers = _newest_snapshot(log, snapshots, wall_ms)
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        if following > producers.map_end_offset and segment.size:
            _replay_segment(log, segment, producers, end_offset, wall_ms, aborted_from, aborted)
    producers.map_end_offset = end_offset
    return producers


def _newest_snapshot(log: PartitionLog, snapshots: list[int], wall_ms: int) -> ProducerStates:
    for offset in reversed(snapshots):
        path = snapshot_path(log, offset)
        try:
            return producer_snapshots.decode(log.disk.read(path), offset, wall_ms)
        except CorruptSnapshot as error:
            logger.warning("%s: leaving out the producer snapshot %s: %s", log.topic_partition, path, error)
            log.disk.remove(path)
        except FileNotFoundError:
            continue
    return ProducerStates(0)


def _replay_segment(
    log: PartitionLog,
    segment: Segment,
    producers: ProducerStates,
    end_offset: int,
    wall_ms: int,
    aborted_from: int,
    aborted: dict[int, list[AbortedTransaction]],
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
            entry = replay_batch(producers, batch, header, header.base_offset, wall_ms)
            if entry is not None and entry.last_offset >= aborted_from and segment.base_offset in aborted:
                aborted[segment.base_offset].append(entry)
        if scan.damage is not None:
            logger.warning("%s: producers of %r are not complete: %s", log.topic_partition, segment, scan.damage)
    except OldFormat as error:
        logger.warning("%s: %s", log.topic_partition, error)
    finally:
        file.close()


def snapshot_path(log: PartitionLog, offset: int) -> str:
    return os.path.join(log.path, names.offset_name(offset) + names.SNAPSHOT)
