"""A range of a file, read only when the socket can send it."""

from __future__ import annotations

import errno
from collections.abc import Callable

import msgspec

from strandline.runtime.disk import Buffer, File


class FileSlice(msgspec.Struct, frozen=True):
    file: File
    position: int
    size: int
    on_failure: Callable[[OSError, str], object] | None = None
    """Called when the disk fails during the read, long after the slice was made."""

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        return self.file.read_at(self.position, self.size)

    def split(self, size: int) -> tuple[FileSlice, FileSlice]:
        """The first `size` bytes, and the rest."""
        return (
            FileSlice(self.file, self.position, size, self.on_failure),
            FileSlice(self.file, self.position + size, self.size - size, self.on_failure),
        )

    def failed(self, error: OSError) -> None:
        """A file that was removed or truncated meanwhile is no disk failure."""
        if self.on_failure is not None and error.errno not in (None, errno.ENOENT):
            self.on_failure(error, f"reading {self.size} bytes at {self.position} of {self.file.path}")


# An encoded message is a list of these, sent in order; slices are read as the socket drains.
Part = Buffer | FileSlice
