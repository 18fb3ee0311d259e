"""The content of a simulated disk: what is in the page cache, what is on the medium, and what a power loss leaves.

Processes access it through `SimDisk`; a volume outlives processes. The model is a journalling file system such as ext4
(data=ordered), read pessimistically, so that it guarantees nothing which POSIX does not:

- *File data and size* are durable after `sync` of that file. Before that, a power loss leaves any prefix of the changes
  since the last sync, and of the writes after that prefix (up to the next truncation, which is a barrier, since it goes
  through the journal) any subset of their 512-byte sectors. Lost sectors below the new size read as before, or as zeros
  where there was nothing before. The new size may be that of the prefix, of the last sector kept, or of the whole.
- *Directory entries* (create, rename, remove, of files and directories) are durable after `sync_dir` of their
  directory; syncing a file does not guarantee its name. Before that, any prefix of all name changes survives, since
  they go through one journal; only the name of a file that was synced under it may be durable ahead of others (as on
  btrfs). A rename is one change: both names, or neither.
- A *failed sync* leaves the cache as it is and marks it clean: later syncs do not write the data, unless its page is
  written again. (This is what Linux does, and why a failed sync must never be retried.)

Pages are immutable values shared between the cache, the medium and the volume found after a power loss, so that a
volume of megabytes is copied in microseconds and sparse files cost nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from enum import Enum
from random import Random

import msgspec

from strandline.simulation.pages import PAGE_BYTES, Pages, pages_up_to, read_pages, truncate_pages, write_pages

SECTOR_BYTES = 512


class Write(msgspec.Struct, frozen=True):
    position: int
    data: bytes


class Truncate(msgspec.Struct, frozen=True):
    size: int


class UnsyncedChanges(Enum):
    """What a power loss leaves of changes that were not synced."""

    LOST = "lost"
    KEPT = "kept"
    PREFIX = "prefix"
    MIXED = "mixed"


class FileNode:
    """One file: its cached content, its durable content, and the ordered changes between them."""

    __slots__ = (
        "cold",
        "durable_pages",
        "durable_size",
        "modified_ms",
        "number",
        "pages",
        "pending",
        "rewrites",
        "size",
        "synced_at",
    )

    def __init__(self, number: int, now_ms: int) -> None:
        self.number = number
        self.pages: Pages = {}
        self.size = 0
        self.durable_pages: Pages = {}
        self.durable_size = 0
        self.pending: list[Write | Truncate] = []
        self.modified_ms = now_ms
        self.rewrites = 0
        """How often existing content was overwritten or truncated: what was read before is out of date."""
        self.synced_at = -1
        """The volume's `name_changes` at the last sync."""
        self.cold: set[int] = set()
        """Pages that are on the medium but not in the page cache."""

    def read(self, position: int, size: int) -> bytes:
        return read_pages(self.pages, self.size, position, size)

    def write(self, position: int, data: bytes, now_ms: int) -> None:
        self.pending.append(Write(position, data))
        self.rewrites += position < self.size
        write_pages(self.pages, position, data)
        self.size = max(self.size, position + len(data))
        self.modified_ms = now_ms

    def truncate(self, size: int, now_ms: int) -> None:
        self.pending.append(Truncate(size))
        self.rewrites += 1
        truncate_pages(self.pages, size)
        self.size = size
        self.modified_ms = now_ms

    def sync(self) -> None:
        for page in self._dirty_pages():
            if page in self.pages:
                self.durable_pages[page] = self.pages[page]
            else:
                self.durable_pages.pop(page, None)
        self.durable_size = self.size
        self.pending.clear()

    def sync_failed(self) -> None:
        self.pending.clear()

    def certain_size(self) -> int:
        """How many bytes from the start of the file are the same after any possible power loss."""
        size = min(self.durable_size, self.size)
        for change in self.pending:
            size = min(size, change.position if isinstance(change, Write) else change.size)
        for page in range(pages_up_to(size)):
            # A failed sync leaves them different with nothing pending.
            cached, durable = self.pages.get(page), self.durable_pages.get(page)
            if cached is not durable and not _same_prefix(cached or b"", durable or b"", size - page * PAGE_BYTES):
                return page * PAGE_BYTES
        return size

    def _dirty_pages(self) -> Iterator[int]:
        for change in self.pending:
            if isinstance(change, Write):
                yield from range(change.position // PAGE_BYTES, pages_up_to(change.position + len(change.data)))
            else:
                # Everything beyond the new size, including the page that contains it.
                yield from [page for page in self.durable_pages if page >= change.size // PAGE_BYTES]

    def after_power_loss(self, unsynced: UnsyncedChanges, random: Random) -> FileNode:
        pages, size = dict(self.durable_pages), self.durable_size
        if self.pending:
            count = {UnsyncedChanges.LOST: 0, UnsyncedChanges.KEPT: len(self.pending)}.get(unsynced)
            kept = random.randint(0, len(self.pending)) if count is None else count
            for change in self.pending[:kept]:
                size = _apply(pages, size, change)
            if unsynced is UnsyncedChanges.MIXED:
                size = self._keep_some_sectors(pages, size, kept, random)
        found = FileNode(self.number, self.modified_ms)
        found.pages, found.size = pages, size
        found.durable_pages, found.durable_size = dict(pages), size
        found.cold = set(pages)
        return found

    def _keep_some_sectors(self, pages: Pages, size: int, kept: int, random: Random) -> int:
        """Keeps a random subset of the sectors written after the first `kept` changes. Returns the file's size."""
        later: list[Write] = []
        for change in self.pending[kept:]:
            if not isinstance(change, Write):
                break
            later.append(change)
        written, written_size = dict(pages), size
        sectors: dict[int, None] = {}
        for write in later:
            written_size = _apply(written, written_size, write)
            first = write.position // SECTOR_BYTES
            sectors.update(dict.fromkeys(range(first, -(-(write.position + len(write.data)) // SECTOR_BYTES))))
        share = random.random()
        reached = size
        for sector in sectors:
            if random.random() < share:
                start = sector * SECTOR_BYTES
                data = read_pages(written, written_size, start, SECTOR_BYTES)
                write_pages(pages, start, data)
                reached = max(reached, start + len(data))
        found_size = random.choice((size, reached, written_size))
        truncate_pages(pages, found_size)
        return found_size


class DirectoryNode:
    __slots__ = ("durable", "entries", "modified_ms")

    def __init__(self, now_ms: int) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.modified_ms = now_ms


Node = FileNode | DirectoryNode


class EntryChange:
    """An atomic change of names: each refers to its node from now on, or to nothing (None)."""

    __slots__ = ("directories", "keys", "names", "order")

    def __init__(self, names: tuple[tuple[DirectoryNode, str, Node | None], ...], order: int) -> None:
        self.names = names
        self.order = order
        self.keys = frozenset((id(directory), name) for directory, name, _ in names)
        self.directories = frozenset(id(directory) for directory, _, _ in names)

    def was_synced(self) -> bool:
        """Whether the file was synced under its new name."""
        return any(isinstance(node, FileNode) and node.synced_at > self.order for _, _, node in self.names)


class Volume:
    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        """None: unlimited."""
        self.root = DirectoryNode(0)
        self.locks: dict[str, object] = {}
        """Path → the disk that holds the lock."""
        self._pending: list[EntryChange] = []
        self._files: dict[int, FileNode] = {}
        self._numbers = 0
        self._changes = 0

    @property
    def name_changes(self) -> int:
        """Increases with every create, rename and remove."""
        return self._changes

    def find(self, path: str) -> Node | None:
        node: Node = self.root
        for name in path.split("/"):
            if not name or name == ".":
                continue
            if not isinstance(node, DirectoryNode):
                return None
            found = node.entries.get(name)
            if found is None:
                return None
            node = found
        return node

    def node(self, path: str) -> Node:
        node = self.find(path)
        if node is None:
            head = path
            while head not in ("", "/"):
                head = os.path.dirname(head)
                if isinstance(self.find(head), FileNode):
                    raise _error(errno.ENOTDIR, path)
            raise _error(errno.ENOENT, path)
        return node

    def file(self, path: str) -> FileNode:
        node = self.node(path)
        if isinstance(node, DirectoryNode):
            raise _error(errno.EISDIR, path)
        return node

    def directory(self, path: str) -> DirectoryNode:
        node = self.node(path)
        if not isinstance(node, DirectoryNode):
            raise _error(errno.ENOTDIR, path)
        return node

    def file_number(self, number: int) -> FileNode:
        return self._files[number]

    def sync(self, file: FileNode) -> None:
        file.sync()
        file.synced_at = self._changes

    def used_bytes(self) -> int:
        return sum(len(file.pages) for file in _files_below(self.root)) * PAGE_BYTES

    def room_for(self, file: FileNode, position: int, size: int) -> int:
        """How many of the bytes fit into pages that the file has already and into free pages."""
        if self.capacity_bytes is None:
            return size
        free = max(0, self.capacity_bytes - self.used_bytes()) // PAGE_BYTES
        for page in range(position // PAGE_BYTES, pages_up_to(position + size)):
            if page not in file.pages:
                if free == 0:
                    return max(0, page * PAGE_BYTES - position)
                free -= 1
        return size

    def create(self, path: str, now_ms: int) -> FileNode:
        directory, name = self._parent(path)
        self._numbers += 1
        file = self._files[self._numbers] = FileNode(self._numbers, now_ms)
        self._change((directory, name, file), now_ms=now_ms)
        return file

    def make_dir(self, path: str, now_ms: int) -> None:
        directory, name = self._parent(path)
        if name in directory.entries:
            raise _error(errno.EEXIST, path)
        self._change((directory, name, DirectoryNode(now_ms)), now_ms=now_ms)

    def rename(self, old: str, new: str, now_ms: int) -> None:
        directory, name = self._parent(old)
        target, new_name = self._parent(new)
        node = self.node(old)
        replaced = target.entries.get(new_name)
        if new.startswith(old + "/"):
            raise _error(errno.EINVAL, old)
        if replaced is node:
            return
        if old.startswith(new + "/"):
            raise _error(errno.ENOTEMPTY, old)
        if isinstance(replaced, DirectoryNode) and not isinstance(node, DirectoryNode):
            raise _error(errno.EISDIR, old)
        if isinstance(replaced, FileNode) and isinstance(node, DirectoryNode):
            raise _error(errno.ENOTDIR, old)
        if isinstance(replaced, DirectoryNode) and replaced.entries:
            raise _error(errno.ENOTEMPTY, old)
        self._change((directory, name, None), (target, new_name, node), now_ms=now_ms)

    def remove(self, path: str, now_ms: int) -> None:
        directory, name = self._parent(path)
        node = self.node(path)
        if isinstance(node, DirectoryNode) and node.entries:
            raise _error(errno.ENOTEMPTY, path)
        self._change((directory, name, None), now_ms=now_ms)

    def sync_dir(self, path: str) -> None:
        """Makes this directory's name changes durable, with the earlier changes that they depend on."""
        directory = self.directory(path)
        wanted = id(directory)
        needed: set[tuple[int, str]] = set()
        durable, left = [], []
        for change in reversed(self._pending):
            if wanted in change.directories or not needed.isdisjoint(change.keys):
                needed |= change.keys
                durable.append(change)
            else:
                left.append(change)
        for change in reversed(durable):
            for touched, name, node in change.names:
                _set(touched.durable, name, node)
        self._pending = left[::-1]

    def after_power_loss(self, random: Random, overall: UnsyncedChanges | None = None) -> Volume:
        """The volume that the next boot finds; this one is not changed."""
        if overall is None:
            # Most bugs show when everything or nothing is lost, which independent draws would rarely produce.
            overall = random.choices((UnsyncedChanges.LOST, UnsyncedChanges.KEPT, UnsyncedChanges.MIXED), (3, 1, 6))[0]
        entries = {id(node): dict(node.durable) for node in self._directories()}
        for change in self._surviving(overall, random):
            for touched, name, node in change.names:
                _set(entries[id(touched)], name, node)
        found = Volume(self.capacity_bytes)
        found._numbers = self._numbers
        found._adopt(self.root, found.root, entries, overall, random)
        return found

    def _surviving(self, overall: UnsyncedChanges, random: Random) -> list[EntryChange]:
        unsynced = random.choice(tuple(UnsyncedChanges)) if overall is UnsyncedChanges.MIXED else overall
        if unsynced is UnsyncedChanges.LOST:
            return []
        if unsynced is UnsyncedChanges.KEPT:
            return self._pending
        if unsynced is UnsyncedChanges.PREFIX:
            return self._pending[: random.randint(0, len(self._pending))]
        kept = random.randint(0, len(self._pending))
        surviving, lost = self._pending[:kept], self._pending[kept:]
        missing: set[tuple[int, str]] = set()
        for change in lost:
            if change.was_synced() and missing.isdisjoint(change.keys) and random.random() < 0.5:
                surviving.append(change)
            else:
                missing |= change.keys
        return surviving

    def _adopt(
        self,
        old: DirectoryNode,
        new: DirectoryNode,
        entries: dict[int, dict[str, Node]],
        overall: UnsyncedChanges,
        random: Random,
    ) -> None:
        new.modified_ms = old.modified_ms
        for name, node in entries[id(old)].items():
            if isinstance(node, FileNode):
                unsynced = (
                    random.choice(tuple(UnsyncedChanges))
                    if overall is UnsyncedChanges.MIXED and node.pending
                    else overall
                )
                found: Node = node.after_power_loss(unsynced, random)
                assert isinstance(found, FileNode)
                self._files[found.number] = found
            else:
                found = DirectoryNode(node.modified_ms)
                self._adopt(node, found, entries, overall, random)
            new.entries[name] = new.durable[name] = found

    def _directories(self) -> Iterator[DirectoryNode]:
        """Every directory reachable in the cache, on the medium, or through a pending change."""
        seen: set[int] = set()
        waiting: list[Node | None] = [self.root]
        waiting += [
            node for change in self._pending for touched, _, target in change.names for node in (touched, target)
        ]
        while waiting:
            node = waiting.pop()
            if isinstance(node, DirectoryNode) and id(node) not in seen:
                seen.add(id(node))
                yield node
                waiting += node.entries.values()
                waiting += node.durable.values()

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        head, _, name = path.rstrip("/").rpartition("/")
        return self.directory(head or "/"), name

    def _change(self, *names: tuple[DirectoryNode, str, Node | None], now_ms: int) -> None:
        self._pending.append(EntryChange(names, self._changes))
        self._changes += 1
        for directory, name, node in names:
            _set(directory.entries, name, node)
            directory.modified_ms = now_ms


def _same_prefix(first: bytes, second: bytes, size: int) -> bool:
    """Compares pages, whose missing bytes read as zeros."""
    size = min(size, PAGE_BYTES)
    return first[:size].ljust(size, b"\0") == second[:size].ljust(size, b"\0")


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def _files_below(directory: DirectoryNode) -> Iterator[FileNode]:
    for node in directory.entries.values():
        if isinstance(node, FileNode):
            yield node
        else:
            yield from _files_below(node)


def _set(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _apply(pages: Pages, size: int, change: Write | Truncate) -> int:
    if isinstance(change, Write):
        write_pages(pages, change.position, change.data)
        return max(size, change.position + len(change.data))
    truncate_pages(pages, change.size)
    return change.size
