"""aiokafka, which sends old versions of every request."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic


@pytest.mark.parametrize("idempotent", [False, True])
def test_produced_records_are_consumed_in_order(bootstrap: str, topic: str, idempotent: bool) -> None:
    asyncio.run(asyncio.wait_for(round_trip(bootstrap, topic, idempotent), 180))


async def round_trip(bootstrap: str, topic: str, idempotent: bool) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=idempotent, compression_type="gzip")
    await producer.start()
    sent = [await producer.send(topic, f"value {number}".encode(), partition=0) for number in range(300)]
    offsets = [(await future).offset for future in sent]
    await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    await consumer.seek_to_beginning()
    found: list[bytes] = []
    while len(found) < 300:
        for records in (await consumer.getmany(timeout_ms=1000)).values():
            found += [record.value for record in records]
    await consumer.stop()
    await admin.close()
    assert offsets == list(range(300))
    assert found == [f"value {number}".encode() for number in range(300)]
