"""One segment: a `.log` file and its indexes, named by the offset of its first batch.

Owned by one PartitionLog. The last segment of a log is active and takes appends; the others are sealed. A segment opens
its file when it is first needed and can put it down again (`rest`); what is known of the bytes is kept.

Threads: the event loop owns every field. A thread may call `sync`, `load_indexes` and `verify` on a segment it was
handed: each opens a file handle of its own, reads only what was written before, and ends with single assignments
(`synced_size`, `offsets`, `times`, `verified`, `damage`, `hints`) that the loop may see at any moment.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from typing import NamedTuple

from strandline.log import names, offset_index, time_index, transaction_index
from strandline.log.offset_index import OffsetIndex
from strandline.log.time_index import TimeIndex
from strandline.log.transaction_index import AbortedTransaction
from strandline.runtime.disk import Buffer, Disk, File

MAX_SPAN = (1 << 31) - 1
NO_TIMESTAMP = -1

# Index entries are written out when so many wait, or when the log has grown so much: it bounds what recovery reads.
_SPILL_ENTRIES = 512
_SPILL_BYTES = 16 << 20
_RECENT = 16


class Located(NamedTuple):
    """Where a batch begins and how many bytes it has; no bytes: there is no batch, the segment ends or is damaged."""

    position: int
    size: int
    base_offset: int = -1


_REWRITE_BYTES = 1 << 20


class Segment:
    __slots__ = (
        "_spilled_size",
        "aborted",
        "base_offset",
        "created_ms",
        "cuts",
        "damage",
        "directory",
        "disk",
        "extra",
        "file",
        "first_timestamp",
        "hints",
        "indexes_synced",
        "is_reserved",
        "largest_timestamp",
        "largest_timestamp_offset",
        "offsets",
        "recent",
        "size",
        "synced_size",
        "times",
        "trusted_from",
        "unindexed",
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
        # Aborted transactions; None until read from the file.
        self.aborted: tuple[AbortedTransaction, ...] | None = None
        self.largest_timestamp: int | None = None
        self.largest_timestamp_offset = base_offset
        # Of the first batch; what rolling by time counts from.
        self.first_timestamp = NO_TIMESTAMP
        self.created_ms = 0
        self.unindexed = 0
        self.cuts = 0
        self.synced_size = size
        # Room was set aside for the bytes to come.
        self.is_reserved = False
        self.indexes_synced = True
        self._spilled_size = size
        # Checksums are known to be good from here to the end (appended in this process), and in these ranges.
        self.trusted_from = size
        self.verified: tuple[tuple[int, int], ...] = ()
        self.damage: tuple[int, str] | None = None
        # Where batches are: the newest (base offset, last offset, position, …), and what readers asked for lately.
        self.recent: array[int] | None = None
        self.hints: dict[int, Located] | None = None

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, created_ms: int, extra: str = "") -> Segment:
        """A new, empty segment. A file in the way belongs to no log, its offsets were never reached: it is emptied."""
        segment = cls(disk, directory, base_offset, extra=extra)
        segment.begin(created_ms)
        for suffix in names.SEGMENT_SUFFIXES[1:]:
            if disk.exists(segment.path(suffix)):
                disk.remove(segment.path(suffix))
        segment.file = disk.open(segment.path(names.LOG), create=True)
        if segment.file.size():
            segment.file.truncate(0)
        segment.synced_size = -1
        return segment

    def reserve(self, size: int) -> None:
        """`preallocate`: room for the bytes to come, given back when the segment is sealed."""
        self.log().reserve(size)
        self.is_reserved = True

    def begin(self, created_ms: int) -> None:
        """Indexes of a segment that holds nothing yet."""
        self.offsets = OffsetIndex(self.base_offset)
        self.times = TimeIndex(self.base_offset)
        self.aborted = ()
        self.largest_timestamp = NO_TIMESTAMP
        self.created_ms = created_ms

    def __repr__(self) -> str:
        return f"Segment({self.path(names.LOG)!r}, {self.size} bytes)"

    def path(self, suffix: str) -> str:
        return os.path.join(self.directory, names.offset_name(self.base_offset) + suffix + self.extra)

    def log(self) -> File:
        file = self.file
        if file is None:
            file = self.file = self.disk.open(self.path(names.LOG))
        return file

    def write(self, data: Buffer) -> int:
        """Append the bytes; the position they begin at. Raises OSError and leaves the file as long as it was."""
        position = self.size
        try:
            (self.file or self.log()).write_at(position, data)
        except OSError:
            self._cut_failed_write(position)
            raise
        self.size = position + len(data)
        return position

    def _cut_failed_write(self, position: int) -> None:
        """The descriptor is given up too: it may be read-only although the file system no longer is."""
        file, self.file = self.file, None
        if file is not None:
            try:
                file.truncate(position)
            finally:
                file.close()

    def note(self, base_offset: int, last_offset: int, timestamp: int, position: int, size: int, interval: int) -> bool:
        """A batch was written at `position`: index it if it is time (then the answer is True), remember where it
        begins."""
        if timestamp > self.largest_timestamp:  # type: ignore[operator]  # known for every segment that takes appends
            self.largest_timestamp = timestamp
            self.largest_timestamp_offset = last_offset
        indexed = self.unindexed > interval
        if indexed:
            self.offsets.add(last_offset, position)  # type: ignore[union-attr]
            self.times.add(self.largest_timestamp, self.largest_timestamp_offset)  # type: ignore[union-attr, arg-type]
            self.unindexed = 0
        elif position == 0:
            self.first_timestamp = timestamp
        self.unindexed += size
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
        """In memory at once; the file may lag behind if the disk refuses."""
        entries = self.aborted or ()
        self.aborted = (*entries, aborted)
        transaction_index.append(self.disk, self.path(names.TRANSACTION_INDEX), len(entries), aborted)

    def is_index_full(self, index_bytes: int) -> bool:
        assert self.offsets is not None and self.times is not None
        return (
            self.offsets.count >= index_bytes // offset_index.ENTRY_SIZE
            or self.times.count >= index_bytes // time_index.ENTRY_SIZE - 1
        )

    def seal(self) -> None:
        """No more appends: a last time index entry, everything written, nothing held open."""
        assert self.offsets is not None and self.times is not None
        if self.is_reserved:
            self.log().truncate(self.size)
            self.is_reserved = False
        self.note_largest_timestamp()
        self.offsets.trim(self.disk, self.path(names.OFFSET_INDEX))
        self.times.trim(self.disk, self.path(names.TIME_INDEX))
        self.indexes_synced = False
        self._spilled_size = self.size

    def note_largest_timestamp(self) -> None:
        """A last entry for the time index, so that it alone tells the largest timestamp of the segment."""
        assert self.times is not None
        if self.largest_timestamp is not None and self.largest_timestamp >= 0:
            self.times.add(self.largest_timestamp, self.largest_timestamp_offset)

    def rest(self) -> None:
        """Put down the file and what can be read again; positions and checks that are known stay known."""
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
        size, cuts = self.size, self.cuts
        if size <= self.synced_size:
            return
        # A handle of its own: the loop's may be put down at any moment.
        file = self.disk.open(self.path(names.LOG))
        try:
            file.sync()
        finally:
            file.close()
        if cuts == self.cuts:
            # Else the segment was cut meanwhile, and what has been appended since is not what was synced.
            self.synced_size = max(self.synced_size, size)

    def write_again(self) -> None:
        """Blocking, before the log is used: all bytes of the `.log` file once more, so that a sync is about them."""
        file = self.disk.open(self.path(names.LOG))
        try:
            for position in range(0, self.size, _REWRITE_BYTES):
                file.write_at(position, file.read_at(position, min(_REWRITE_BYTES, self.size - position)))
        finally:
            file.close()
        self.synced_size = 0

    def sync_indexes(self) -> None:
        """Blocking, any thread, for a sealed segment."""
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
        """The end of the range of known good checksums that holds `position`; `position` itself when there is none."""
        if position >= self.trusted_from:
            return self.size
        ranges = self.verified
        at = bisect_right(ranges, position, key=_start_of) - 1
        if at < 0 or ranges[at][1] <= position:
            return position
        end = ranges[at][1]
        return self.size if end >= self.trusted_from else end

    def add_verified(self, start: int, end: int) -> None:
        """Any thread; two at once may lose one of the ranges, which is then checked again."""
        ranges: list[tuple[int, int]] = []
        for known in self.verified:
            if known[1] < start or known[0] > end:
                ranges.append(known)
            else:
                start, end = min(start, known[0]), max(end, known[1])
        self.verified = tuple(sorted([*ranges, (start, end)]))

    def forget_from(self, position: int) -> None:
        """The bytes from here on are gone or will be others."""
        self.verified = tuple((start, min(end, position)) for start, end in self.verified if start < position)
        self.trusted_from = min(self.trusted_from, position)
        # Even the cut itself wants to be synced.
        self.cuts += 1
        self.synced_size = -1
        self._spilled_size = min(self._spilled_size, position)
        self.recent = None
        self.hints = None
        if self.damage is not None and self.damage[0] >= position:
            self.damage = None

    def mark(self, extra: str) -> None:
        """Rename all files of the segment so that they carry this extra suffix (or none)."""
        for suffix in names.SEGMENT_SUFFIXES:
            old = self.path(suffix)
            new = old[: len(old) - len(self.extra)] + extra
            if suffix == names.LOG and self.file is not None:
                self.file.rename(new)
            elif self.disk.exists(old):
                self.disk.rename(old, new)
        self.extra = extra

    def remove(self) -> None:
        """Blocking. The files are gone; a reader that still holds a slice will fail."""
        if self.file is not None:
            self.file.close()
            self.file = None
        # A producer snapshot that was marked together with its segment goes together with it.
        marked = (names.SNAPSHOT,) if self.extra == names.DELETED else ()
        for suffix in (*names.SEGMENT_SUFFIXES, *marked):
            if self.disk.exists(self.path(suffix)):
                self.disk.remove(self.path(suffix))


def _start_of(span: tuple[int, int]) -> int:
    return span[0]
