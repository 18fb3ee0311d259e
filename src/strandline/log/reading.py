"""Reading from a log on the event loop: slices of segment files, never a wait for the disk.

Called by PartitionLog. `read` answers at once when everything it needs is in memory: where the batch is, where to stop,
and that the checksums of all batches in between were seen to be good in this process. Otherwise it answers `ColdRead`
(see `warming`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from strandline.log import names
from strandline.log.cold_reads import ColdRead, note_damage
from strandline.log.index_file import NotLoaded
from strandline.log.positions import BadIndex, Damaged, known, locate
from strandline.log.segment import Located, Segment
from strandline.model.errors import ErrorCode, KafkaError
from strandline.runtime.file_slice import FileSlice

if TYPE_CHECKING:
    from strandline.log.partition_log import PartitionLog


class Read(NamedTuple):
    """`slice` is None when there is nothing to give: the end is reached, or the first batch exceeds `max_bytes`."""

    slice: FileSlice | None
    # No batch in the slice has an offset at or above this one: the bound to ask for aborted transactions.
    upper_offset: int

    @property
    def size_bytes(self) -> int:
        return 0 if self.slice is None else self.slice.size


def read(
    log: PartitionLog, offset: int, max_bytes: int, before_offset: int | None, at_least_one: bool
) -> Read | ColdRead:
    end_offset = log.log_end_offset
    if not log.log_start_offset <= offset <= end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {log.topic_partition} is not within {log.log_start_offset}..{end_offset}",
        )
    log.health.check_readable()
    upper = end_offset if before_offset is None or before_offset > end_offset else before_offset
    if log.truncating_to is not None:
        upper = min(upper, log.truncating_to)
    if offset >= upper:
        return Read(None, upper)
    log.touched = True
    segments = log.segments
    index = len(segments) - 1 if offset >= log.active.base_offset else log.segment_index(offset)
    while True:
        segment = segments[index]
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        try:
            found = _read_segment(log, segment, offset, upper, following, max_bytes, at_least_one)
        except (NotLoaded, BadIndex):
            return ColdRead(log, segment, offset, upper, max_bytes)
        except Damaged as damage:
            raise _refusal(log, segment, damage) from None
        except OSError as error:
            raise log.health.explain(error, f"reading {segment!r}") from error
        if found is not None:
            return found
        # Compaction left a gap at the end of this segment: go on with the next.
        index += 1
        if index == len(segments) or following >= upper:
            return Read(None, upper)
        offset = following


def _read_segment(
    log: PartitionLog, segment: Segment, offset: int, upper: int, following: int, max_bytes: int, at_least_one: bool
) -> Read | None:
    """None when the segment has no batch at or above `offset`."""
    start = known(segment, offset) or locate(segment, offset, segment.log().read_cached)
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
    return Read(FileSlice(segment.log(), position, stop - position, log.health.explain), bound)


def _raise_if_damaged(segment: Segment, position: int) -> None:
    damage = segment.damage
    if damage is not None and damage[0] == position:
        raise Damaged(*damage)


def _end_position(segment: Segment, start: Located, upper: int) -> int:
    """Where the batches below `upper` end. Without IO if need be: then at an earlier batch, as the index knows it."""
    found = known(segment, upper)
    if found is not None:
        return found.position
    try:
        found = locate(segment, upper, segment.log().read_cached)
        return segment.size if found is None else found.position
    except (NotLoaded, Damaged):
        if segment.offsets is None:
            raise
        _, position = segment.offsets.floor(upper - 1)
        if position <= start.position:
            raise
        return position


def _batch_boundary(segment: Segment, least: int, limit: int) -> int:
    """The last boundary between batches that the index knows from `least` up to `limit`, else `limit` itself: a reader
    drops a batch that is cut off, so sending one is waste."""
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


def _refusal(log: PartitionLog, segment: Segment, damage: Damaged) -> KafkaError:
    note_damage(log, segment, damage.position, damage.why)
    # Who may ask another broker soon is not told that the records are lost, for they are not.
    elsewhere = log.on_damage is not None and log.on_damage()
    code = ErrorCode.KAFKA_STORAGE_ERROR if elsewhere else ErrorCode.CORRUPT_MESSAGE
    return KafkaError(code, f"{segment.path(names.LOG)} is damaged {damage}")


def bytes_between(log: PartitionLog, offset: int, upper: int) -> int:
    """An estimate from what is in memory: exact for the newest batches, by the share of offsets for older ones."""
    total = 0
    segments = log.segments
    for index in range(log.segment_index(offset), len(segments)):
        segment = segments[index]
        following = segments[index + 1].base_offset if index + 1 < len(segments) else log.log_end_offset
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
    located = known(segment, offset)
    if located is not None:
        return located.position
    return segment.size * (offset - segment.base_offset) // (following - segment.base_offset)
