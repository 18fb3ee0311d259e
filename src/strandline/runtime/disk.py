"""The disk port. Calls are synchronous and small; those that may block (sync, cold reads, removal of large trees) go
through `runtime.offload`.

`File.read_cached` returns only what is in the page cache, so that the event loop can try before it offloads.
`File.write_at` writes everything or raises; the caller truncates what a failed write left behind.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections import OrderedDict
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    @property
    def path(self) -> str: ...
    def read_at(self, position: int, size: int) -> bytes: ...
    def read_cached(self, position: int, size: int) -> Buffer | None: ...
    def write_at(self, position: int, data: Buffer) -> None: ...
    def truncate(self, size: int) -> None: ...
    def reserve(self, size: int) -> None:
        """Allocates disk space for a file that will grow to this size, until it is truncated. Without effect on systems
        that do not support it."""
        ...

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
    """Replaces a file: after a power loss it is either unchanged or wholly new."""
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


def make_durable_directory(disk: Disk, path: str) -> None:
    """Blocking. Creates a directory and syncs its parent: only then does it survive a power loss."""
    if not disk.exists(path):
        disk.make_dirs(path)
        disk.sync_dir(os.path.dirname(path))


class SystemDisk:
    """Files of the operating system with a bounded number of descriptors: a handle reopens its file when needed.

    Any thread may use any handle. A descriptor is closed with its last reference (see _Descriptor), so that a thread
    never uses a number that has been given to another file.
    """

    def __init__(self, max_open_files: int = 4096) -> None:
        self._open_files: OrderedDict[SystemFile, None] = OrderedDict()
        self._max_open_files = max_open_files
        self._lock = threading.Lock()
        self._spare = bytearray()
        self._held_by_us = sys.getrefcount(self._spare)
        """The reference count of a buffer that nothing else holds: measured, since Python versions differ."""

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        file = SystemFile(self, path)
        file.reopen(os.O_CREAT if create else 0)
        return file

    def opened(self, file: SystemFile) -> None:
        with self._lock:
            self._open_files[file] = None
            self._open_files.move_to_end(file)
            while len(self._open_files) > self._max_open_files:
                oldest, _ = self._open_files.popitem(last=False)
                oldest.release()

    def closed(self, file: SystemFile) -> None:
        with self._lock:
            self._open_files.pop(file, None)
            file.release()

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

    def buffer(self, size: int) -> memoryview:
        """A buffer to read into. The previous buffer is reused when it is free: otherwise the kernel would clear fresh
        pages for every piece of a stream of large responses."""
        if size > len(self._spare) or sys.getrefcount(self._spare) != self._held_by_us:
            if size < _SPARED_BYTES:
                return memoryview(bytearray(size))
            self._spare = bytearray(size)
        return memoryview(self._spare)[:size]

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        import shutil  # late: it imports compression libraries, and a starting node removes no trees

        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def usage(self, path: str) -> tuple[int, int]:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize

    def lock(self, path: str) -> SystemDirectoryLock:
        return SystemDirectoryLock(path)


class _Descriptor:
    """An open descriptor. Each call in progress holds a reference; the last one released closes it."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class SystemFile:
    """One file. The descriptor may be closed between calls (see SystemDisk) and is reopened by the next."""

    __slots__ = ("_descriptor", "_disk", "_identity", "_path")

    def __init__(self, disk: SystemDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._descriptor: _Descriptor | None = None
        self._identity: tuple[int, int] | None = None

    @property
    def path(self) -> str:
        return self._path

    def reopen(self, flags: int = 0) -> _Descriptor:
        descriptor = _Descriptor(_open_for_writing_if_allowed(self._path, flags))
        status = os.fstat(descriptor.number)
        if self._identity is None:
            self._identity = (status.st_dev, status.st_ino)
        elif self._identity != (status.st_dev, status.st_ino):
            # The directory was renamed or removed meanwhile, and another file has the path.
            raise FileNotFoundError(errno.ENOENT, "another file has this name now", self._path)
        self._descriptor = descriptor
        self._disk.opened(self)
        return descriptor

    def release(self) -> None:
        self._descriptor = None

    def read_at(self, position: int, size: int) -> bytes:
        descriptor = self._descriptor or self.reopen()
        return os.pread(descriptor.number, size, position)

    def read_cached(self, position: int, size: int) -> Buffer | None:
        if not _CAN_READ_CACHED:
            return None
        descriptor = self._descriptor or self.reopen()
        buffer = self._disk.buffer(size)
        try:
            count = os.preadv(descriptor.number, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return None
            raise
        if count < size and position + count < self.size():
            return None
        return buffer if count == size else buffer[:count]

    def write_at(self, position: int, data: Buffer) -> None:
        descriptor = self._descriptor or self.reopen()
        written = os.pwrite(descriptor.number, data, position)
        if written != len(data):
            rest = memoryview(data)[written:]
            while rest:
                written = os.pwrite(descriptor.number, rest, position + len(data) - len(rest))
                rest = rest[written:]

    def truncate(self, size: int) -> None:
        descriptor = self._descriptor or self.reopen()
        os.ftruncate(descriptor.number, size)

    def reserve(self, size: int) -> None:
        if sys.platform != "linux":
            return
        import ctypes  # os.posix_fallocate would extend the file with zeros

        descriptor = self._descriptor or self.reopen()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fallocate64(descriptor.number, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size)) != 0:
            number = ctypes.get_errno()
            if number not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise OSError(number, os.strerror(number), self._path)

    def size(self) -> int:
        descriptor = self._descriptor or self.reopen()
        return os.fstat(descriptor.number).st_size

    def sync(self) -> None:
        descriptor = self._descriptor or self.reopen()
        if sys.platform == "darwin":
            import fcntl

            fcntl.fcntl(descriptor.number, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(descriptor.number)

    def rename(self, path: str) -> None:
        os.replace(self._path, path)
        self._path = path

    def close(self) -> None:
        self._disk.closed(self)


class SystemDirectoryLock:
    """The `.lock` file of a directory, held with flock so that the process releases it however it ends."""

    def __init__(self, path: str) -> None:
        import fcntl

        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        os.close(self._descriptor)


_CAN_READ_CACHED = hasattr(os, "RWF_NOWAIT")
_SPARED_BYTES = 64 * 1024
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE


def _open_for_writing_if_allowed(path: str, flags: int) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o644)
    except OSError as error:
        if flags or error.errno not in (errno.EROFS, errno.EACCES):
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
