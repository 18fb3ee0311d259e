"""A real disk with injected failures: of an operation, on files with a suffix, with an errno, a number of times."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

from strandline.runtime.disk import Buffer, SystemDisk, SystemFile


@dataclass
class Failure:
    operation: str
    suffix: str
    code: int
    times: int


class FailingDisk(SystemDisk):
    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Failure] = []
        self.opened_paths: list[str] = []
        self.synced_paths: list[str] = []
        self.on_sync: Callable[[], object] | None = None
        """Called once, by the next sync of a file."""

    def fail(self, operation: str, suffix: str = "", code: int = errno.EIO, times: int = 1 << 30) -> None:
        self.failures.append(Failure(operation, suffix, code, times))

    def mend(self) -> None:
        self.failures.clear()

    def strike(self, operation: str, path: str) -> None:
        for failure in self.failures:
            if failure.operation == operation and path.endswith(failure.suffix) and failure.times > 0:
                failure.times -= 1
                raise OSError(failure.code, os.strerror(failure.code), path)

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        self.strike("open", path)
        self.opened_paths.append(path)
        file = FailingFile(self, path)
        file.reopen(os.O_CREAT if create else 0)
        return file

    def rename(self, old: str, new: str) -> None:
        self.strike("rename", new)
        super().rename(old, new)

    def list(self, path: str) -> list[str]:
        self.strike("list", path)
        return super().list(path)

    def sync_dir(self, path: str) -> None:
        self.strike("sync_dir", path)
        self.synced_paths.append(path)
        super().sync_dir(path)


class FailingFile(SystemFile):
    __slots__ = ("_failing",)

    def __init__(self, disk: FailingDisk, path: str) -> None:
        super().__init__(disk, path)
        self._failing = disk

    def write_at(self, position: int, data: Buffer) -> None:
        try:
            self._failing.strike("write", self.path)
        except OSError:
            # As on a disk that becomes full: half of the data is written.
            super().write_at(position, bytes(data)[: len(data) // 2])
            raise
        super().write_at(position, data)

    def read_at(self, position: int, size: int) -> bytes:
        self._failing.strike("read", self.path)
        return super().read_at(position, size)

    def read_cached(self, position: int, size: int) -> bytes | None:
        self._failing.strike("read", self.path)
        return super().read_cached(position, size)

    def truncate(self, size: int) -> None:
        self._failing.strike("truncate", self.path)
        super().truncate(size)

    def sync(self) -> None:
        self._failing.strike("sync", self.path)
        on_sync, self._failing.on_sync = self._failing.on_sync, None
        if on_sync is not None:
            on_sync()
        self._failing.synced_paths.append(self.path)
        super().sync()
