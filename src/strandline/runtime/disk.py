"""The disk port. Calls are synchronous and small; whoever may block on one (sync, cold reads, removal of large trees)
sends it through `runtime.offload`.

`File.read_cached` answers only what is in memory already, so that the event loop can try before it offloads.
`File.write_at` writes everything or raises; what a failed write left behind is for the caller to truncate.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
from collections import OrderedDict
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    @property
    def path(self) -> str: ...
    def read_at(self, position: int, size: int) -> bytes: ...
    def read_cached(self, position: int, size: int) -> bytes | None: ...
    def write_at(self, position: int, data: Buffer) -> None: ...
    def truncate(self, size: int) -> None: ...
    def size(self) -> int: ...
    def sync(self) -> None: ...
    def rename(self, path: str) -> None: ...
    def close(self) -> None: ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File: ...
    def read(self, path: str) -> bytes: ...
    def exists(self, path: str) -> bool: ...
    def is_dir(self, path: str) -> bool: ...
    def list(self, path: str) -> list[str]: ...
    def size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int: ...
    def make_dirs(self, path: str) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def sync_dir(self, path: str) -> None: ...
    def usage(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume that holds `path`."""
        ...

    def lock(self, path: str) -> DirectoryLock:
        """Exclusive for as long as this process lives; raises BlockingIOError when another holds it."""
        ...


def write_atomically(disk: Disk, path: str, data: bytes) -> None:
    """The file is either as before or wholly new, whenever the power goes."""
    temporary = path + ".tmp"
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at(0, data)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_dir(os.path.dirname(path))


class SystemDisk:
    """Files of the operating system, with a bounded number of descriptors: a handle reopens its file when needed."""

    def __init__(self, max_open_files: int = 4096) -> None:
        self._open_files: OrderedDict[SystemFile, None] = OrderedDict()
        self._max_open_files = max_open_files

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        file = SystemFile(self, path)
        file.descriptor(os.O_CREAT if create else 0)
        return file

    def touched(self, file: SystemFile) -> None:
        self._open_files[file] = None
        self._open_files.move_to_end(file)
        while len(self._open_files) > self._max_open_files:
            oldest, _ = self._open_files.popitem(last=False)
            oldest.rest()

    def forgotten(self, file: SystemFile) -> None:
        self._open_files.pop(file, None)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def usage(self, path: str) -> tuple[int, int]:
        usage = shutil.disk_usage(path)
        return usage.total, usage.free

    def lock(self, path: str) -> SystemDirectoryLock:
        return SystemDirectoryLock(path)


class SystemFile:
    """One file. The descriptor may be closed between calls (see SystemDisk) and is opened again on the next."""

    def __init__(self, disk: SystemDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._descriptor = -1

    @property
    def path(self) -> str:
        return self._path

    def descriptor(self, flags: int = 0) -> int:
        if self._descriptor < 0:
            self._descriptor = _open_for_writing_if_allowed(self._path, flags)
            self._disk.touched(self)
        return self._descriptor

    def rest(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read_at(self, position: int, size: int) -> bytes:
        return os.pread(self.descriptor(), size, position)

    def read_cached(self, position: int, size: int) -> bytes | None:
        if not _CAN_READ_CACHED:
            return None
        buffer = bytearray(size)
        try:
            count = os.preadv(self.descriptor(), [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return None
            raise
        if count < size and position + count < self.size():
            return None
        return bytes(memoryview(buffer)[:count])

    def write_at(self, position: int, data: Buffer) -> None:
        written = os.pwrite(self.descriptor(), data, position)
        if written != len(data):
            rest = memoryview(data)[written:]
            while rest:
                written = os.pwrite(self.descriptor(), rest, position + len(data) - len(rest))
                rest = rest[written:]

    def truncate(self, size: int) -> None:
        os.ftruncate(self.descriptor(), size)

    def size(self) -> int:
        return os.fstat(self.descriptor()).st_size

    def sync(self) -> None:
        descriptor = self.descriptor()
        if sys.platform == "darwin":
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(descriptor)

    def rename(self, path: str) -> None:
        os.replace(self._path, path)
        self._path = path

    def close(self) -> None:
        self._disk.forgotten(self)
        self.rest()


class SystemDirectoryLock:
    """The `.lock` file of a directory, held with flock so that it dies with its process."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        os.close(self._descriptor)


_CAN_READ_CACHED = hasattr(os, "RWF_NOWAIT")


def _open_for_writing_if_allowed(path: str, flags: int) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o644)
    except OSError as error:
        if flags or error.errno not in (errno.EROFS, errno.EACCES):
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
