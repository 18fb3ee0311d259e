"""A file of fixed-size entries, for the offset and time indexes: the newest in memory, the rest on disk.

Owned by one segment. Appending makes no system call: entries collect in `_tail` and are written by `spill`, because
what an index loses in a crash is rebuilt from the log. The older part is loaded on demand into `_head`.

Threads: `load` may run in a thread while the event loop appends: it assigns `_head` once and touches nothing else. All
other methods belong to the event loop, or to the thread that opens the log.
"""

from __future__ import annotations

from strandline.runtime.disk import Disk

# Enough for consumers near the log end to be served without loading the file, few enough for 20,000 partitions.
_TAIL_ENTRIES = 2048


class NotLoaded(Exception):
    """The requested entries are on disk only: load them in a thread, then repeat the lookup."""


class IndexFile:
    __slots__ = ("_first", "_head", "_tail", "count", "entry_size", "written")

    def __init__(self, entry_size: int, count: int = 0) -> None:
        self.entry_size = entry_size
        self.count = count
        self.written = count
        """How many entries the file holds; the others are only in the tail."""
        self._head: bytes | None = None
        self._tail: bytearray | None = None
        self._first = count
        """Number of the first entry in the tail."""

    @property
    def unwritten(self) -> int:
        return self.count - self.written

    def append(self, entry: bytes) -> None:
        if self._tail is None:
            self._tail = bytearray()
            self._first = self.count
        self._tail += entry
        self.count += 1

    def in_memory(self) -> tuple[int, bytearray | bytes]:
        """(number of the first entry, entries) of the newest part."""
        if self._tail is None:
            return self.count, b""
        return self._first, self._tail

    def older(self) -> bytes:
        """All entries before those `in_memory`; raises NotLoaded when they are only on disk."""
        if self._first == 0 or self.count == 0:
            return b""
        head = self._head
        size = (self._first if self._tail is not None else self.count) * self.entry_size
        if head is None or len(head) < size:
            raise NotLoaded
        return head if len(head) == size else head[:size]

    def is_loaded(self) -> bool:
        try:
            self.older()
        except NotLoaded:
            return False
        return True

    def load(self, disk: Disk, path: str) -> None:
        """Blocking. Reads the older entries into memory."""
        size = self.written * self.entry_size
        if size == 0:
            return
        file = disk.open(path)
        try:
            self._head = file.read_at(0, size)
        finally:
            file.close()

    def unload(self) -> None:
        """Drops everything that can be read again; for idle logs."""
        self._head = None
        if self.written == self.count:
            self._tail = None
            self._first = self.count

    def spill(self, disk: Disk, path: str) -> None:
        """Writes the entries that are only in memory, and keeps only the newest there."""
        if self._tail is None or self.written == self.count:
            return
        size = self.entry_size
        file = disk.open(path, create=True)
        try:
            file.write_at(self.written * size, bytes(self._tail[(self.written - self._first) * size :]))
        finally:
            file.close()
        self.written = self.count
        if self.count - self._first > 2 * _TAIL_ENTRIES:
            # A new array: a thread may be searching the old one.
            self._tail = self._tail[-_TAIL_ENTRIES * size :]
            self._first = self.count - _TAIL_ENTRIES

    def trim(self, disk: Disk, path: str) -> None:
        """Writes everything and truncates the file behind it (padding, entries of a truncated part of the log)."""
        self.spill(disk, path)
        file = disk.open(path, create=True)
        try:
            if file.size() != self.count * self.entry_size:
                file.truncate(self.count * self.entry_size)
        finally:
            file.close()

    def truncate_file(self, disk: Disk, path: str, count: int) -> None:
        """Blocking, any thread. Truncates the file to `count` entries and syncs it."""
        if not disk.exists(path):
            return
        file = disk.open(path)
        try:
            if file.size() > count * self.entry_size:
                file.truncate(count * self.entry_size)
            file.sync()
        finally:
            file.close()

    def keep(self, count: int, older: bytes) -> None:
        """Drops all but the first `count` entries; `older` is what the method `older` returns."""
        if count >= self.count:
            return
        size = self.entry_size
        if self._tail is not None and count >= self._first:
            self._tail = self._tail[: (count - self._first) * size]
            self._head = older
        else:
            self._tail = bytearray(older[: count * size])
            self._first = 0
            self._head = None
        self.count = count
        self.written = min(self.written, count)

    def clear(self) -> None:
        self.keep(0, b"")

    def adopt(self, entries: bytes) -> None:
        """Takes these entries, which the file holds, as all entries of the index."""
        self.count = self.written = self._first = len(entries) // self.entry_size
        self._tail = None
        self._head = entries
