"""XXH3 with 64 bits and seed 0, by its specification: Kafka stores such a hash of the subscribed topics with a group.

In plain Python, since a group's topics are hashed only when they change.
"""

from __future__ import annotations

import struct
from typing import Final

_MASK: Final = (1 << 64) - 1
_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_PRIME32_1: Final = 0x9E3779B1
_PRIME64_1: Final = 0x9E3779B185EBCA87
_PRIME64_2: Final = 0xC2B2AE3D27D4EB4F
_PRIME64_3: Final = 0x165667B19E3779F9
_MIX_1: Final = 0x165667919E3779F9
_MIX_2: Final = 0x9FB21C651E98DF25
_INITIAL: Final = (
    0xC2B2AE3D,
    _PRIME64_1,
    _PRIME64_2,
    _PRIME64_3,
    0x85EBCA77C2B2AE63,
    0x85EBCA77,
    0x27D4EB2F165667C5,
    _PRIME32_1,
)
_STRIPE: Final = 64
_STRIPES_PER_BLOCK: Final = 16
_LANES: Final = struct.Struct("<8Q")


def xxh3_64(data: bytes) -> int:
    size = len(data)
    if size > 240:
        return _hash_long(data)
    if size > 128:
        return _hash_to_240(data)
    if size > 16:
        return _hash_to_128(data)
    if size > 8:
        low = _word(data, 0) ^ _word(_SECRET, 24) ^ _word(_SECRET, 32)
        high = _word(data, size - 8) ^ _word(_SECRET, 40) ^ _word(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(size + swapped + high + _folded(low, high))
    if size >= 4:
        first, last = (int.from_bytes(data[at : at + 4], "little") for at in (0, size - 4))
        return _mix_short((last + (first << 32)) ^ _word(_SECRET, 8) ^ _word(_SECRET, 16), size)
    if size:
        combined = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        key = int.from_bytes(_SECRET[:4], "little") ^ int.from_bytes(_SECRET[4:8], "little")
        return _avalanche_64(combined ^ key)
    return _avalanche_64(_word(_SECRET, 56) ^ _word(_SECRET, 64))


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _folded(left: int, right: int) -> int:
    product = left * right
    return (product & _MASK) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value &= _MASK
    value ^= value >> 37
    value = value * _MIX_1 & _MASK
    return value ^ value >> 32


def _avalanche_64(value: int) -> int:
    value ^= value >> 33
    value = value * _PRIME64_2 & _MASK
    value ^= value >> 29
    value = value * _PRIME64_3 & _MASK
    return value ^ value >> 32


def _mix_short(value: int, size: int) -> int:
    value ^= _rotated(value, 49) ^ _rotated(value, 24)
    value = value * _MIX_2 & _MASK
    value ^= (value >> 35) + size
    value = value * _MIX_2 & _MASK
    return value ^ value >> 28


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _mix_16(data: bytes, at: int, secret_at: int) -> int:
    low = _word(data, at) ^ _word(_SECRET, secret_at)
    return _folded(low, _word(data, at + 8) ^ _word(_SECRET, secret_at + 8))


def _hash_to_128(data: bytes) -> int:
    size = len(data)
    total = size * _PRIME64_1
    for step in range((size - 1) // 32, -1, -1):
        total += _mix_16(data, 16 * step, 32 * step)
        total += _mix_16(data, size - 16 * (step + 1), 32 * step + 16)
    return _avalanche(total)


def _hash_to_240(data: bytes) -> int:
    size = len(data)
    total = size * _PRIME64_1 + sum(_mix_16(data, at, at) for at in range(0, 128, 16))
    total = _avalanche(total)
    total += sum(_mix_16(data, at, at - 128 + 3) for at in range(128, size // 16 * 16, 16))
    return _avalanche(total + _mix_16(data, size - 16, 136 - 17))


def _hash_long(data: bytes) -> int:
    lanes = list(_INITIAL)
    stripes = (len(data) - 1) // _STRIPE
    for stripe in range(stripes):
        _accumulate(lanes, data, _STRIPE * stripe, 8 * (stripe % _STRIPES_PER_BLOCK))
        if (stripe + 1) % _STRIPES_PER_BLOCK == 0:
            _scramble(lanes)
    _accumulate(lanes, data, len(data) - _STRIPE, len(_SECRET) - _STRIPE - 7)
    total = len(data) * _PRIME64_1
    for lane in range(0, 8, 2):
        key_at = 11 + 8 * lane
        total += _folded(lanes[lane] ^ _word(_SECRET, key_at), lanes[lane + 1] ^ _word(_SECRET, key_at + 8))
    return _avalanche(total)


def _accumulate(lanes: list[int], data: bytes, at: int, secret_at: int) -> None:
    words, keys = _LANES.unpack_from(data, at), _LANES.unpack_from(_SECRET, secret_at)
    for lane in range(8):
        key = words[lane] ^ keys[lane]
        lanes[lane ^ 1] = lanes[lane ^ 1] + words[lane] & _MASK
        lanes[lane] = lanes[lane] + (key & 0xFFFFFFFF) * (key >> 32) & _MASK


def _scramble(lanes: list[int]) -> None:
    keys = _LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE)
    for lane in range(8):
        value = lanes[lane]
        lanes[lane] = (value ^ value >> 47 ^ keys[lane]) * _PRIME32_1 & _MASK
