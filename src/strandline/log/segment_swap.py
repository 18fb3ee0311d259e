"""Putting a compacted segment in the place of those it was made from.

On the event loop, between two reads: renames and assignments. Whatever the moment of a crash, opening the log finds
either the old segments or the new one complete (see `leftovers`): the new files carry `.swap` until the old ones are
marked `.deleted`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from strandline.log import names
from strandline.log.segment import Segment

if TYPE_CHECKING:
    from strandline.log.cleaner import Replacement
    from strandline.log.partition_log import PartitionLog


def replace_segments(log: PartitionLog, replacement: Replacement) -> list[Segment]:
    """The old segments, out of the log and marked `.deleted`, for the caller to remove after file.delete.delay.ms. When
    they are no longer all in the log, the new segment is given up instead and handed back for removal."""
    old, new = replacement.old, replacement.new
    segments = log.segments
    at = next((index for index, segment in enumerate(segments) if segment is old[0]), -1)
    if at < 0 or tuple(segments[at : at + len(old)]) != old or old[-1] is log.active:
        return [new]
    try:
        for segment in old:
            segment.mark(names.DELETED)
        new.mark("")
        for segment in old[1:]:
            _drop_snapshot(log, segment.base_offset)
    except OSError as error:
        raise log.health.explain(error, f"replacing segments of {log.path}") from error
    log.segments = [*segments[:at], new, *segments[at + len(old) :]]
    log.size_bytes += new.size - sum(segment.size for segment in old)
    log.entries_changed += 1
    return list(old)


def _drop_snapshot(log: PartitionLog, offset: int) -> None:
    """No segment begins here any more."""
    log.captured_producers.pop(offset, None)
    snapshot = os.path.join(log.path, names.offset_name(offset) + names.SNAPSHOT)
    if log.disk.exists(snapshot):
        log.disk.rename(snapshot, snapshot + names.DELETED)
