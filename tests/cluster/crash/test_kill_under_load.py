"""kill -9 of the node during writes, several times: every acknowledged record is stored once, at its offset."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from strandline.launch.cluster import Cluster

TOPIC = "orders"
PARTITIONS = 3
KILLS = 5


@dataclass
class Load:
    """An idempotent producer that runs until it is stopped, and the acknowledged offset of each record."""

    bootstrap: str
    codec: str
    sent: int = 0
    acked: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: {each: [] for each in range(PARTITIONS)})
    """By partition: (offset, number of the record)."""
    errors: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "compression.type": self.codec,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        while not self._stopping.is_set():
            for _ in range(50):
                value = f"{self.sent} " + "x" * (self.sent % 700)
                producer.produce(TOPIC, value, partition=self.sent % PARTITIONS, on_delivery=self._delivered)
                self.sent += 1
            while len(producer) > 2_000:
                producer.poll(0.05)
            producer.poll(0)
        assert producer.flush(300) == 0, "some records were not delivered"

    def stop(self) -> None:
        self._stopping.set()

    def wait_for_acks(self) -> None:
        """Waits until 500 more records are acknowledged, so that requests are in flight."""
        wanted = self._acked_count() + 500
        deadline = time.monotonic() + 120
        while self._acked_count() < wanted:
            assert time.monotonic() < deadline, f"only {self._acked_count()} of {wanted} records were acked"
            time.sleep(0.01)

    def _acked_count(self) -> int:
        return sum(map(len, self.acked.values()))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        value, offset, partition = message.value(), message.offset(), message.partition()
        assert isinstance(value, bytes) and offset is not None and partition is not None
        self.acked[partition].append((offset, int(value.split()[0])))


def read(bootstrap: str, partition: int, end: int) -> list[tuple[int, int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING)])
    found: list[tuple[int, int]] = []
    while len(found) < end:
        messages = consumer.consume(min(1000, end - len(found)), timeout=60)
        assert messages, f"no records after {found[-1:]}, but the log end offset is {end}"
        for message in messages:
            value, offset = message.value(), message.offset()
            assert message.error() is None and isinstance(value, bytes) and offset is not None
            number = int(value.split()[0])
            assert value == f"{number} ".encode() + b"x" * (number % 700)
            found.append((offset, number))
    consumer.close()
    return found


def end_offset(bootstrap: str, partition: int) -> int:
    at = TopicPartition(TOPIC, partition)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return int(admin.list_offsets({at: OffsetSpec.latest()})[at].result(60).offset)


@pytest.mark.parametrize(
    ("codec", "config"),
    [
        ("none", {}),
        ("lz4", {"segment.bytes": "1048576", "flush.messages": "1"}),
        ("zstd", {"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"}),
    ],
    ids=["page cache only", "flushed before every response, small segments", "recompressed"],
)
def test_every_acknowledged_record_survives_kills_once_and_in_order(
    tmp_path: Path, codec: str, config: dict[str, str]
) -> None:
    with Cluster.started(tmp_path) as cluster:
        bootstrap = cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=config)])[TOPIC].result(60)
        load = Load(bootstrap, codec)
        thread = threading.Thread(target=load.run)
        thread.start()
        try:
            for _ in range(KILLS):
                load.wait_for_acks()
                cluster.kill(1)
                cluster.up(port=None)
            load.wait_for_acks()
        finally:
            load.stop()
            thread.join()
        assert load.errors == []
        assert sum(map(len, load.acked.values())) == load.sent > KILLS * 500
        for partition in range(PARTITIONS):
            found = read(bootstrap, partition, end_offset(bootstrap, partition))
            # All records that were sent, at the acknowledged offsets, in order: none lost, none duplicated.
            assert found == sorted(load.acked[partition])
            assert [number for _, number in found] == list(range(partition, load.sent, PARTITIONS))
