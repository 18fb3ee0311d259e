"""A range of a file that stands for its bytes until the socket is ready for them."""

from __future__ import annotations

import errno
from collections.abc import Callable

import msgspec

from strandline.runtime.disk import Buffer, File


class FileSlice(msgspec.Struct, frozen=True):
    file: File
    position: int
    size: int
    # Whoever made the slice is gone when it is read: this is where a failing disk is told to him.
    on_failure: Callable[[OSError, str], object] | None = None

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        return self.file.read_at(self.position, self.size)

    def split(self, size: int) -> tuple[FileSlice, FileSlice]:
        """Its first bytes, and the others."""
        return (
            FileSlice(self.file, self.position, size, self.on_failure),
            FileSlice(self.file, self.position + size, self.size - size, self.on_failure),
        )

    def failed(self, error: OSError) -> None:
        """A file that was removed or cut short meanwhile is no failure of the disk."""
        if self.on_failure is not None and error.errno not in (None, errno.ENOENT):
            self.on_failure(error, f"reading {self.size} bytes at {self.position} of {self.file.path}")


# What an encoded message is made of: sent in this order, slices read as the socket drains.
Part = Buffer | FileSlice
