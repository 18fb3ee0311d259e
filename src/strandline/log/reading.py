"""Reading from a log on the event loop: slices of segment files, without waiting for the disk.

Called by PartitionLog. A read returns at once when everything it needs is in memory: where the batch is, where to stop,
and that this process has verified all batches in between. Otherwise it returns a `ColdRead` (see `cold_reads`).
"""

from __future__ import annotations

import msgspec

from strandline.log import names
from strandline.log.batch_lookup import BadIndex, Damaged, known, locate
from strandline.log.cold_reads import ColdRead, ColdTransactionIndexes, note_damage
from strandline.log.epochs import EpochCache
from strandline.log.index_file import NotLoaded
from strandline.log.local_log import LocalLog
from strandline.log.segment import BatchLocation, Segment
from strandline.log.transaction_index import AbortedTransaction
from strandline.model.errors import ErrorCode, KafkaError
from strandline.runtime.file_slice import FileSlice


class CorruptRecords(KafkaError):
    """The records at this offset are damaged on disk."""

    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, why)


class Read(msgspec.Struct, frozen=True):
    slice: FileSlice | None
    """None when the end is reached, or the first batch exceeds `max_bytes`."""
    upper_offset: int
    """No batch in the slice has an offset at or above it: the bound for `aborted_transactions`."""

    @property
    def size_bytes(self) -> int:
        return 0 if self.slice is None else self.slice.size


def read(
    local: LocalLog, epochs: EpochCache, offset: int, upper: int, max_bytes: int, at_least_one: bool
) -> Read | ColdRead:
    """Batches from the one that holds `offset` up to `upper`, which is not above the log end."""
    segments = local.segments
    index = len(segments) - 1 if offset >= local.active.base_offset else local.segment_index(offset)
    while True:
        segment = segments[index]
        following = segments[index + 1].base_offset if index + 1 < len(segments) else local.end_offset
        try:
            found = _read_segment(local, segment, offset, upper, following, max_bytes, at_least_one)
        except (NotLoaded, BadIndex):
            return ColdRead(local, epochs, segment, offset, upper, max_bytes)
        except Damaged as damage:
            note_damage(local, segment, damage.position, damage.why)
            raise CorruptRecords(f"{segment.path(names.LOG)} is damaged {damage}") from None
        except OSError as error:
            raise local.health.report_error(error, f"reading {segment!r}") from error
        if found is not None:
            return found
        # Compaction left a gap at the end of this segment: continue with the next.
        index += 1
        if index == len(segments) or following >= upper:
            return Read(None, upper)
        offset = following


def _read_segment(
    local: LocalLog, segment: Segment, offset: int, upper: int, following: int, max_bytes: int, at_least_one: bool
) -> Read | None:
    """Reads from one segment; None when it has no batch at or above `offset`."""
    start = known(segment, offset) or locate(segment, offset, segment.log_file().read_cached)
    if start is None:
        return None
    position, first_size, _ = start
    if first_size == 0:
        _raise_if_damaged(segment, position)
        return None
    end = segment.size if upper >= following else _end_position(segment, start, upper)
    if end <= position or (first_size > max_bytes and not at_least_one):
        return Read(None, upper)
    verified = segment.verified_until(position)
    if verified < position + first_size:
        _raise_if_damaged(segment, position)
        raise NotLoaded
    stop = min(end, verified, position + max(first_size, max_bytes))
    if stop < end:
        stop = _batch_boundary(segment, position + first_size, stop)
    bound = min(upper, following)
    if segment.aborted != () and stop < segment.size:
        bound = _offset_bound(segment, stop, bound)
    return Read(FileSlice(segment.log_file(), position, stop - position, local.health.report_error), bound)


def _raise_if_damaged(segment: Segment, position: int) -> None:
    damage = segment.damage
    if damage is not None and damage[0] == position:
        raise Damaged(*damage)


def _end_position(segment: Segment, start: BatchLocation, upper: int) -> int:
    """Where the batches below `upper` end; without IO perhaps earlier, at a batch that the index knows."""
    found = known(segment, upper)
    if found is not None:
        return found.position
    try:
        found = locate(segment, upper, segment.log_file().read_cached)
        return segment.size if found is None else found.position
    except (NotLoaded, Damaged):
        if segment.offsets is None:
            raise
        _, position = segment.offsets.floor(upper - 1)
        if position <= start.position:
            raise
        return position


def _batch_boundary(segment: Segment, least: int, limit: int) -> int:
    """The last batch boundary that the index knows from `least` up to `limit`, else `limit` itself: a consumer drops an
    incomplete batch, so sending one is waste."""
    if segment.offsets is None:
        return limit
    try:
        _, boundary = segment.offsets.floor_position(limit)
    except NotLoaded:
        return limit
    return boundary if boundary >= least else limit


def _offset_bound(segment: Segment, position: int, bound: int) -> int:
    if segment.offsets is None:
        return bound
    try:
        last_offset = segment.offsets.after_position(position)
    except NotLoaded:
        return bound
    return bound if last_offset is None else min(bound, last_offset + 1)


def bytes_between(local: LocalLog, offset: int, upper: int) -> int:
    """An estimate from what is in memory: exact for the newest batches, by the share of offsets for older ones."""
    total = 0
    segments = local.segments
    for index in range(local.segment_index(offset), len(segments)):
        segment = segments[index]
        following = segments[index + 1].base_offset if index + 1 < len(segments) else local.end_offset
        if segment.base_offset >= upper:
            break
        start = _estimated_position(segment, max(offset, segment.base_offset), following)
        total += max(0, _estimated_position(segment, min(upper, following), following) - start)
    return total


def _estimated_position(segment: Segment, offset: int, following: int) -> int:
    if offset >= following:
        return segment.size
    if offset <= segment.base_offset:
        return 0
    location = known(segment, offset)
    if location is not None:
        return location.position
    return segment.size * (offset - segment.base_offset) // (following - segment.base_offset)


def aborted_transactions(local: LocalLog, start: int, upper: int) -> list[AbortedTransaction] | ColdRead:
    found: list[AbortedTransaction] = []
    for segment in local.segments[local.segment_index(start) :]:
        if segment.aborted is None:
            return ColdTransactionIndexes(local)
        for entry in segment.aborted:
            if entry.last_offset >= start and entry.first_offset < upper:
                found.append(entry)
            if entry.last_stable_offset >= upper:
                # Every transaction aborted later began at or above this offset.
                return found
    return found
