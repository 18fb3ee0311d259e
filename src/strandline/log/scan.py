"""Walking the batches of a segment file, with or without their checksums, up to the first thing that is no batch.

Used by recovery (everything past the recovery point), by warming (before a batch is first served) and by the replay of
producers. Whatever the file holds, a scan ends: at its end, or at `damage`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from crc32c import crc32c

from strandline.records.batch import ATTRIBUTES_AT, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader
from strandline.runtime.disk import File

_CHUNK = 1 << 18
_SMALLEST_BATCH_LENGTH = HEADER_SIZE - LOG_OVERHEAD
_CONTROL = 0x20


class OldFormat(Exception):
    """A genuine message of format 0 or 1. We do not read those, and must not take them for damage and cut them."""


class Scan:
    """Iterates over (position, header, batch); `batch` holds the whole batch when it was read, else None.

    With `checksums`, every batch is read and checked; without, only headers and control batches are read.
    `next_offset` is the least offset the next batch may have; `position` where the scan stands; `damage` why it ended
    early, or None.
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
            if header is None:
                return
            size = LOG_OVERHEAD + header.batch_length
            batch = None
            if self._checksums or header.attributes & _CONTROL:
                batch = self._bytes(size)
                good = self._whole_checksum(size, batch) == header.crc
                if not good:
                    self.damage = f"checksum of the batch at offset {header.base_offset} does not fit"
                    return
            position = self.position
            self.position = position + size
            self.next_offset = header.base_offset + header.last_offset_delta + 1
            yield position, header, batch

    def _header(self) -> BatchHeader | None:
        raw = self._bytes(HEADER_SIZE)
        if raw is None or len(raw) < HEADER_SIZE:
            self.damage = f"{self._end - self.position} bytes are less than a batch header"
            return None
        header = BatchHeader._make(HEADER.unpack_from(raw))
        length = header.batch_length
        if header.magic != MAGIC and self._is_old_format(raw, header.magic, length):
            raise OldFormat(
                f"{self._file.path} holds messages of format {header.magic} at position {self.position}: "
                f"let Apache Kafka 3 rewrite the topic first, this log reads format {MAGIC} only"
            )
        if header.magic != MAGIC or length < _SMALLEST_BATCH_LENGTH:
            self.damage = f"magic {header.magic} and length {length} are no batch header"
        elif length > self._end - self.position - LOG_OVERHEAD:
            self.damage = f"the batch at offset {header.base_offset} is cut off"
        elif header.base_offset < self.next_offset or header.last_offset_delta < 0 or header.record_count < 0:
            self.damage = f"offset {header.base_offset} where {self.next_offset} or more is due"
        else:
            return header
        return None

    def _bytes(self, size: int) -> memoryview | None:
        """`size` bytes at the present position; None if that is more than is sensible to hold at once."""
        at = self.position - self._chunk_start
        if at < 0 or at + size > len(self._chunk):
            if size > 4 * _CHUNK:
                return None
            # Without checksums the next header may be far away: read little.
            ahead = _CHUNK if self._checksums else 4096
            self._chunk = self._file.read_at(self.position, min(max(size, ahead), self._end - self.position))
            self._chunk_start = self.position
            at = 0
        return memoryview(self._chunk)[at : at + size]

    def _whole_checksum(self, size: int, batch: memoryview | None) -> int:
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

    def _is_old_format(self, raw: memoryview, magic: int, length: int) -> bool:
        """Whether the bytes are what their format's own checksum says: damage in the magic byte is not."""
        if magic not in (0, 1) or not 14 <= length <= min(1 << 26, self._end - self.position - LOG_OVERHEAD):
            return False
        message = self._file.read_at(self.position + LOG_OVERHEAD, length)
        return len(message) == length and zlib.crc32(message[4:]) == int.from_bytes(message[:4], "big")
