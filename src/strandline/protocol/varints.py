"""Unsigned varints: lengths, counts and tags of the flexible versions (LEB128, at most five bytes)."""

from __future__ import annotations

from typing import Final

from strandline.protocol.errors import MalformedMessage
from strandline.runtime.disk import Buffer

# Nearly every length is one byte long.
ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))


def uvarint(value: int) -> bytes:
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The value and the position after it; IndexError where the buffer ends."""
    value = buffer[position]
    if value < 128:
        return value, position + 1
    return rest_of_uvarint(buffer, position + 1, value)


def rest_of_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Goes on after a first byte that had its continuation bit set."""
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise MalformedMessage("an unsigned varint longer than 32 bits")
