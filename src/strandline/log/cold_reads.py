"""The disk work before a read: getting indexes into memory, finding batches, seeing their checksums for the first time.

`reading` hands out `ColdRead`; whoever asked offloads `load` and asks again. Whatever warming finds is left on the
segment
in single assignments (positions as hints, verified ranges, the place of damage), so a second read needs no disk and
always gets further.

A race that is harmless: 1. the loop reads and gets ColdRead; 2. a thread warms; 3. meanwhile the log is truncated or
the
segment retired; 4. the loop reads again and judges by what the log is then.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from strandline.log import names
from strandline.log.index_file import NotLoaded
from strandline.log.index_loading import load_aborted, load_indexes, rebuild_indexes
from strandline.log.positions import BadIndex, Damaged, locate, remember, walk
from strandline.log.scan import OldFormat, VerifyingScan
from strandline.log.segment import Located, Segment
from strandline.records.batch import HEADER_SIZE, CorruptBatch, read_header
from strandline.runtime.disk import File

if TYPE_CHECKING:
    from strandline.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

# How much one warming verifies ahead, so that a reader of an old segment is not sent away for every slice.
_AHEAD_BYTES = 4 << 20


class ColdRead:
    """Disk work that stands between a reader and its answer: offload `load`, then ask again."""

    __slots__ = ("_before_offset", "_generation", "_log", "_max_bytes", "_offset", "_segment")

    def __init__(self, log: PartitionLog, segment: Segment, offset: int, before_offset: int, max_bytes: int) -> None:
        self._log = log
        self._generation = log.generation
        self._segment = segment
        self._offset = offset
        self._before_offset = before_offset
        self._max_bytes = max_bytes

    def load(self) -> None:
        """Blocking, any thread. Raises KafkaError when the disk fails."""
        try:
            self._find_and_verify()
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._log.has_lost(self._segment):
                return
            raise self._log.health.explain(error, f"reading {self._segment!r}") from error

    def _find_and_verify(self) -> None:
        log, segment = self._log, self._segment
        load_indexes(log, segment)
        file = segment.disk.open(segment.path(names.LOG))
        try:
            start = self._locate(file, self._offset)
            remember(segment, self._offset, start)
            if self._before_offset < log.log_end_offset:
                remember(segment, self._before_offset, self._locate(file, self._before_offset))
            if start.size:
                until = start.position + max(self._max_bytes, start.size)
                self._verify(file, _known_boundary(segment, file, self._offset), until)
                unseen = segment.verified_until(start.position) == start.position
                if unseen and segment.damage is not None and segment.damage[0] < start.position:
                    # Damage before this batch kept the check from reaching it: begin with the batch itself.
                    self._verify(file, (start.position, start.base_offset), until)
        finally:
            file.close()

    def _locate(self, file: File, offset: int) -> Located:
        """Always an answer, for the loop may have no other way to get one."""
        log, segment = self._log, self._segment
        try:
            try:
                located = locate(segment, offset, file.read_at)
            except (BadIndex, NotLoaded) as error:
                logger.warning("%s: the offset index of %r is damaged: %s", log.topic_partition, segment, error)
                if segment is not log.active:
                    rebuild_indexes(log, segment)
                located = walk(segment, 0, offset, file.read_at)
        except Damaged as damage:
            note_damage(log, segment, damage.position, damage.why)
            # What kind of damage it is shows when it is looked at more closely.
            self._verify(file, (damage.position, damage.offset), damage.position)
            return Located(damage.position, 0)
        return Located(segment.size, 0) if located is None else located

    def _verify(self, file: File, boundary: tuple[int, int], until: int) -> None:
        """See the checksums of all batches from a boundary to the one that reaches `until`, and somewhat further."""
        log, segment = self._log, self._segment
        position, offset = boundary
        end = min(segment.size, max(until, position + _AHEAD_BYTES))
        verified_to = position
        scan = VerifyingScan(
            file,
            position,
            segment.size,
            offset,
            end_offset=log.end_of(log.segment_index(segment.base_offset)),
            gaps_expected=log.settings.cleanup_compact,
            epoch_for=log.epochs.epoch_for,
        )
        try:
            for at, header, _ in scan:
                verified_to = at + header.size_bytes
                if verified_to >= end:
                    break
        except OldFormat as error:
            # Not to be read, but not to be cut either.
            note_damage(log, segment, scan.position, str(error))
        if verified_to > position:
            segment.add_verified(position, verified_to)
        if scan.damage is not None:
            note_damage(log, segment, scan.position, scan.damage)
            log.publish_damage(scan.next_offset, scan.damage, self._generation)


class ColdTransactionIndexes(ColdRead):
    """As ColdRead, for the transaction indexes of a log."""

    __slots__ = ()

    def __init__(self, log: PartitionLog) -> None:
        super().__init__(log, log.active, 0, 0, 0)

    def load(self) -> None:
        """Blocking, any thread."""
        try:
            for segment in self._log.segments:
                load_aborted(self._log, segment)
        except OSError as error:
            raise self._log.health.explain(error, f"reading transaction indexes of {self._log.path}") from error


def note_damage(log: PartitionLog, segment: Segment, position: int, why: str) -> None:
    """Where a read has to stop. Logged once for each place."""
    if segment.damage is None or segment.damage[0] != position:
        path = segment.path(names.LOG)
        logger.error("%s: %s is damaged at position %d: %s", log.topic_partition, path, position, why)
        segment.damage = (position, why)


def _known_boundary(segment: Segment, file: File, offset: int) -> tuple[int, int]:
    """(position, offset due there) of a batch at or before the one that holds `offset`, whose offset is sure because
    the index and the batch agree on it; the beginning of the segment if there is no such batch."""
    assert segment.offsets is not None
    try:
        last_offset, position = segment.offsets.floor(offset)
        header = read_header(file.read_at(position, HEADER_SIZE))
    except (NotLoaded, CorruptBatch):
        return 0, segment.base_offset
    if position == 0 or header.last_offset != last_offset:
        return 0, segment.base_offset
    return position, header.base_offset
