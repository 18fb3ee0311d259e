"""Variable-length integers: seven bits per byte, lowest first.

Records use the zigzag forms (`varint`, `varlong`). Their readers raise `CorruptBatch` when the bytes end first or the
number is longer than its type allows (5 bytes for 32 bits, 10 for 64); bits that do not fit the type are dropped, as in
Kafka's reader. Flexible messages use the unsigned form (`uvarint`) for lengths, counts and tags. Its readers raise
IndexError when the buffer ends first, and `OverlongVarint` when the number does not fit 32 bits.

Readers return the value and the position after it.
"""

from __future__ import annotations

from strandline.records.errors import CorruptBatch, OverlongVarint

Buffer = bytes | bytearray | memoryview

ONE_BYTE = tuple(bytes((value,)) for value in range(128))
"""Nearly every length is one byte long."""


def uvarint(value: int) -> bytes:
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    value = buffer[position]
    if value < 128:
        return value, position + 1
    return rest_of_uvarint(buffer, position + 1, value)


def rest_of_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Continues after a first byte that had its continuation bit set."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFF_FFFF:
                break
            return value, position
    raise OverlongVarint("an unsigned varint longer than 32 bits")


def varint_bytes(value: int) -> bytes:
    """Zigzag; serves 32 and 64 bits alike, since small numbers have the same bytes in both."""
    return uvarint((value << 1) ^ (value >> 63))


def append_varint(out: bytearray, value: int) -> None:
    out += uvarint((value << 1) ^ (value >> 63))


def read_varint(buffer: Buffer, position: int, end: int | None = None) -> tuple[int, int]:
    raw, position = _read(buffer, position, len(buffer) if end is None else end, 5, 0xFFFF_FFFF)
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(buffer: Buffer, position: int, end: int | None = None) -> tuple[int, int]:
    raw, position = _read(buffer, position, len(buffer) if end is None else end, 10, 0xFFFF_FFFF_FFFF_FFFF)
    return (raw >> 1) ^ -(raw & 1), position


def _read(buffer: Buffer, position: int, end: int, max_size: int, mask: int) -> tuple[int, int]:
    if end - position >= 2:
        byte = buffer[position]
        if byte < 0x80:
            return byte, position + 1
        second = buffer[position + 1]
        if second < 0x80:
            return byte & 0x7F | second << 7, position + 2
    value = 0
    shift = 0
    for index in range(position, min(end, position + max_size)):
        byte = buffer[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & mask, index + 1
        shift += 7
    raise CorruptBatch("a variable-length integer is incomplete or too long")
