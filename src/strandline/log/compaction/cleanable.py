"""Which part of a log compaction could clean, and whether it is due.

`replication/compaction_scheduler` calls it for every compacted log and cleans the one with the largest dirty ratio. The
cleanable part ends at the last stable offset, at the active segment, and at the first segment with a record younger
than min.compaction.lag.ms. The part that was cleaned before ends at the offset in cleaner-offset-checkpoint.
"""

from __future__ import annotations

import msgspec

from strandline.log import names
from strandline.log.local_log import segment_index
from strandline.log.partition_log import PartitionLog
from strandline.log.segment import Segment
from strandline.log.settings import MAX_LONG
from strandline.records.batch import HEADER_SIZE, CorruptBatch, read_header


class Cleanable(msgspec.Struct, frozen=True):
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """A record has waited for longer than max.compaction.lag.ms."""
    checkpoint_was_wrong: bool
    """The checkpoint was outside of the log, and `first_dirty_offset` is the log start instead."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, min_cleanable_dirty_ratio: float) -> bool:
        return self.dirty_bytes > 0 and (self.overdue or self.dirty_ratio > min_cleanable_dirty_ratio)


def cleanable(log: PartitionLog, checkpoint: int | None, wall_ms: int) -> Cleanable:
    """Blocking. What may be cleaned. `checkpoint` is where the last cleaning of this log ended, if there was one."""
    segments = log.segments
    sealed = segments[:-1]
    start = log.log_start_offset
    first_dirty = start if checkpoint is None else checkpoint
    wrong = not start <= first_dirty <= log.log_end_offset
    if wrong:
        # The log was truncated, or its start was raised, since the last cleaning.
        first_dirty = start
    limit = min(log.last_stable_offset, segments[-1].base_offset)
    try:
        dirty = [segment for index, segment in enumerate(sealed) if segments[index + 1].base_offset > first_dirty]
        limit = _youngest_limit(log, dirty, limit, wall_ms)
        overdue = _is_overdue(log, dirty, wall_ms)
    except OSError as error:
        raise log.health.report_error(error, f"looking for what can be compacted in {log.path}") from error
    limit = max(first_dirty, limit)
    # Segments are cleaned whole: the one that holds the limit is not.
    uncleanable = segments[segment_index(segments, limit)].base_offset if limit < segments[-1].base_offset else limit
    return Cleanable(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=uncleanable,
        clean_bytes=sum(segment.size for segment in sealed if segment.base_offset < first_dirty),
        dirty_bytes=sum(segment.size for segment in dirty if segment.base_offset < uncleanable),
        overdue=overdue,
        checkpoint_was_wrong=wrong,
    )


def _youngest_limit(log: PartitionLog, dirty: list[Segment], limit: int, wall_ms: int) -> int:
    lag_ms = log.settings.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in dirty:
            if log.largest_timestamp(segment) > wall_ms - lag_ms:
                return min(limit, segment.base_offset)
    return limit


def _is_overdue(log: PartitionLog, dirty: list[Segment], wall_ms: int) -> bool:
    lag_ms = log.settings.max_compaction_lag_ms
    if lag_ms >= MAX_LONG:
        return False
    timestamps = [timestamp for segment in dirty if (timestamp := _first_timestamp(segment)) > 0]
    return min(timestamps, default=wall_ms) < wall_ms - lag_ms


def _first_timestamp(segment: Segment) -> int:
    if segment.first_timestamp >= 0 or segment.size < HEADER_SIZE:
        return segment.first_timestamp
    file = segment.disk.open(segment.path(names.LOG))
    try:
        return read_header(file.read_at(0, HEADER_SIZE)).max_timestamp
    except CorruptBatch:
        return -1
    finally:
        file.close()
