"""Chooses the partition of a record: by Kafka's hash of the key or, without a key, the same one for a batch's worth.

A core. The hash is Kafka's variant of murmur2, so that a key maps to the same partition as with the Java producer.
"""

from __future__ import annotations

from random import Random

_MULTIPLIER = 0x5BD1_E995
_SEED = 0x9747_B28C
_MASK = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """Unsigned; equal to Java's result modulo 2**32."""
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = value * _MULTIPLIER & _MASK ^ word
    if length > whole:
        value ^= int.from_bytes(data[whole:], "little")
        value = value * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count


class Partitioner:
    """Records without a key stay on one partition until it has a batch's worth, so that batches are full (KIP-794)."""

    def __init__(self, random: Random, batch_bytes: int) -> None:
        self._random = random
        self._batch_bytes = batch_bytes
        self._sticky: dict[str, tuple[int, int]] = {}

    def partition(
        self, topic: str, key: bytes | None, size_bytes: int, partition_count: int, available: list[int]
    ) -> int:
        """`available` are the partitions with a leader; a record with a key goes to its partition in any case."""
        if key is not None:
            return partition_for_key(key, partition_count)
        current, used_bytes = self._sticky.get(topic, (-1, 0))
        if current not in available or used_bytes >= self._batch_bytes:
            choices = [each for each in available if each != current] or available or list(range(partition_count))
            current, used_bytes = self._random.choice(choices), 0
        self._sticky[topic] = current, used_bytes + size_bytes
        return current
