"""Load by librdkafka in a process: `python -m bench.librdkafka_load produce|consume BOOTSTRAP TOPIC RECORDS SIZE`.

Prints records per second. The Python code around librdkafka limits the rate, so the line compares the rate of a Python
user, and its CPU cost on the server.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition


def produce(bootstrap: str, topic: str, records: int, size: int) -> float:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 131072})
    payload = b"x" * size
    began = time.perf_counter()
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, payload)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(120):
        raise SystemExit("not all records were acknowledged")
    return records / (time.perf_counter() - began)


def consume(bootstrap: str, topic: str, records: int, size: int) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            # The wait of the client when its queue is full; the default of a second would dominate the result.
            "fetch.queue.backoff.ms": 10,
        }
    )
    partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    seen = 0
    began = time.perf_counter()
    while seen < records:
        seen += len(consumer.consume(10_000, timeout=5))
    rate = records / (time.perf_counter() - began)
    consumer.close()
    return rate


if __name__ == "__main__":
    verb, bootstrap, topic, records, size = sys.argv[1:]
    work = {"produce": produce, "consume": consume}[verb]
    print(f"{work(bootstrap, topic, int(records), int(size)):.0f}")
