"""The disk work before a read: loading indexes, locating batches, verifying checksums for the first time.

`reading` returns a `ColdRead` when it cannot serve from memory; the caller offloads its `load` and reads again. `load`
leaves what it finds on the segment in single assignments (locations as hints, verified ranges, the place of damage), so
the second read needs no disk and always gets further.

A race that is harmless: 1. the loop reads and gets a ColdRead; 2. a thread loads; 3. meanwhile the log is truncated or
the segment deleted; 4. the loop reads again and decides by what the log is then.
"""

from __future__ import annotations

import logging

from strandline.log import names
from strandline.log.batch_lookup import BadIndex, Damaged, locate, remember, walk
from strandline.log.epochs import EpochCache
from strandline.log.index_file import NotLoaded
from strandline.log.index_loading import load_aborted, load_indexes, rebuild_indexes
from strandline.log.local_log import LocalLog
from strandline.log.segment import BatchLocation, Segment
from strandline.log.segment_scan import OldFormat, VerifyingScan
from strandline.records.batch import HEADER_SIZE, CorruptBatch, read_header
from strandline.runtime.disk import File

logger = logging.getLogger(__name__)

# How much one load verifies ahead, so that a reader of an old segment does not wait for a load with every slice.
_AHEAD_BYTES = 4 << 20


class ColdRead:
    """A read that takes disk work: offload `load`, then read again."""

    __slots__ = ("_before_offset", "_epochs", "_generation", "_local", "_max_bytes", "_offset", "_segment")

    def __init__(
        self,
        local: LocalLog,
        epochs: EpochCache,
        segment: Segment,
        offset: int,
        before_offset: int,
        max_bytes: int,
    ) -> None:
        self._local = local
        self._epochs = epochs
        self._generation = local.generation
        self._segment = segment
        self._offset = offset
        self._before_offset = before_offset
        self._max_bytes = max_bytes

    def load(self) -> None:
        """Blocking, any thread. Reads and verifies the batches. Raises KafkaError when the disk fails."""
        try:
            self._find_and_verify()
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._local.has_lost(self._segment):
                return
            raise self._local.health.report_error(error, f"reading {self._segment!r}") from error

    def _find_and_verify(self) -> None:
        local, segment = self._local, self._segment
        load_indexes(local, segment)
        file = segment.disk.open(segment.path(names.LOG))
        try:
            start = self._locate(file, self._offset)
            remember(segment, self._offset, start)
            if self._before_offset < local.end_offset:
                remember(segment, self._before_offset, self._locate(file, self._before_offset))
            if start.size:
                until = start.position + max(self._max_bytes, start.size)
                self._verify(file, _known_boundary(segment, file, self._offset), until)
                unverified = segment.verified_until(start.position) == start.position
                if unverified and segment.damage is not None and segment.damage[0] < start.position:
                    # Damage before this batch stopped the scan: start with the batch itself.
                    self._verify(file, (start.position, start.base_offset), until)
        finally:
            file.close()

    def _locate(self, file: File, offset: int) -> BatchLocation:
        """The location of the batch with `offset`; never None, because the loop may have no other way to get one."""
        local, segment = self._local, self._segment
        try:
            try:
                found = locate(segment, offset, file.read_at)
            except (BadIndex, NotLoaded) as error:
                logger.warning("%s: the offset index of %r is damaged: %s", local.topic_partition, segment, error)
                if segment is not local.active:
                    rebuild_indexes(local, segment)
                found = walk(segment, 0, offset, file.read_at)
        except Damaged as damage:
            note_damage(local, segment, damage.position, damage.why)
            # The scan finds out what kind of damage it is.
            self._verify(file, (damage.position, damage.offset), damage.position)
            return BatchLocation(damage.position, 0)
        return BatchLocation(segment.size, 0) if found is None else found

    def _verify(self, file: File, boundary: tuple[int, int], until: int) -> None:
        """Verifies all batches from a boundary to the one that reaches `until`, and somewhat further."""
        local, segment = self._local, self._segment
        position, offset = boundary
        end = min(segment.size, max(until, position + _AHEAD_BYTES))
        verified_to = position
        scan = VerifyingScan(
            file,
            position,
            segment.size,
            offset,
            end_offset=local.end_of(segment),
            gaps_expected=local.settings.cleanup_compact,
            epoch_for=self._epochs.epoch_for,
        )
        try:
            for at, header, _ in scan:
                verified_to = at + header.size_bytes
                if verified_to >= end:
                    break
        except OldFormat as error:
            # It cannot be read, but must not be truncated either.
            note_damage(local, segment, scan.position, str(error))
        if verified_to > position:
            segment.add_verified(position, verified_to)
        if scan.damage is not None and self._generation == local.generation:
            note_damage(local, segment, scan.position, scan.damage)
            local.report_damage(scan.next_offset, scan.damage, self._generation)


class ColdTransactionIndexes(ColdRead):
    """A ColdRead of all transaction indexes of a log."""

    __slots__ = ()

    def __init__(self, local: LocalLog) -> None:
        super().__init__(local, EpochCache(), local.active, 0, 0, 0)

    def load(self) -> None:
        """Blocking, any thread. Reads the indexes that are not in memory."""
        try:
            for segment in self._local.segments:
                load_aborted(self._local, segment)
        except OSError as error:
            where = f"reading transaction indexes of {self._local.path}"
            raise self._local.health.report_error(error, where) from error


def note_damage(local: LocalLog, segment: Segment, position: int, why: str) -> None:
    """A read has to stop here. Logged once for each position."""
    if segment.mark_damaged(position, why):
        path = segment.path(names.LOG)
        logger.error("%s: %s is damaged at position %d: %s", local.topic_partition, path, position, why)


def _known_boundary(segment: Segment, file: File, offset: int) -> tuple[int, int]:
    """(position, base offset) of a batch at or before the one that holds `offset`, on which the index and the batch
    header agree; the start of the segment if there is none."""
    assert segment.offsets is not None
    try:
        last_offset, position = segment.offsets.floor(offset)
        header = read_header(file.read_at(position, HEADER_SIZE))
    except (NotLoaded, CorruptBatch):
        return 0, segment.base_offset
    if position == 0 or header.last_offset != last_offset:
        return 0, segment.base_offset
    return position, header.base_offset
