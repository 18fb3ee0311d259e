"""What a log may forget: segments that are too old, too many, or below the log start.

Called by PartitionLog for the periodic retention step and for DeleteRecords. Segments go oldest first, never past the
high watermark, and one (possibly new and empty) always remains.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from strandline.log import names
from strandline.log.segment import Segment
from strandline.log.timestamp_lookup import largest_timestamp
from strandline.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from strandline.log.partition_log import PartitionLog


def delete_records_before(log: PartitionLog, offset: int) -> int:
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{offset} is not within 0..{log.high_watermark}, the high watermark of {log.topic_partition}",
        )
    _move_log_start(log, offset)
    return log.log_start_offset


def expired_segments(log: PartitionLog, wall_ms: int) -> int:
    segments = log.segments
    log.health.check_readable()
    try:
        by_time = _expired_by_time(log, segments, wall_ms)
    except OSError as error:
        raise log.health.explain(error, f"looking for old segments in {log.path}") from error
    return max(by_time, _expired_by_size(log, segments), _below_log_start(log, segments))


def retire(log: PartitionLog, count: int, wall_ms: int) -> list[Segment]:
    if count == 0:
        return []
    if count >= len(log.segments):
        log.roll(wall_ms)
        count = min(count, len(log.segments) - 1)
    retired, remaining = log.segments[:count], log.segments[count:]
    log.segments = remaining
    _move_log_start(log, remaining[0].base_offset)
    for segment in retired:
        log.size_bytes -= segment.size
        log.captured_producers.pop(segment.base_offset, None)
        try:
            segment.mark(names.DELETED)
            snapshot = os.path.join(log.path, names.offset_name(segment.base_offset) + names.SNAPSHOT)
            if log.disk.exists(snapshot):
                log.disk.rename(snapshot, snapshot + names.DELETED)
        except OSError as error:
            raise log.health.explain(error, f"retiring {segment!r}") from error
    return retired


def _move_log_start(log: PartitionLog, offset: int) -> None:
    if offset > log.log_start_offset:
        log.log_start_offset = offset
        log.epochs.truncate_from_start(offset)
        # Restarting from a checkpoint of before must not bring the high watermark below what is there.
        log.high_watermark = max(log.high_watermark, offset)


def _deletable(log: PartitionLog, segments: list[Segment], index: int) -> bool:
    end = segments[index + 1].base_offset if index + 1 < len(segments) else log.log_end_offset
    is_empty_active = index + 1 == len(segments) and segments[index].size == 0
    return end <= log.high_watermark and not is_empty_active


def _expired_by_time(log: PartitionLog, segments: list[Segment], wall_ms: int) -> int:
    retention_ms = log.settings.retention_ms
    if retention_ms < 0 or not log.settings.cleanup_delete:
        return 0
    count = 0
    while count < len(segments) and _deletable(log, segments, count):
        segment = segments[count]
        newest = largest_timestamp(log, segment)
        if newest < 0:
            newest = segment.disk.modified_ms(segment.path(names.LOG))
        if wall_ms - newest <= retention_ms:
            break
        count += 1
    return count


def _expired_by_size(log: PartitionLog, segments: list[Segment]) -> int:
    retention_bytes = log.settings.retention_bytes
    if retention_bytes < 0 or not log.settings.cleanup_delete:
        return 0
    excess = sum(segment.size for segment in segments) - retention_bytes
    count = 0
    while count < len(segments) and _deletable(log, segments, count) and excess - segments[count].size >= 0:
        excess -= segments[count].size
        count += 1
    return count


def _below_log_start(log: PartitionLog, segments: list[Segment]) -> int:
    """Whatever the policy: what DeleteRecords has hidden takes no space. The active segment stays."""
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= log.log_start_offset:
        count += 1
    return count
