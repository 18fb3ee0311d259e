"""Scanning the batches of a segment file, with or without verifying them, up to the first damage.

Used by recovery (everything past the recovery point), by cold reads (before a batch is first served) and by the replay
of producers. Whatever the file holds, a scan ends: at the end of the file, or at `damage`.

The checksum of a batch does not cover its base offset and leader epoch, so a verifying scan compares those with the
batches around: offsets continue, epochs never decrease. Where a batch does not simply continue the one before (a gap
that compaction left, a new epoch), the batch behind must confirm it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from strandline.records.batch import ATTRIBUTES_AT, CONTROL, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader
from strandline.records.checksum import crc32c
from strandline.runtime.disk import File

_CHUNK = 1 << 18
_SMALLEST_BATCH_LENGTH = HEADER_SIZE - LOG_OVERHEAD


class OldFormat(Exception):
    """A valid message of format 0 or 1. It cannot be read, and must not be taken for damage and truncated."""


class Scan:
    """Iterates over (position, header, batch); `batch` holds the whole batch when it was read, else None.

    With `checksums`, every batch is read and verified; without, only headers and control batches are read.
    `next_offset` is the smallest offset that the next batch may have; `position` is where the scan is; `damage` is why
    it ended early, or None.
    """

    __slots__ = ("_checksums", "_chunk", "_chunk_start", "_end", "_file", "damage", "next_offset", "position")

    def __init__(self, file: File, position: int, end: int, next_offset: int, *, checksums: bool = True) -> None:
        self._file = file
        self._end = end
        self._checksums = checksums
        self._chunk = b""
        self._chunk_start = position
        self.position = position
        self.next_offset = next_offset
        self.damage: str | None = None

    def __iter__(self) -> Iterator[tuple[int, BatchHeader, memoryview | None]]:
        while self.position < self._end:
            header = self._header()
            if header is None or not self._is_plausible(header):
                return
            size = LOG_OVERHEAD + header.batch_length
            batch = None
            if self._checksums or header.attributes & CONTROL:
                batch = self._bytes(self.position, size)
                if self._checksum(size, batch) != header.crc:
                    self.damage = f"wrong checksum of the batch at offset {header.base_offset}"
                    return
            position = self.position
            self.position = position + size
            self.next_offset = header.base_offset + header.last_offset_delta + 1
            yield position, header, batch

    def _is_plausible(self, header: BatchHeader) -> bool:
        """Overridden by scans that know more about the log; sets `damage`."""
        return True

    def _header(self) -> BatchHeader | None:
        raw = self._bytes(self.position, HEADER_SIZE)
        if raw is None or len(raw) < HEADER_SIZE:
            self.damage = f"{self._end - self.position} bytes are less than a batch header"
            return None
        header = BatchHeader._make(HEADER.unpack_from(raw))
        length = header.batch_length
        if header.magic != MAGIC and self._is_old_format(header.magic, length):
            raise OldFormat(
                f"{self._file.path} holds messages of format {header.magic} at position {self.position}: "
                f"only format {MAGIC} is supported, rewrite the topic with Apache Kafka 3 first"
            )
        if header.magic != MAGIC or length < _SMALLEST_BATCH_LENGTH:
            self.damage = f"magic {header.magic} and length {length} are no batch header"
        elif length > self._end - self.position - LOG_OVERHEAD:
            self.damage = f"the batch at offset {header.base_offset} is incomplete"
        elif header.base_offset < self.next_offset or header.last_offset_delta < 0 or header.record_count < 0:
            self.damage = f"offset {header.base_offset} where {self.next_offset} or more is expected"
        else:
            return header
        return None

    def _bytes(self, position: int, size: int) -> memoryview | None:
        """Bytes of the file; None if they are too many to hold at once."""
        at = position - self._chunk_start
        if at < 0 or at + size > len(self._chunk):
            if size > 4 * _CHUNK:
                return None
            # Without checksums the next header may be far away: read little.
            ahead = _CHUNK if self._checksums else 4096
            self._chunk = self._file.read_at(position, max(0, min(max(size, ahead), self._end - position)))
            self._chunk_start = position
            at = 0
        return memoryview(self._chunk)[at : at + size]

    def _checksum(self, size: int, batch: memoryview | None) -> int:
        """The checksum of the batch at the current position; -1 when the file ends within it."""
        if batch is not None:
            return int(crc32c(batch[ATTRIBUTES_AT:])) if len(batch) == size else -1
        checksum = 0
        at = self.position + ATTRIBUTES_AT
        end = self.position + size
        while at < end:
            piece = self._file.read_at(at, min(_CHUNK, end - at))
            if not piece:
                return -1
            checksum = crc32c(piece, checksum)
            at += len(piece)
        return checksum

    def _is_old_format(self, magic: int, length: int) -> bool:
        """Whether the checksum of that format is right; with a damaged magic byte it is not."""
        if magic not in (0, 1) or not 14 <= length <= min(1 << 26, self._end - self.position - LOG_OVERHEAD):
            return False
        message = self._file.read_at(self.position + LOG_OVERHEAD, length)
        return len(message) == length and zlib.crc32(message[4:]) == int.from_bytes(message[:4], "big")


class VerifyingScan(Scan):
    """A scan with checksums that verifies offsets and leader epochs as well.

    `end_offset` is where the segment ends if that is known, `gaps_expected` whether the log is compacted, `epoch_for`
    the epoch of an offset according to the epoch cache (-1: unknown), `leader_epoch` that of the batch before.
    """

    __slots__ = ("_end_offset", "_epoch_for", "_gaps_expected", "leader_epoch")

    def __init__(
        self,
        file: File,
        position: int,
        end: int,
        next_offset: int,
        *,
        end_offset: int | None = None,
        gaps_expected: bool = False,
        epoch_for: Callable[[int], int] | None = None,
        leader_epoch: int = -1,
    ) -> None:
        super().__init__(file, position, end, next_offset)
        self._end_offset = end_offset
        self._gaps_expected = gaps_expected
        self._epoch_for = epoch_for
        self.leader_epoch = leader_epoch

    def _is_plausible(self, header: BatchHeader) -> bool:
        epoch = header.partition_leader_epoch
        continues = header.base_offset == self.next_offset and epoch == self.leader_epoch
        if continues and (self._end_offset is None or header.next_offset <= self._end_offset):
            return True
        behind = self._behind(self.position, header)
        if not self._is_offset_confirmed(header, behind):
            self.damage = f"offset {header.base_offset} where {self.next_offset} is expected"
            return False
        if not self._is_epoch_confirmed(header, behind):
            self.damage = f"leader epoch {epoch} of offset {header.base_offset} after {self.leader_epoch}"
            return False
        self.leader_epoch = max(epoch, self.leader_epoch)
        return True

    def _behind(self, position: int, header: BatchHeader) -> BatchHeader | None:
        """The header behind the batch at `position`, if there is a plausible one."""
        raw = self._bytes(position + header.size_bytes, HEADER_SIZE)
        if raw is None or len(raw) < HEADER_SIZE:
            return None
        behind = BatchHeader._make(HEADER.unpack_from(raw))
        return behind if behind.magic == MAGIC and behind.batch_length >= _SMALLEST_BATCH_LENGTH else None

    def _is_offset_confirmed(self, header: BatchHeader, behind: BatchHeader | None) -> bool:
        if self._end_offset is not None and header.next_offset > self._end_offset:
            return False
        if header.base_offset == self.next_offset or self._gaps_expected:
            return True
        if behind is not None:
            return behind.base_offset >= header.next_offset
        is_last = self.position + header.size_bytes == self._end
        return is_last and self._end_offset is not None

    def _is_epoch_confirmed(self, header: BatchHeader, behind: BatchHeader | None) -> bool:
        epoch = header.partition_leader_epoch
        before = self.leader_epoch
        if epoch < 0 or epoch == before:
            return True
        after = -1 if behind is None else behind.partition_leader_epoch
        if epoch < before:
            return False
        if behind is not None and before <= after < epoch:
            # One of the two is wrong; the batch after them shows which.
            beyond = self._behind(self.position + header.size_bytes, behind)
            return beyond is not None and beyond.partition_leader_epoch >= epoch
        known = -1 if self._epoch_for is None else self._epoch_for(header.base_offset)
        return known in (-1, epoch) or epoch == after
