"""A hash of the topics that a group subscribes to, stored with the group epoch: another hash means that a topic was
created, deleted or got partitions, and the group epoch grows.

The value is private to a coordinator. After a failover to a broker that computes it in another way (Apache Kafka uses
XXH3) the group epoch grows once, and the new target assignment is the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.coordinator.consumer.topics import Topics
from strandline.records.checksum import crc32c


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """Zero when none of the topics exists."""
    known = [topic for name in sorted(names) if (topic := topics.by_name(name)) is not None]
    if not known:
        return 0
    data = b"".join(
        topic.name.encode() + b"\0" + topic.topic_id + topic.partition_count.to_bytes(4, "big") for topic in known
    )
    both = crc32c(data) << 32 | crc32c(data[::-1])
    return int.from_bytes(both.to_bytes(8, "big"), "big", signed=True)
