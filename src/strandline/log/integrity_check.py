"""How far a log on disk is intact, checked without changing anything.

Raft calls it before recovery may truncate: committed metadata must never be truncated silently. It scans the same
segments, in the same order and with the same checks, as `recovery` does when it reads everything.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

import msgspec

from strandline.log import names
from strandline.log.segment import MAX_SPAN
from strandline.log.segment_scan import OldFormat, Scan, VerifyingScan
from strandline.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, MAGIC_AT, CorruptBatch, crc_ok, read_header
from strandline.runtime.disk import Disk, File

_CHUNK: Final = 1 << 20


class IntactPrefix(msgspec.Struct, frozen=True):
    file: str | None
    """The segment file in which the intact part ends; None when there is no segment."""
    position: int
    end_offset: int
    """Everything below it is intact."""
    damage: str | None
    """Why recovery would truncate here; None when this is the end of the log."""
    later_files: tuple[str, ...] = ()
    """Later segments that are not empty."""


def intact_prefix(disk: Disk, path: str) -> IntactPrefix:
    """Blocking. The intact prefix of a log whose offsets have no gaps."""
    segments = _segments(disk, path)
    if not segments:
        return IntactPrefix(None, 0, 0, None)
    found = IntactPrefix(None, 0, segments[0], None)
    epoch = -1
    for at, base_offset in enumerate(segments):
        if base_offset != found.end_offset:
            why = f"the next segment begins at offset {base_offset}"
            return IntactPrefix(found.file, found.position, found.end_offset, why, _filled(disk, path, segments[at:]))
        following = segments[at + 1] if at + 1 < len(segments) else None
        found, epoch = _scan(disk, _log_path(path, base_offset), base_offset, following, epoch)
        if found.damage is not None:
            later_files = _filled(disk, path, segments[at + 1 :])
            return IntactPrefix(found.file, found.position, found.end_offset, found.damage, later_files)
    return found


def intact_batch_after(disk: Disk, file_path: str, position: int, least_offset: int) -> int | None:
    """Blocking. The base offset of an intact batch behind `position` that is at or above `least_offset`."""
    file = disk.open(file_path)
    try:
        found = _next_intact_batch(file, position, least_offset)
        return None if found is None else found[1]
    finally:
        file.close()


def end_of_intact_batches_after(file: File, position: int, least_offset: int, most: int) -> int | None:
    """Blocking. The end of the last intact batch behind `position`, with offsets from `least_offset` up to `most`: the
    checksum does not cover the offset, so a batch with an impossible one is damaged as well."""
    end_offset: int | None = None
    end = file.size()
    while (found := _next_intact_batch(file, position, least_offset)) is not None:
        scan = Scan(file, found[0], end, found[1])
        with contextlib.suppress(OldFormat):
            for _, header, _ in scan:
                if header.next_offset <= most:
                    end_offset = max(end_offset or 0, header.next_offset)
        position = max(scan.position, found[0] + 1)
    return end_offset


def _next_intact_batch(file: File, position: int, least_offset: int) -> tuple[int, int] | None:
    """(position, base offset)"""
    end = file.size()
    while position + HEADER_SIZE <= end:
        # Chunks overlap by a header, so that none is missed between them.
        chunk = file.read_at(position, min(_CHUNK + HEADER_SIZE, end - position))
        found = _batch_in(file, chunk, position, end, least_offset)
        if found is not None:
            return found
        position += _CHUNK
    return None


def _batch_in(file: File, chunk: bytes, start: int, end: int, least_offset: int) -> tuple[int, int] | None:
    magic = bytes([MAGIC])
    at = chunk.find(magic, MAGIC_AT)
    while at >= 0:
        position = at - MAGIC_AT
        if position + HEADER_SIZE <= len(chunk):
            base_offset = _batch_at(file, chunk, position, start + position, end)
            if base_offset is not None and base_offset >= least_offset:
                return start + position, base_offset
        at = chunk.find(magic, at + 1)
    return None


def _batch_at(file: File, chunk: bytes, position: int, file_position: int, end: int) -> int | None:
    try:
        header = read_header(chunk, position)
    except CorruptBatch:
        return None
    size = LOG_OVERHEAD + header.batch_length
    if size > end - file_position:
        return None
    batch = file.read_at(file_position, size)
    return header.base_offset if len(batch) == size and crc_ok(batch, 0, size) else None


def _scan(disk: Disk, path: str, base_offset: int, following: int | None, epoch: int) -> tuple[IntactPrefix, int]:
    file = disk.open(path)
    try:
        scan = VerifyingScan(file, 0, file.size(), base_offset, end_offset=following, leader_epoch=epoch)
        for at, header, _ in scan:
            if header.last_offset - base_offset > MAX_SPAN:
                return IntactPrefix(path, at, header.base_offset, "an offset too far from the segment's base"), epoch
        return IntactPrefix(path, scan.position, scan.next_offset, scan.damage), scan.leader_epoch
    finally:
        file.close()


def _segments(disk: Disk, path: str) -> list[int]:
    files = (names.parse_segment_file(name) for name in disk.list(path))
    return sorted(file.base_offset for file in files if file and file.suffix == names.LOG and not file.extra)


def _filled(disk: Disk, path: str, segments: list[int]) -> tuple[str, ...]:
    paths = (_log_path(path, base_offset) for base_offset in segments)
    return tuple(each for each in paths if disk.size(each) > 0)


def _log_path(path: str, base_offset: int) -> str:
    return os.path.join(path, names.offset_name(base_offset) + names.LOG)
