"""A range of a file that stands for its bytes until the socket is ready for them."""

from __future__ import annotations

import msgspec

from strandline.runtime.disk import Buffer, File


class FileSlice(msgspec.Struct, frozen=True):
    file: File
    position: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        return self.file.read_at(self.position, self.size)


# What an encoded message is made of: sent in this order, slices read as the socket drains.
Part = Buffer | FileSlice
