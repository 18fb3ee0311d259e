"""kafka-python, with its own choice of request versions."""

from __future__ import annotations

import time

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_produced_records_are_consumed_in_order(bootstrap: str, topic: str, codec: str | None) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(name=topic, num_partitions=1, replication_factor=1)])
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=10)
    futures = [producer.send(topic, f"value {number}".encode(), key=b"k") for number in range(300)]
    assert [future.get(60).offset for future in futures] == list(range(300))
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(found) < 300 and time.monotonic() < deadline:
        for records in consumer.poll(500).values():
            found += [record.value for record in records]
    consumer.close()
    admin.close()
    assert found == [f"value {number}".encode() for number in range(300)]


def test_offsets_and_topics_are_described(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(name=topic, num_partitions=2, replication_factor=1)])
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(5):
        producer.send(topic, str(number).encode(), partition=1)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert consumer.end_offsets(partitions) == {partitions[0]: 0, partitions[1]: 5}
    assert consumer.beginning_offsets(partitions) == {partitions[0]: 0, partitions[1]: 0}
    assert consumer.partitions_for_topic(topic) == {0, 1}
    consumer.close()
    described = admin.describe_topics([topic])
    assert len(described[0]["partitions"]) == 2
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()
