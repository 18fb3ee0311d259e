"""The five codecs of record batches, byte for byte as Kafka's clients expect them, with a limit on decompressed size.

- gzip: RFC 1952.
- snappy: xerial's framing (blocks of 32 KiB) when writing; when reading also one raw block, which some clients send.
- lz4: a frame of independent 64 KiB blocks when writing (Kafka's reader accepts no other), without checksums unless a
  level is given; any standard frame when reading.
- zstd: plain frames.

`decompress` allocates one output buffer of at most `limit_bytes` and lets the codec write into it; a codec that runs
out of room stops, so a small batch that decompresses to gigabytes costs the limit and no more. A codec also allocates
its window: up to 4 MiB for lz4; for zstd what the frame requires, up to 128 MiB of address space, of which only as much
becomes memory as was decompressed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

import cramjam

from strandline.records.errors import CorruptBatch, DecompressionLimit
from strandline.records.varint import Buffer

_Into = Callable[[Buffer, bytearray], int]

# For one batch, where the caller has no limit of its own.
DEFAULT_LIMIT_BYTES = 128 * 1024 * 1024


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# The names of compression.type; "producer" is not a codec.
CODEC_NAMES = {
    "uncompressed": Codec.NONE,
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

_GZIP_DEFAULT = 6
# Kafka's default level of lz4 stands for the fast compressor; every other level, higher or lower, for the slow one.
_LZ4_DEFAULT = 9
# Below this the library would use the fast compressor again.
_LZ4_LOWEST_SLOW = 3
_ZSTD_DEFAULT = 3

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024

# Magic, flags (version 1, independent blocks), block size 64 KiB, and the checksum of those two bytes.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK = 64 * 1024
_LZ4_STORED = 0x8000_0000

_FIRST_GUESS = 64 * 1024


def compress(codec: Codec, data: Buffer, level: int | None = None) -> Buffer:
    """Levels are those of Kafka's configs (gzip -1 and 1..9, lz4 1..17, zstd any); None is Kafka's default."""
    if codec == Codec.NONE:
        return data
    if codec == Codec.GZIP:
        gzip_level = _GZIP_DEFAULT if level is None or level < 0 else min(level, 9)
        return memoryview(cramjam.gzip.compress(data, gzip_level))
    if codec == Codec.SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec == Codec.LZ4:
        return _compress_lz4(memoryview(data), _LZ4_DEFAULT if level is None else level)
    return memoryview(cramjam.zstd.compress(data, _ZSTD_DEFAULT if level is None else level))


def decompress(codec: int, data: Buffer, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Buffer:
    """The decompressed bytes. Raises `DecompressionLimit` when they exceed the limit, `CorruptBatch` when `data` is
    malformed. Uncompressed data is returned as it is."""
    if codec == Codec.NONE:
        if len(data) > limit_bytes:
            raise DecompressionLimit(f"{len(data)} bytes are more than {limit_bytes}")
        return data
    if codec == Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), limit_bytes)
    if codec == Codec.GZIP:
        return _decompress_growing(cramjam.gzip.decompress_into, data, _gzip_size(data), limit_bytes)
    if codec == Codec.LZ4:
        return _decompress_growing(cramjam.lz4.decompress_into, data, None, limit_bytes)
    if codec == Codec.ZSTD:
        return _decompress_growing(cramjam.zstd.decompress_into, data, _zstd_size(data), limit_bytes)
    raise CorruptBatch(f"unknown codec {codec}")


def _compress_xerial(data: memoryview) -> bytearray:
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK])
        out += len(block).to_bytes(4, "big")
        out += memoryview(block)
    return out


def _compress_lz4(data: memoryview, level: int) -> bytearray | memoryview:
    if level != _LZ4_DEFAULT:
        compressor = cramjam.lz4.Compressor(max(level, _LZ4_LOWEST_SLOW), content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))
        return memoryview(compressor.finish())
    out = bytearray(_LZ4_HEADER)
    for start in range(0, len(data), _LZ4_BLOCK):
        plain = data[start : start + _LZ4_BLOCK]
        block = cramjam.lz4.compress_block(plain, store_size=False)
        if len(block) < len(plain):
            out += len(block).to_bytes(4, "little")
            out += memoryview(block)
        else:
            out += (len(plain) | _LZ4_STORED).to_bytes(4, "little")
            out += plain
    out += bytes(4)
    return out


def _decompress_snappy(data: memoryview, limit_bytes: int) -> bytearray:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _decompress_snappy_blocks([data], limit_bytes)
    blocks = []
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise CorruptBatch("the snappy header is incomplete")
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if size > len(data) - position:
            raise CorruptBatch("a snappy block is longer than the batch")
        blocks.append(data[position : position + size])
        position += size
    return _decompress_snappy_blocks(blocks, limit_bytes)


def _decompress_snappy_blocks(blocks: list[memoryview], limit_bytes: int) -> bytearray:
    """A block starts with its decompressed size: all are summed before anything is allocated."""
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        total = sum(sizes)
        if total > limit_bytes:
            raise DecompressionLimit(f"{total} bytes are more than {limit_bytes}")
        out = bytearray(total)
        room = memoryview(out)
        for block, size in zip(blocks, sizes, strict=True):
            written = cramjam.snappy.decompress_raw_into(block, room[:size])
            if written != size:
                raise CorruptBatch("a snappy block is shorter than it says")
            room = room[size:]
        return out
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy: {error}") from None


def _decompress_growing(into: _Into, data: Buffer, hint: int | None, limit_bytes: int) -> bytearray:
    """Tries a buffer of the size the data suggests; if it was too small, one of four times that, up to the limit. The
    hint comes from the sender and may be wrong in either direction, which costs another attempt."""
    size = min(limit_bytes, max(4 * len(data), _FIRST_GUESS) if hint is None else hint)
    while True:
        out = bytearray(size)
        try:
            written = into(data, out)
        except cramjam.DecompressionError as error:
            if str(error) != "failed to write whole buffer":
                raise CorruptBatch(str(error)) from None
        else:
            del out[written:]
            return out
        # Freed before the next is allocated: two buffers at once would exceed the limit.
        del out
        if size == limit_bytes:
            raise DecompressionLimit(f"the records decompress to more than {limit_bytes} bytes")
        size = min(limit_bytes, max(4 * size, _FIRST_GUESS))


def _gzip_size(data: Buffer) -> int | None:
    """The trailer holds the size modulo 2^32; deflate cannot shrink by more than about 1032."""
    if len(data) < 18:
        return None
    return min(int.from_bytes(data[-4:], "little"), 1032 * len(data))


def _zstd_size(data: Buffer) -> int | None:
    """The content size of the frame header, when the sender knew it."""
    if len(data) < 6:
        return None
    descriptor = data[4]
    single_segment = descriptor & 0x20
    width = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    if not width:
        return None
    start = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    if len(data) < start + width:
        return None
    return int.from_bytes(data[start : start + width], "little") + (256 if width == 2 else 0)
