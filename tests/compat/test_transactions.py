"""Transactional producers of client libraries: what is committed is read once, what is aborted never."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata

from strandline.launch.cluster import Cluster

TIMEOUT_S = 60.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.started(tmp_path_factory.mktemp("transactions"), settings=SETTINGS) as started:
        yield started


@pytest.fixture
def created(cluster: Cluster, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(TIMEOUT_S)
    return topic


def transactional(cluster: Cluster, transactional_id: str, **extra: object) -> Producer:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": transactional_id, "linger.ms": 0, **extra}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def read_committed(cluster: Cluster, topic: str, count: int) -> list[str]:
    """Of both partitions; one more poll shows that there is nothing else."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(2)])
    found: list[str] = []
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None and len(found) >= count:
            break
        if message is not None:
            assert message.error() is None, message.error()
            found.append((message.value() or b"").decode())
    consumer.close()
    return sorted(found)


def committed_offsets(cluster: Cluster, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    partitions = consumer.committed([TopicPartition(topic, index) for index in range(2)], TIMEOUT_S)
    consumer.close()
    return [each.offset for each in partitions]


def test_librdkafka_commits_and_aborts(cluster: Cluster, created: str) -> None:
    producer = transactional(cluster, created)
    for number in range(6):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(created, f"{number}-{partition}", partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    expected = [f"{number}-{partition}" for number in (0, 2, 4) for partition in range(2)]
    assert read_committed(cluster, created, len(expected)) == expected


def test_offsets_of_an_aborted_transaction_are_not_committed(cluster: Cluster, created: str) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": created, "enable.auto.commit": False})
    producer = transactional(cluster, created)
    for offset, ends in ((5, producer.abort_transaction), (3, producer.commit_transaction)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition(created, 0, offset)], consumer.consumer_group_metadata(), TIMEOUT_S
        )
        ends(TIMEOUT_S)
    consumer.close()
    deadline = time.monotonic() + TIMEOUT_S
    while committed_offsets(cluster, created, created)[0] != 3:
        assert time.monotonic() < deadline


def test_a_second_producer_fences_the_first_and_aborts_its_transaction(cluster: Cluster, created: str) -> None:
    first = transactional(cluster, created)
    first.begin_transaction()
    first.produce(created, "of the zombie", partition=0)
    assert first.flush(TIMEOUT_S) == 0
    second = transactional(cluster, created)
    second.begin_transaction()
    second.produce(created, "of the second", partition=0)
    second.commit_transaction(TIMEOUT_S)
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(TIMEOUT_S)
    assert fenced.value.args[0].fatal()
    assert read_committed(cluster, created, 1) == ["of the second"]


def test_a_transaction_that_times_out_is_aborted_and_readers_go_on(cluster: Cluster, created: str) -> None:
    slow = transactional(cluster, created, **{"transaction.timeout.ms": 1_000})
    slow.begin_transaction()
    slow.produce(created, "too late", partition=0)
    assert slow.flush(TIMEOUT_S) == 0
    other = Producer({"bootstrap.servers": cluster.bootstrap})
    other.produce(created, "in time", partition=0)
    assert other.flush(TIMEOUT_S) == 0
    assert read_committed(cluster, created, 1) == ["in time"]
    with pytest.raises(KafkaException):
        slow.commit_transaction(TIMEOUT_S)


@pytest.mark.parametrize("configs", [{"compression.type": "gzip"}, {"cleanup.policy": "compact"}])
def test_markers_fit_every_topic(cluster: Cluster, topic: str, configs: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1, config=configs)])[topic].result(TIMEOUT_S)
    producer = transactional(cluster, topic)
    for number, ends in ((1, producer.commit_transaction), (2, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, str(number), key=str(number), partition=1)
        assert producer.flush(TIMEOUT_S) == 0
        ends(TIMEOUT_S)
    assert read_committed(cluster, topic, 1) == ["1"]


def test_kafka_python_commits_and_aborts(cluster: Cluster, created: str) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=created)
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        for partition in range(2):
            producer.send(created, f"{number}-{partition}".encode(), partition=partition).get(TIMEOUT_S)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.send_offsets_to_transaction(
                {PythonPartition(created, 0): OffsetAndMetadata(number, "", -1)}, created
            )
            producer.commit_transaction()
    producer.close()
    assert read_committed(cluster, created, 4) == ["0-0", "0-1", "2-0", "2-1"]
    assert committed_offsets(cluster, created, created)[0] == 2
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=3_000,
        enable_auto_commit=False,
    )
    consumer.assign([PythonPartition(created, 0)])
    assert [record.value for record in consumer] == [b"0-0", b"2-0"]
    consumer.close()


def test_aiokafka_commits_and_aborts(cluster: Cluster, created: str) -> None:
    async def scene() -> list[bytes | None]:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=created)
        await producer.start()
        try:
            for number in range(4):
                await producer.begin_transaction()
                await producer.send_and_wait(created, f"{number}".encode(), partition=0)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.send_offsets_to_transaction({AioPartition(created, 0): number}, created)
                    await producer.commit_transaction()
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, isolation_level="read_committed")
        await consumer.start()
        try:
            consumer.assign([AioPartition(created, 0)])
            await consumer.seek_to_beginning()
            return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in range(2)]
        finally:
            await consumer.stop()

    assert asyncio.run(scene()) == [b"0", b"2"]
    assert committed_offsets(cluster, created, created)[0] == 2
