"""One segment: a `.log` file and its indexes, named by the offset of its first batch.

Owned by one LocalLog. The last segment of a log is active and takes appends; the others are sealed. A segment opens its
file when it is first needed and may close it again (`release`); verified ranges are kept.

Threads: the event loop owns every field of a segment in an open log; before that, the thread that recovers the log or
compacts into the segment does. A thread may sync a segment (`sync`, `sync_indexes`), load its indexes (`index_loading`)
and verify its batches (`cold_reads`). Each opens a file handle of its own, reads only what was written before, and ends
with single assignments (`synced_size`, `offsets`, `times`, `aborted`, `verified`, `damage`, `hints`), which the loop
may see at any moment.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from typing import NamedTuple

from strandline.log import names, offset_index, time_index, transaction_index
from strandline.log.index_file import NotLoaded
from strandline.log.offset_index import OffsetIndex
from strandline.log.time_index import TimeIndex
from strandline.log.transaction_index import AbortedTransaction
from strandline.runtime.disk import Buffer, Disk, File

MAX_SPAN = (1 << 31) - 1
NO_TIMESTAMP = -1

# Index entries in memory are written when they are this many, or the log has grown by this much: it bounds what
# recovery reads.
_SPILL_ENTRIES = 512
_SPILL_BYTES = 16 << 20
_RECENT = 16
_REWRITE_BYTES = 1 << 20


class BatchLocation(NamedTuple):
    """Where a batch starts and its size; size 0: there is no batch, the segment ends here or is damaged."""

    position: int
    size: int
    base_offset: int = -1


class Segment:
    __slots__ = (
        "_spilled_size",
        "aborted",
        "base_offset",
        "bytes_since_last_entry",
        "created_ms",
        "damage",
        "directory",
        "disk",
        "extra",
        "file",
        "first_timestamp",
        "hints",
        "indexes_synced",
        "is_preallocated",
        "largest_timestamp",
        "largest_timestamp_offset",
        "offsets",
        "recent",
        "size",
        "synced_size",
        "times",
        "truncations",
        "trusted_from",
        "verified",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, *, size: int = 0, extra: str = "") -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.extra = extra
        self.size = size
        self.file: File | None = None
        self.offsets: OffsetIndex | None = None
        self.times: TimeIndex | None = None
        self.aborted: tuple[AbortedTransaction, ...] | None = None
        """Aborted transactions; None until read from the file."""
        self.largest_timestamp: int | None = None
        self.largest_timestamp_offset = base_offset
        self.first_timestamp = NO_TIMESTAMP
        """The timestamp of the first batch: segment.ms counts from it."""
        self.created_ms = 0
        self.bytes_since_last_entry = 0
        """Appended since the last index entry."""
        self.truncations = 0
        self.synced_size = size
        self.is_preallocated = False
        self.indexes_synced = True
        self._spilled_size = size
        self.trusted_from = size
        """Batches from here on were appended by this process, or verified by recovery."""
        self.verified: tuple[tuple[int, int], ...] = ()
        """Ranges below that whose checksums this process has verified."""
        self.damage: tuple[int, str] | None = None
        """Where a read has to stop, and why."""
        self.recent: array[int] | None = None
        """The newest batches: base offset, last offset, position of each in turn."""
        self.hints: dict[int, BatchLocation] | None = None
        """Locations of batches that were read lately, by offset."""

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, created_ms: int, extra: str = "") -> Segment:
        """A new, empty segment. A file of that name holds offsets that the log never reached: it is truncated. The
        index files exist from the beginning, as in Kafka: backup scripts and Kafka's tools expect them."""
        segment = cls(disk, directory, base_offset, extra=extra)
        segment.start_indexes(created_ms)
        for suffix in names.SEGMENT_SUFFIXES[1:]:
            if disk.exists(segment.path(suffix)):
                disk.remove(segment.path(suffix))
        segment.file = disk.open(segment.path(names.LOG), create=True)
        if segment.file.size():
            segment.file.truncate(0)
        if not extra:
            for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
                disk.open(segment.path(suffix), create=True).close()
        segment.synced_size = -1
        return segment

    def preallocate(self, size: int) -> None:
        """Reserve disk space; what is not used is released when the segment is sealed."""
        self.log_file().reserve(size)
        self.is_preallocated = True

    def start_indexes(self, created_ms: int) -> None:
        """The indexes of a segment without batches."""
        self.offsets = OffsetIndex(self.base_offset)
        self.times = TimeIndex(self.base_offset)
        self.aborted = ()
        self.largest_timestamp = NO_TIMESTAMP
        self.created_ms = created_ms

    def __repr__(self) -> str:
        return f"Segment({self.path(names.LOG)!r}, {self.size} bytes)"

    def path(self, suffix: str) -> str:
        return os.path.join(self.directory, names.offset_name(self.base_offset) + suffix + self.extra)

    def log_file(self) -> File:
        file = self.file
        if file is None:
            file = self.file = self.disk.open(self.path(names.LOG))
        return file

    def write(self, data: Buffer) -> int:
        """Appends the bytes; returns the position they start at. When it raises OSError the file has its previous
        size."""
        position = self.size
        try:
            (self.file or self.log_file()).write_at(position, data)
        except OSError:
            self._truncate_failed_write(position)
            raise
        self.size = position + len(data)
        return position

    def _truncate_failed_write(self, position: int) -> None:
        """The descriptor is closed too: it may be read-only although the file system no longer is."""
        file, self.file = self.file, None
        if file is not None:
            try:
                file.truncate(position)
            finally:
                file.close()

    def on_append(
        self, base_offset: int, last_offset: int, timestamp: int, position: int, size: int, interval: int
    ) -> bool:
        """A batch was written at `position`. It gets an index entry if `interval` bytes have passed since the last one;
        then the result is True."""
        if timestamp > self.largest_timestamp:  # type: ignore[operator]  # known for every segment that takes appends
            self.largest_timestamp = timestamp
            self.largest_timestamp_offset = last_offset
        indexed = self.bytes_since_last_entry > interval
        if indexed:
            self.offsets.add(last_offset, position)  # type: ignore[union-attr]
            self.times.add(self.largest_timestamp, self.largest_timestamp_offset)  # type: ignore[union-attr, arg-type]
            self.bytes_since_last_entry = 0
        elif position == 0:
            self.first_timestamp = timestamp
        self.bytes_since_last_entry += size
        recent = self.recent
        if recent is None:
            self.recent = array("q", (base_offset, last_offset, position))
        else:
            recent.extend((base_offset, last_offset, position))
            if len(recent) > 6 * _RECENT:
                del recent[: -3 * _RECENT]
        return indexed

    def is_spill_due(self) -> bool:
        assert self.offsets is not None
        unwritten = self.offsets.unwritten
        return unwritten >= _SPILL_ENTRIES or (unwritten > 0 and self.size - self._spilled_size >= _SPILL_BYTES)

    def spill(self) -> None:
        assert self.offsets is not None and self.times is not None
        self.offsets.spill(self.disk, self.path(names.OFFSET_INDEX))
        self.times.spill(self.disk, self.path(names.TIME_INDEX))
        self._spilled_size = self.size

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        """Adds an aborted transaction, in memory at once; when the write fails, the file lags behind."""
        entries = self.aborted or ()
        self.aborted = (*entries, aborted)
        transaction_index.append(self.disk, self.path(names.TRANSACTION_INDEX), len(entries), aborted)

    def install_indexes(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        """Any thread."""
        self.times = times
        if self.largest_timestamp is None:
            self.largest_timestamp_offset = times.last_offset
            self.largest_timestamp = times.last_timestamp
        # Last: where the loop sees the offset index, everything else is in place.
        self.offsets = offsets

    def is_index_full(self, index_bytes: int) -> bool:
        assert self.offsets is not None and self.times is not None
        return (
            self.offsets.count >= index_bytes // offset_index.ENTRY_SIZE
            or self.times.count >= index_bytes // time_index.ENTRY_SIZE - 1
        )

    def seal(self) -> None:
        """No more appends: add the last time index entry and write the indexes."""
        assert self.offsets is not None and self.times is not None
        if self.is_preallocated:
            self.log_file().truncate(self.size)
            self.is_preallocated = False
        self.add_last_time_entry()
        self.offsets.trim(self.disk, self.path(names.OFFSET_INDEX))
        self.times.trim(self.disk, self.path(names.TIME_INDEX))
        self.indexes_synced = False
        self._spilled_size = self.size

    def add_last_time_entry(self) -> None:
        """Makes the largest timestamp of the segment the last entry of the time index."""
        assert self.times is not None
        if self.largest_timestamp is not None and self.largest_timestamp >= 0:
            self.times.add(self.largest_timestamp, self.largest_timestamp_offset)

    def release(self) -> None:
        """Closes the file and drops what can be read again; what was verified stays so."""
        if self.file is not None:
            self.file.close()
            self.file = None
        self.recent = None
        self.hints = None
        if self.offsets is not None and self.times is not None:
            self.offsets.unload()
            self.times.unload()

    def sync(self) -> None:
        """Blocking, any thread. What was written before the call is on disk after it."""
        size, truncations = self.size, self.truncations
        if size <= self.synced_size:
            return
        # A handle of its own: the loop may close its handle at any moment.
        file = self.disk.open(self.path(names.LOG))
        try:
            file.sync()
        finally:
            file.close()
        if truncations == self.truncations:
            # Else the segment was truncated meanwhile, and what has been appended since is not what was synced.
            self.synced_size = max(self.synced_size, size)

    def rewrite(self) -> None:
        """Blocking, before the log is used. Write all bytes of the `.log` file again, so that a sync covers them."""
        file = self.disk.open(self.path(names.LOG))
        try:
            for position in range(0, self.size, _REWRITE_BYTES):
                file.write_at(position, file.read_at(position, min(_REWRITE_BYTES, self.size - position)))
        finally:
            file.close()
        self.synced_size = 0

    def sync_indexes(self) -> None:
        """Blocking, any thread. Syncs the indexes of a sealed segment."""
        if self.indexes_synced:
            return
        for suffix in (names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX):
            path = self.path(suffix)
            if self.disk.exists(path):
                file = self.disk.open(path)
                try:
                    file.sync()
                finally:
                    file.close()
        self.indexes_synced = True

    def is_synced(self) -> bool:
        return self.indexes_synced and self.size <= self.synced_size

    def verified_until(self, position: int) -> int:
        """The end of the verified range that holds `position`; `position` itself when there is none."""
        if position >= self.trusted_from:
            return self.size
        ranges = self.verified
        at = bisect_right(ranges, position, key=_start_of) - 1
        if at < 0 or ranges[at][1] <= position:
            return position
        end = ranges[at][1]
        return self.size if end >= self.trusted_from else end

    def mark_damaged(self, position: int, why: str) -> bool:
        """Any thread. A read has to stop here; False if that is known already."""
        if self.damage is not None and self.damage[0] == position:
            return False
        self.damage = (position, why)
        return True

    def add_verified(self, start: int, end: int) -> None:
        """Any thread; two at once may lose one of the ranges, which is then verified again."""
        ranges: list[tuple[int, int]] = []
        for known in self.verified:
            if known[1] < start or known[0] > end:
                ranges.append(known)
            else:
                start, end = min(start, known[0]), max(end, known[1])
        self.verified = tuple(sorted([*ranges, (start, end)]))

    def on_truncated(
        self,
        position: int,
        end_offset: int,
        largest_timestamp: tuple[int, int],
        aborted: tuple[AbortedTransaction, ...],
    ) -> None:
        """The file was truncated to this size: it ends before `end_offset` and has this largest (timestamp, offset) and
        these aborted transactions. Truncates the indexes."""
        assert self.offsets is not None and self.times is not None
        self._forget_from(position)
        self.size = position
        try:
            self.offsets.keep_before(end_offset)
            self.times.keep_before(end_offset)
        except NotLoaded:
            # Released meanwhile; without entries, a read walks from the start of the segment.
            self.offsets.clear()
            self.times.clear()
            self.times.set_last(b"")
        self.offsets.trim(self.disk, self.path(names.OFFSET_INDEX))
        self.times.trim(self.disk, self.path(names.TIME_INDEX))
        self.largest_timestamp, self.largest_timestamp_offset = largest_timestamp
        self.bytes_since_last_entry = position - self.offsets.floor_position(position)[1]
        self.aborted = aborted

    def _forget_from(self, position: int) -> None:
        self.verified = tuple((start, min(end, position)) for start, end in self.verified if start < position)
        self.trusted_from = min(self.trusted_from, position)
        self.truncations += 1
        self.synced_size = -1  # the truncation itself is to be synced
        self._spilled_size = min(self._spilled_size, position)
        self.recent = None
        self.hints = None
        if self.damage is not None and self.damage[0] >= position:
            self.damage = None

    def rename_files(self, extra: str) -> None:
        """Renames all files of the segment to this extra suffix (or none)."""
        for suffix in names.SEGMENT_SUFFIXES:
            old = self.path(suffix)
            new = old[: len(old) - len(self.extra)] + extra
            if suffix == names.LOG and self.file is not None:
                self.file.rename(new)
            elif self.disk.exists(old):
                self.disk.rename(old, new)
        self.extra = extra

    def remove(self) -> None:
        """Blocking. Removes the files; a reader that still holds a slice will fail."""
        if self.file is not None:
            self.file.close()
            self.file = None
        # A producer snapshot that was renamed to `.deleted` together with its segment is removed with it.
        renamed = (names.SNAPSHOT,) if self.extra == names.DELETED else ()
        for suffix in (*names.SEGMENT_SUFFIXES, *renamed):
            if self.disk.exists(self.path(suffix)):
                self.disk.remove(self.path(suffix))


def _start_of(span: tuple[int, int]) -> int:
    return span[0]
