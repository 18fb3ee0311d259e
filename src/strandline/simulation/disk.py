"""The disk port in memory: one process's access to a `Volume`, with injected faults and numbered operations.

Every call that changes the volume is an *operation* and has a number; a power loss can be placed at any of them. It is
raised as `PowerLoss` and unwinds the step; afterwards this disk is off and changes nothing, whatever the program still
tries. The next boot finds `Volume.after_power_loss`. Operations can be recorded in a journal, from which the volume at
any point of the run is rebuilt without running the program (see journal.py).
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable

import msgspec

from strandline.runtime.disk import Buffer
from strandline.simulation.journal import Journal, Operation
from strandline.simulation.pages import PAGE_BYTES
from strandline.simulation.process import ProcessEnded
from strandline.simulation.stepping import pause_here
from strandline.simulation.trace import Trace
from strandline.simulation.volume import DirectoryNode, FileNode, Volume

_UNLIMITED_BYTES = 1 << 40
_CHANGES = ("create", "write", "truncate", "sync", "rename", "remove", "make_dir", "sync_dir")


class PowerLoss(ProcessEnded):
    """The power was lost at this disk operation."""


class Fault(msgspec.Struct):
    """Lets the first `after` calls of these kinds on paths below `under` pass, then fails `times` of them (None: all)
    with the errno `code`."""

    kinds: tuple[str, ...]
    under: str
    code: int
    after: int = 0
    times: int | None = None
    triggered: bool = False

    def applies(self, kind: str, path: str) -> bool:
        if kind not in self.kinds or not (path == self.under or path.startswith(self.under.rstrip("/") + "/")):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
            if self.times < 0:
                return False
        self.triggered = True
        return True


class SimDisk:
    def __init__(
        self,
        volume: Volume,
        *,
        now_ms: Callable[[], int] = lambda: 0,
        trace: Trace | None = None,
        name: str = "disk",
        journal: Journal | None = None,
    ) -> None:
        self.volume = volume
        self.operations = 0
        self.syncs = 0
        self.lose_power_at: int | None = None
        self.off = False
        self.when_power_is_lost: Callable[[], None] | None = None
        self._now_ms = now_ms
        self._trace = trace
        self._name = name
        self._journal = journal
        self._faults: list[Fault] = []

    def fail(
        self, *kinds: str, under: str = "/", code: int = errno.EIO, after: int = 0, times: int | None = None
    ) -> Fault:
        """Kinds: lookup, read and those of operations; none means all. A write that fails leaves its first half."""
        fault = Fault(kinds or ("lookup", "read", *_CHANGES), under, code, after, times)
        self._faults.append(fault)
        return fault

    def make_read_only(self, under: str = "/") -> Fault:
        return self.fail(*_CHANGES, under=under, code=errno.EROFS)

    def remove_fault(self, fault: Fault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)

    def remove_all_faults(self) -> None:
        self._faults.clear()

    def switch_off(self) -> None:
        """The process that used this disk has ended: its locks are released, the volume stays."""
        self.off = True
        for path in [path for path, holder in self.volume.locks.items() if holder is self]:
            del self.volume.locks[path]

    def open(self, path: str, *, create: bool = False) -> SimFile:
        path = posixpath.normpath(path)
        self.check_access(path)
        if create and self.volume.find(path) is None:
            self.change(Operation("create", path=path))
        return SimFile(self, path, self.volume.file(path))

    def read(self, path: str) -> bytes:
        file = self.open(path)
        return file.read_at(0, file.size())

    def exists(self, path: str) -> bool:
        self.check_access(path)
        return self.volume.find(path) is not None

    def is_dir(self, path: str) -> bool:
        self.check_access(path)
        return isinstance(self.volume.find(path), DirectoryNode)

    def list(self, path: str) -> list[str]:
        self.check_access(path, "read")
        return sorted(self.volume.directory(path).entries)

    def size(self, path: str) -> int:
        self.check_access(path)
        return self.volume.file(path).size

    def modified_ms(self, path: str) -> int:
        self.check_access(path)
        return self.volume.node(path).modified_ms

    def make_dirs(self, path: str) -> None:
        path = posixpath.normpath(path)
        if self.is_dir(path):
            return
        missing = [path]
        while not self.exists(parent := posixpath.dirname(missing[-1])):
            missing.append(parent)
        for directory in reversed(missing):
            self.change(Operation("make_dir", path=directory))

    def rename(self, old: str, new: str) -> None:
        self.change(Operation("rename", path=posixpath.normpath(old), other=posixpath.normpath(new)))

    def remove(self, path: str) -> None:
        path = posixpath.normpath(path)
        if isinstance(self.volume.find(path), DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self.change(Operation("remove", path=path))

    def remove_tree(self, path: str) -> None:
        """One operation for each name: the power can be lost half-way through."""
        path = posixpath.normpath(path)
        for name in self.list(path):
            below = posixpath.join(path, name)
            if self.is_dir(below):
                self.remove_tree(below)
            else:
                self.remove(below)
        self.change(Operation("remove", path=path))

    def sync_dir(self, path: str) -> None:
        self.volume.directory(path)
        self.syncs += 1
        self.change(Operation("sync_dir", path=posixpath.normpath(path)))

    def usage(self, path: str) -> tuple[int, int]:
        self.check_access(path)
        capacity = self.volume.capacity_bytes
        total = _UNLIMITED_BYTES if capacity is None else capacity
        return total, max(0, total - self.volume.used_bytes())

    def lock(self, path: str) -> SimDirectoryLock:
        path = posixpath.normpath(path)
        self.open(path, create=True)
        if path in self.volume.locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self.volume.locks[path] = self
        return SimDirectoryLock(self, path)

    def check_access(self, path: str, kind: str = "lookup") -> None:
        """Called before every access that changes nothing."""
        if self.off:
            raise PowerLoss(path)
        if self._faults:
            self._raise_fault(kind, path)

    def change(self, operation: Operation) -> None:
        """The only way to change the volume: numbers, traces and records the operation, or loses the power at it."""
        pause_here()
        if self.off:
            raise PowerLoss(operation.path)
        if self.operations == self.lose_power_at:
            self.switch_off()
            if self._trace is not None:
                self._trace.note(f"{self._name}: power lost at operation {self.operations}")
            if self.when_power_is_lost is not None:
                self.when_power_is_lost()
            raise PowerLoss(operation.path)
        if self._faults:
            self._raise_change_fault(operation)
        self._perform(operation)

    def _perform(self, operation: Operation) -> None:
        operation.at_ms = self._now_ms()
        operation.perform(self.volume)  # an operation that raises has not happened and gets no number
        self.operations += 1
        if self._trace is not None:
            self._trace.note(f"{self._name}: {operation.describe()}", operation.data)
        if self._journal is not None:
            self._journal.operations.append(operation)

    def _raise_change_fault(self, operation: Operation) -> None:
        try:
            self._raise_fault(operation.kind, operation.path)
        except OSError:
            if operation.kind == "write":
                half = operation.data[: len(operation.data) // 2]
                self._perform(Operation("write", operation.path, operation.number, operation.position, half))
            elif operation.kind == "sync":
                self._perform(Operation("sync_failed", operation.path, operation.number))
            raise

    def _raise_fault(self, kind: str, path: str) -> None:
        for fault in self._faults:
            if fault.applies(kind, path):
                if self._trace is not None:
                    self._trace.note(f"{self._name}: {kind} {path} fails with {errno.errorcode[fault.code]}")
                raise OSError(fault.code, os.strerror(fault.code), path)


class SimFile:
    """A handle refers to its file, not to its name, like a file descriptor. A closed handle reopens its file by name,
    and only if the name still refers to it."""

    __slots__ = ("_closed", "_disk", "_node", "_path")

    def __init__(self, disk: SimDisk, path: str, node: FileNode) -> None:
        self._disk = disk
        self._path = path
        self._node = node
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    def read_at(self, position: int, size: int) -> bytes:
        self._disk.check_access(self._path, "read")
        node = self._open()
        if node.cold:
            node.cold.difference_update(range(position // PAGE_BYTES, (position + size) // PAGE_BYTES + 1))
        return node.read(position, size)

    def read_cached(self, position: int, size: int) -> bytes | None:
        self._disk.check_access(self._path)
        node = self._open()
        end = min(position + size, node.size)
        if node.cold and not node.cold.isdisjoint(range(position // PAGE_BYTES, -(-end // PAGE_BYTES))):
            return None
        return node.read(position, size)

    def write_at(self, position: int, data: Buffer) -> None:
        if len(data) == 0:
            return
        number = self._open().number
        fitting = self._disk.volume.room_for(self._node, position, len(data))
        if fitting:
            self._disk.change(Operation("write", self._path, number, position, bytes(data[:fitting])))
        if fitting < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)

    def truncate(self, size: int) -> None:
        self._disk.change(Operation("truncate", self._path, self._open().number, size))

    def reserve(self, size: int) -> None:
        """Ignored, as on a file system without fallocate: space is taken by what is written."""

    def size(self) -> int:
        self._disk.check_access(self._path)
        return self._open().size

    def sync(self) -> None:
        self._disk.syncs += 1
        self._disk.change(Operation("sync", self._path, self._open().number))

    def rename(self, path: str) -> None:
        self._disk.rename(self._path, path)
        self._path = posixpath.normpath(path)

    def close(self) -> None:
        self._closed = True

    def _open(self) -> FileNode:
        if self._closed:
            if self._disk.volume.find(self._path) is not self._node:
                raise FileNotFoundError(errno.ENOENT, "this name refers to another file, or to none", self._path)
            self._closed = False
        return self._node


class SimDirectoryLock:
    def __init__(self, holder: SimDisk, path: str) -> None:
        self._holder = holder
        self._path = path

    def release(self) -> None:
        if self._holder.volume.locks.get(self._path) is self._holder:
            del self._holder.volume.locks[self._path]
