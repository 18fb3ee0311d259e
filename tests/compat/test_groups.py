"""Groups as client libraries use them: members share partitions, take over, and continue from committed offsets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from strandline.launch.cluster import Cluster

TIMEOUT_S = 60.0
SETTINGS = {"group.initial.rebalance.delay.ms": "100", "offsets.topic.num.partitions": "5"}
PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.started(tmp_path_factory.mktemp("groups"), settings=SETTINGS) as started:
        yield started


@pytest.fixture
def numbers(cluster: Cluster, topic: str) -> str:
    """A topic with 25 numbers in each of four partitions."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
    write_numbers(cluster, topic, range(100))
    return topic


def write_numbers(cluster: Cluster, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in numbers:
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what


def subscribed(cluster: Cluster, topic: str, **extra: Any) -> Consumer:
    config = {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 500, **extra})
    consumer.subscribe([topic])
    return consumer


def poll(consumer: Consumer, found: list[int]) -> None:
    message = consumer.poll(0.1)
    if message is not None:
        assert message.error() is None, message.error()
        found.append(int(message.value() or b""))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_librdkafka_members_share_and_take_over(cluster: Cluster, numbers: str, strategy: str) -> None:
    found: list[int] = []
    first = subscribed(cluster, numbers, **{"partition.assignment.strategy": strategy})
    wait_until(lambda: poll(first, found) or len(found) == 100, "the first member does not read everything")
    second = subscribed(cluster, numbers, **{"partition.assignment.strategy": strategy})

    def share() -> bool:
        poll(first, found)
        poll(second, found)
        return len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2

    wait_until(share, "two members do not share")
    first.close()
    wait_until(lambda: poll(second, found) or len(second.assignment()) == PARTITIONS, "nothing is taken over")
    write_numbers(cluster, numbers, range(100, 200))
    wait_until(lambda: poll(second, found) or len(found) == 200, "the second member does not continue")
    second.close()
    assert sorted(found) == list(range(200))


def test_a_static_member_of_librdkafka_restarts_without_a_rebalance(cluster: Cluster, numbers: str) -> None:
    revoked: list[str] = []

    def member(instance: str) -> Consumer:
        consumer = subscribed(cluster, numbers, **{"group.instance.id": instance, "session.timeout.ms": 30_000})
        consumer.subscribe([numbers], on_revoke=lambda *_: revoked.append(instance))
        return consumer

    found: list[int] = []
    first, second = member("i"), member("j")

    def share() -> bool:
        poll(first, found)
        poll(second, found)
        return len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2

    wait_until(share, "two members do not share")
    owned = second.assignment()
    second.close()
    revoked.clear()
    second = member("j")
    wait_until(lambda: poll(second, found) or bool(second.assignment()), "the static member does not come back")
    poll(first, found)
    assert second.assignment() == owned and revoked == []
    first.close()
    second.close()


def test_commits_survive_a_restart_of_the_broker(cluster: Cluster, numbers: str) -> None:
    found: list[int] = []
    consumer = subscribed(cluster, numbers, **{"enable.auto.commit": False})
    wait_until(lambda: poll(consumer, found) or len(found) == 100, "not everything is read")
    consumer.commit(
        offsets=[TopicPartition(numbers, each, 25, metadata="note") for each in range(3)], asynchronous=False
    )
    node = cluster.nodes[0]
    cluster.kill(node.id)
    cluster.start(node.id)
    committed = consumer.committed([TopicPartition(numbers, each) for each in range(4)], timeout=TIMEOUT_S)
    assert [each.offset for each in committed] == [25, 25, 25, -1001]
    assert committed[0].metadata == "note"
    consumer.close()
    again: list[int] = []
    successor = subscribed(cluster, numbers)
    wait_until(lambda: poll(successor, again) or len(again) == 25, "the rest is not read")
    successor.close()
    assert sorted(again) == list(range(3, 100, 4)), "only the partition without a commit is read again"


def test_default_auto_commit_with_assigned_partitions_closes_at_once(cluster: Cluster, numbers: str) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": numbers})
    consumer.assign([TopicPartition(numbers, 0, OFFSET_BEGINNING)])
    found: list[int] = []
    wait_until(lambda: poll(consumer, found) or len(found) == 25, "not everything is read")
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < 10
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    request = ConsumerGroupTopicPartitions(numbers, [TopicPartition(numbers, 0)])
    committed = admin.list_consumer_group_offsets([request])[numbers].result(TIMEOUT_S)
    assert committed.topic_partitions[0].offset == 25


def test_groups_are_listed_described_and_deleted_by_the_admin_client(cluster: Cluster, numbers: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    consumer = subscribed(cluster, numbers, **{"client.id": "reader"})
    found: list[int] = []
    wait_until(lambda: poll(consumer, found) or len(found) == 100, "not everything is read")
    described = admin.describe_consumer_groups([numbers])[numbers].result(TIMEOUT_S)
    assert described.state.name == "STABLE" and described.partition_assignor == "range"
    (member,) = described.members
    assert member.client_id == "reader" and len(member.assignment.topic_partitions) == PARTITIONS
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert numbers in [each.group_id for each in listed.valid] and not listed.errors
    consumer.close()
    assert admin.delete_consumer_groups([numbers])[numbers].result(TIMEOUT_S) is None
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert numbers not in [each.group_id for each in listed.valid]


def test_kafka_python_members_share_and_take_over(cluster: Cluster, numbers: str) -> None:
    def member() -> KafkaConsumer:
        return KafkaConsumer(
            numbers,
            bootstrap_servers=cluster.bootstrap,
            group_id=numbers,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
        )

    found: list[int] = []

    def read(consumer: KafkaConsumer) -> None:
        for records in consumer.poll(100).values():
            found.extend(int(record.value) for record in records)

    first = member()
    wait_until(lambda: read(first) or len(found) == 100, "the first member does not read everything")
    first.commit()
    second = member()

    def share() -> bool:
        read(first)
        read(second)
        return len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2

    wait_until(share, "two members do not share")
    first.close()
    wait_until(lambda: read(second) or len(second.assignment()) == PARTITIONS, "nothing is taken over")
    write_numbers(cluster, numbers, range(100, 200))
    wait_until(lambda: read(second) or len(found) == 200, "the second member does not continue")
    second.close()
    assert sorted(found) == list(range(200))


def test_aiokafka_members_share_and_take_over(cluster: Cluster, numbers: str) -> None:
    asyncio.run(asyncio.wait_for(share_with_aiokafka(cluster, numbers), 3 * TIMEOUT_S))


async def share_with_aiokafka(cluster: Cluster, topic: str) -> None:
    async def member() -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
        )
        await consumer.start()
        return consumer

    found: list[int] = []

    async def read(consumer: AIOKafkaConsumer) -> None:
        for records in (await consumer.getmany(timeout_ms=100)).values():
            found.extend(int(record.value) for record in records)

    first = await member()
    while len(found) < 100:
        await read(first)
    await first.commit()
    second = await member()
    while not len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2:
        await read(first)
        await read(second)
    await first.stop()
    while len(second.assignment()) < PARTITIONS:
        await read(second)
    write_numbers(cluster, topic, range(100, 200))
    while len(found) < 200:
        await read(second)
    await second.stop()
    assert sorted(found) == list(range(200))
