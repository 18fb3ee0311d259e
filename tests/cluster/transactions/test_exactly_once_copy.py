"""A topic is copied in transactions while the brokers that coordinate them are killed: every record arrives once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cluster.connection import Connection
from strandline.launch.cluster import Cluster
from strandline.protocol.messages.coordinators import FindCoordinatorRequest

TIMEOUT_S = 120.0
PARTITIONS = 3
RECORDS = 3_000
PER_TRANSACTION = 40
TRANSACTIONAL_ID = "copy"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster.started(tmp_path, nodes=3, settings=SETTINGS) as started:
        yield started


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Copy:
    """Reads `source`, writes `target` and commits the read offsets, PER_TRANSACTION records at a time. A transaction
    that fails is aborted and read again; a producer that fails is replaced by one with the same transactional id."""

    def __init__(self, cluster: Cluster) -> None:
        self._bootstrap = cluster.bootstrap
        self.copied = 0
        self.aborted = 0
        self.errors: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._run_one_producer()
            except KafkaException as error:
                self.errors.append(str(error))

    def _run_one_producer(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "copiers",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "log_level": 0,
            }
        )
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": TRANSACTIONAL_ID,
                "transaction.timeout.ms": 20_000,
                "log_level": 0,
            }
        )
        try:
            producer.init_transactions(60)
            consumer.subscribe(["source"])
            while not self.stopping.is_set():
                self._copy_once(consumer, producer)
        finally:
            consumer.close()

    def _copy_once(self, consumer: Consumer, producer: Producer) -> None:
        messages = [each for each in consumer.consume(PER_TRANSACTION, 0.5) if each.error() is None]
        if not messages:
            return
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce("target", message.value(), partition=message.partition())
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 30)
            producer.commit_transaction(30)
            self.copied += len(messages)
        except KafkaException as error:
            failure = error.args[0]
            self.errors.append(str(failure))
            if not failure.txn_requires_abort():
                raise
            producer.abort_transaction(30)
            self.aborted += 1
            rewind(consumer)


def rewind(consumer: Consumer) -> None:
    """To the offsets that are committed, of which the aborted transaction has changed none."""
    for partition in consumer.committed(consumer.assignment(), 30):
        if partition.offset < 0:
            partition.offset = OFFSET_BEGINNING
        consumer.seek(partition)


def coordinator_of(cluster: Cluster, key: str, kind: int) -> int:
    node = cluster.running()[0]
    connection = Connection(node.host, node.port)
    try:
        found = connection.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4).coordinators[0]
    finally:
        connection.close()
    return int(found.node_id)


def read_committed(cluster: Cluster, topic: str, partition: int, count: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[int] = []
    deadline = time.monotonic() + TIMEOUT_S
    quiet = 0
    while quiet < 3 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(int(message.value() or b""))
            quiet = 0
        elif len(found) >= count:
            quiet += 1
    consumer.close()
    return found


@pytest.mark.long
def test_every_record_is_copied_once_while_coordinators_are_killed(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    created = admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in ("source", "target")])
    for each in created.values():
        each.result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(RECORDS):
        producer.produce("source", str(number), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0
    copy = Copy(cluster)
    running = threading.Thread(target=copy.run)
    running.start()
    try:
        for share, (key, kind) in enumerate([(TRANSACTIONAL_ID, 1), ("copiers", 0), (TRANSACTIONAL_ID, 1)], 1):
            wait_until(lambda share=share: copy.copied >= share * RECORDS // 5, f"{copy.copied}, {copy.errors}")  # type: ignore[misc]
            failed = coordinator_of(cluster, key, kind)
            cluster.kill(failed)
            copied = copy.copied
            wait_until(lambda copied=copied: copy.copied > copied, f"nothing after a kill: {copy.errors}")  # type: ignore[misc]
            cluster.start(failed)
        wait_until(lambda: copy.copied >= RECORDS, f"{copy.copied} of {RECORDS}: {copy.errors}")
    finally:
        copy.stopping.set()
        running.join(TIMEOUT_S)
    for partition in range(PARTITIONS):
        expected = list(range(partition, RECORDS, PARTITIONS))
        assert read_committed(cluster, "target", partition, len(expected)) == expected, copy.errors
