"""Which segments retention deletes: those that are too old, exceed retention.bytes, or lie below the log start.

Called by PartitionLog. Segments are deleted oldest first, never past the high watermark, and one (possibly new and
empty) always remains.
"""

from __future__ import annotations

from strandline.log import names
from strandline.log.local_log import LocalLog
from strandline.log.segment import Segment
from strandline.log.timestamp_lookup import largest_timestamp


def expired_segments(local: LocalLog, log_start_offset: int, high_watermark: int, wall_ms: int) -> int:
    """Blocking. How many of the oldest segments are to be deleted."""
    segments = local.segments
    local.health.check_readable()
    deletable = _deletable(local, segments, high_watermark)
    try:
        by_time = _expired_by_time(local, deletable, wall_ms)
    except OSError as error:
        raise local.health.report_error(error, f"looking for old segments in {local.path}") from error
    return max(by_time, _expired_by_size(local, segments, deletable), _below_log_start(segments, log_start_offset))


def _deletable(local: LocalLog, segments: list[Segment], high_watermark: int) -> list[Segment]:
    """The oldest segments that end at or below the high watermark; an empty active segment is not among them."""
    count = 0
    for index, segment in enumerate(segments):
        is_last = index + 1 == len(segments)
        end = local.end_offset if is_last else segments[index + 1].base_offset
        if end > high_watermark or (is_last and segment.size == 0):
            break
        count += 1
    return segments[:count]


def _expired_by_time(local: LocalLog, deletable: list[Segment], wall_ms: int) -> int:
    retention_ms = local.settings.retention_ms
    if retention_ms < 0 or not local.settings.cleanup_delete:
        return 0
    count = 0
    for segment in deletable:
        newest = largest_timestamp(local, segment)
        if newest < 0:
            newest = segment.disk.modified_ms(segment.path(names.LOG))
        if wall_ms - newest <= retention_ms:
            break
        count += 1
    return count


def _expired_by_size(local: LocalLog, segments: list[Segment], deletable: list[Segment]) -> int:
    retention_bytes = local.settings.retention_bytes
    if retention_bytes < 0 or not local.settings.cleanup_delete:
        return 0
    excess = sum(segment.size for segment in segments) - retention_bytes
    count = 0
    for segment in deletable:
        if excess - segment.size < 0:
            break
        excess -= segment.size
        count += 1
    return count


def _below_log_start(segments: list[Segment], log_start_offset: int) -> int:
    """How many segments are below the log start: deleted whatever cleanup.policy is. The active segment stays."""
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= log_start_offset:
        count += 1
    return count
