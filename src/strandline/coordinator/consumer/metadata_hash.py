"""A hash of the topics that a group subscribes to, stored with the group epoch: another hash means that a topic was
created, deleted or got partitions, and the group epoch grows.

The value is private to a coordinator. After a failover to a broker that computes it in another way (Apache Kafka uses
XXH3) the group epoch grows once, and the new target assignment is the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.coordinator.consumer.topics import Topics


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """Zero when none of the topics exists."""
    from hashlib import blake2b  # slow to load, and a node starts without consumer groups

    known = [topic for name in sorted(names) if (topic := topics.by_name(name)) is not None]
    if not known:
        return 0
    digest = blake2b(digest_size=8)
    for topic in known:
        name = topic.name.encode()
        digest.update(len(name).to_bytes(4, "big") + name + topic.topic_id + topic.partition_count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
