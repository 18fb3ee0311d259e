"""Record batches with fixed timestamps, and the Produce requests that carry them."""

from __future__ import annotations

from typing import Any

from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.records.batch import Record, encode_batch

# The timestamp of the first record of every batch: transcripts must not depend on the time of the run. Kafka looks up
# offsets by timestamp only within retention.ms, which is unlimited for the topics of scripts.
EPOCH_MS = 1_700_000_000_000


def records(count: int, *, first_ms: int = EPOCH_MS, size: int = 1, key: str | None = "k") -> list[Record]:
    """Records one millisecond apart."""
    return [
        Record(index, first_ms + index, None if key is None else f"{key}{index}".encode(), b"v" * size, ())
        for index in range(count)
    ]


def batch(count: int = 3, *, first_ms: int = EPOCH_MS, size: int = 1, **options: Any) -> bytearray:
    return encode_batch(records(count, first_ms=first_ms, size=size), **options)


def produce(
    name: str, data: bytes | bytearray | None, *, partition: int = 0, acks: int = -1, topic_id: Any = None
) -> ProduceRequest:
    topic = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=partition, records=data)])
    if topic_id is not None:
        topic.topic_id = topic_id
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[topic])
