"""Variable-length integers as records and flexible messages use them: seven bits per byte, lowest first.

`append_*` write to the end of a bytearray, `read_*` return the value and the position after it and raise `CorruptBatch`
when the bytes end first or the number is longer than its type allows (5 bytes for 32 bits, 10 for 64). Bits that do not
fit the type are dropped, as in Kafka's reader. Records use the zigzag forms (`varint`, `varlong`); sizes and tags of
flexible messages the plain one (`uvarint`).
"""

from __future__ import annotations

from strandline.records.errors import CorruptBatch

Buffer = bytes | bytearray | memoryview

_ONE_BYTE = tuple(bytes((n,)) for n in range(128))


def append_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def append_varint(out: bytearray, value: int) -> None:
    """Zigzag; serves 32 and 64 bits alike, since small numbers look the same in both."""
    append_uvarint(out, (value << 1) ^ (value >> 63))


def varint_bytes(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    if zigzag < 0x80:
        return _ONE_BYTE[zigzag]
    out = bytearray()
    append_uvarint(out, zigzag)
    return bytes(out)


def varint_size(value: int) -> int:
    zigzag = (value << 1) ^ (value >> 63)
    return max(1, (zigzag.bit_length() + 6) // 7)


def read_uvarint(buffer: Buffer, position: int, end: int | None = None) -> tuple[int, int]:
    return _read(buffer, position, len(buffer) if end is None else end, 5, 0xFFFF_FFFF)


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
    raise CorruptBatch("a variable-length integer is cut off or too long")
