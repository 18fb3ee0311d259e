"""A hash of the topics that a group subscribes to, stored with the group epoch, as Kafka computes it.

Another hash means that a topic was created or deleted, got partitions, or has replicas in other racks: the group epoch
grows.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from strandline.coordinator.consumer.topics import Racks, SubscribedTopic, Topics
from strandline.coordinator.consumer.xxh3 import xxh3_64

_VERSION = b"\0"


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """Zero when none of the topics exists."""
    known = [topic for name in sorted(names) if (topic := topics.by_name(name)) is not None]
    if not known:
        return 0
    return _signed(xxh3_64(b"".join(topic_hash(topic, topics.racks(topic)) for topic in known)))


@lru_cache(maxsize=10_000)
def topic_hash(topic: SubscribedTopic, racks: Racks) -> bytes:
    """Eight bytes, little-endian, as everything here."""
    parts = [
        _VERSION,
        topic.topic_id[7::-1],
        topic.topic_id[:7:-1],
        _string(topic.name),
        _number(topic.partition_count),
    ]
    for partition in range(topic.partition_count):
        parts.append(_number(partition))
        for rack in sorted(racks[partition]) if racks else ():
            parts += [_number(len(rack)), _string(rack)]
    return xxh3_64(b"".join(parts)).to_bytes(8, "little")


def _number(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _string(text: str) -> bytes:
    return text.encode("utf-16-le") + _number(len(text))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
