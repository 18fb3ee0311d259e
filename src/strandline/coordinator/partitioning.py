"""The coordinator of a group or a transactional id is the leader of one partition of an internal topic."""

from __future__ import annotations

from typing import Final

GROUP_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"

_MIN_INT: Final = -(1 << 31)


def partition_for(key: str, partition_count: int) -> int:
    """Java's String.hashCode over UTF-16 code units, made non-negative as Kafka does it, modulo the partition count."""
    hashed = 0
    data = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    return (0 if signed == _MIN_INT else abs(signed)) % partition_count
