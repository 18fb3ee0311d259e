"""Cleaning up a partition directory after a crash or an interrupted compaction, before the log is opened.

Called by `recovery`, away from the event loop. In this order, which makes every step repeatable:

1. `.deleted` and `.tmp` files are removed, and `.cleaned` ones: that compaction was not finished;
2. so are `.swap` files at or above the first `.cleaned` one: they belong to the same unfinished group;
3. a `.log.swap` file is a finished compaction: the segments it replaces are removed, then it takes their names;
4. index files without their `.log` file are removed.
"""

from __future__ import annotations

import logging
import os

from msgspec.structs import replace

from strandline.log import names
from strandline.log.names import SegmentFile
from strandline.log.segment_scan import OldFormat, Scan
from strandline.runtime.disk import Disk

logger = logging.getLogger(__name__)


def clean_up(disk: Disk, path: str) -> list[SegmentFile]:
    """Blocking. The files of the log that remain, all without an extra suffix."""
    kept: list[SegmentFile] = []
    swaps: list[SegmentFile] = []
    unfinished: list[int] = []
    for name in disk.list(path):
        file = names.parse_segment_file(name)
        if file is None:
            if name.endswith((names.DELETED, ".tmp")):
                disk.remove(os.path.join(path, name))
        elif file.extra == "":
            kept.append(file)
        elif file.extra == names.SWAP:
            swaps.append(file)
        else:
            if file.extra == names.CLEANED:
                unfinished.append(file.base_offset)
            disk.remove(os.path.join(path, name))
    if swaps:
        kept = _finish_swaps(disk, path, kept, swaps, min(unfinished, default=1 << 63))
    logs = {file.base_offset for file in kept if file.suffix == names.LOG}
    for file in kept:
        if file.suffix not in (names.LOG, names.SNAPSHOT) and file.base_offset not in logs:
            logger.warning("Removing %s: its .log file is missing", os.path.join(path, _name(file)))
            disk.remove(os.path.join(path, _name(file)))
    return [file for file in kept if file.suffix == names.SNAPSHOT or file.base_offset in logs]


def _finish_swaps(
    disk: Disk, path: str, kept: list[SegmentFile], swaps: list[SegmentFile], unfinished_from: int
) -> list[SegmentFile]:
    covered: list[tuple[int, int]] = []
    finished: list[SegmentFile] = []
    for file in swaps:
        if file.base_offset >= unfinished_from:
            disk.remove(os.path.join(path, _name(file)))
            continue
        finished.append(file)
        if file.suffix == names.LOG:
            covered.append((file.base_offset, _next_offset(disk, os.path.join(path, _name(file)), file.base_offset)))
    remaining: list[SegmentFile] = []
    for file in kept:
        replaced = any(start <= file.base_offset < end for start, end in covered)
        if replaced and file.suffix != names.SNAPSHOT:
            disk.remove(os.path.join(path, _name(file)))
        else:
            remaining.append(file)
    logger.info("Finishing an interrupted compaction of %s: segments %s", path, [start for start, _ in covered])
    # `.log` files last: while a .log.swap exists, a crash repeats all of this.
    for file in sorted(finished, key=lambda file: file.suffix == names.LOG):
        old = os.path.join(path, _name(file))
        final = replace(file, extra="")
        disk.rename(old, os.path.join(path, _name(final)))
        if final not in remaining:
            remaining.append(final)
    disk.sync_dir(path)
    return remaining


def _next_offset(disk: Disk, log_path: str, base_offset: int) -> int:
    file = disk.open(log_path)
    try:
        scan = Scan(file, 0, file.size(), base_offset, checksums=False)
        try:
            for _ in scan:
                pass
        except OldFormat:
            pass
        return max(scan.next_offset, base_offset + 1)
    finally:
        file.close()


def _name(file: SegmentFile) -> str:
    return names.offset_name(file.base_offset) + file.suffix + file.extra
