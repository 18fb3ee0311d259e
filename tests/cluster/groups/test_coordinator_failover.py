"""The broker that coordinates a group is killed: its members continue from their commits with another coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from strandline.launch.cluster import Cluster

TIMEOUT_S = 90.0
GROUP = "readers"
TOPIC = "orders"
PARTITIONS = 4
SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "6",
}
CLASSIC = {"session.timeout.ms": 20_000, "heartbeat.interval.ms": 500}
CONSUMER = {"group.protocol": "consumer"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster.started(tmp_path, nodes=3, settings=SETTINGS) as started:
        yield started


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def admin_of(cluster: Cluster) -> AdminClient:
    """To be kept until the results are there: they fail when the client is collected."""
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def create_topic(cluster: Cluster, replication_factor: int) -> None:
    admin = admin_of(cluster)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, replication_factor)])[TOPIC].result(TIMEOUT_S)


def write(cluster: Cluster, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "enable.idempotence": True})
    for number in numbers:
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


class Member:
    """Commits each record synchronously, so that a record is read twice only if its commit failed."""

    def __init__(self, cluster: Cluster, protocol: Mapping[str, Any] = CLASSIC) -> None:
        self.found: list[int] = []
        self.unconfirmed: list[int] = []
        self.rebalances = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **protocol,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._assigned)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1

    def poll(self) -> None:
        message = self._consumer.poll(0.05)
        if message is None:
            return
        if message.error() is not None:
            assert message.error().code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN), message.error()
            return
        number = int(message.value() or b"")
        self.found.append(number)
        try:
            self._consumer.commit(message, asynchronous=False)
        except Exception:
            self.unconfirmed.append(number)

    @property
    def partitions(self) -> int:
        return len(self._consumer.assignment())

    def close(self) -> None:
        self._consumer.close()


def coordinator_of(cluster: Cluster) -> int:
    admin = admin_of(cluster)
    described = admin.describe_consumer_groups([GROUP])[GROUP].result(TIMEOUT_S)
    return int(described.coordinator.id)


def committed(cluster: Cluster) -> dict[int, int]:
    wanted = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(TOPIC, each) for each in range(PARTITIONS)])
    admin = admin_of(cluster)
    result = admin.list_consumer_group_offsets([wanted])[GROUP].result(TIMEOUT_S)
    return {each.partition: each.offset for each in result.topic_partitions}


def replicas_in_sync(cluster: Cluster, topic: str) -> int:
    """Of the partition that has the fewest."""
    admin = admin_of(cluster)
    partitions = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    return min((len(each.isrs) for each in partitions.values()), default=0)


def read_all(members: list[Member], count: int) -> None:
    def has_read() -> bool:
        for member in members:
            member.poll()
        return len({number for member in members for number in member.found}) == count

    wait_until(has_read, f"{count} records are not read")


def share(members: list[Member]) -> bool:
    for member in members:
        member.poll()
    return all(member.partitions == PARTITIONS // len(members) for member in members)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_members_continue_from_their_commits_when_their_coordinator_is_killed(
    cluster: Cluster, protocol: Mapping[str, Any]
) -> None:
    create_topic(cluster, 3)
    write(cluster, range(100))
    members = [Member(cluster, protocol), Member(cluster, protocol)]
    read_all(members, 100)
    wait_until(lambda: share(members), "the members do not share the partitions")
    wait_until(lambda: replicas_in_sync(cluster, "__consumer_offsets") == 3, "the offsets are not replicated")
    rebalances = sum(member.rebalances for member in members)
    for round_, first in enumerate((100, 200), 1):
        killed = coordinator_of(cluster)
        cluster.kill(killed)
        write(cluster, range(first, first + 100))
        read_all(members, first + 100)
        assert coordinator_of(cluster) != killed
        cluster.start(killed)
        wait_until(lambda: replicas_in_sync(cluster, "__consumer_offsets") == 3, f"round {round_}: not in sync again")
    assert sum(member.rebalances for member in members) == rebalances, "a new coordinator knows the group"
    found = sorted(number for member in members for number in member.found)
    unconfirmed = {number for member in members for number in member.unconfirmed}
    repeated = {number for number in found if found.count(number) > 1}
    assert sorted(set(found)) == list(range(300)) and repeated <= unconfirmed
    for member in members:
        member.close()
    assert committed(cluster) == dict.fromkeys(range(PARTITIONS), 75)


@pytest.mark.slow
def test_groups_survive_the_first_node_of_a_cluster_that_grew(tmp_path: Path) -> None:
    """The internal topic was created on one node, and is replicated when others join."""
    with Cluster.started(tmp_path, nodes=1, settings=SETTINGS) as cluster:
        create_topic(cluster, 1)
        write(cluster, range(20))
        member = Member(cluster)
        read_all([member], 20)
        member.close()
        first = cluster.nodes[0]
        cluster.up(3, port=None)
        wait_until(lambda: replicas_in_sync(cluster, "__consumer_offsets") == 3, "the offsets are not replicated")
        cluster.kill(first.id)

        def is_served() -> bool:
            try:
                return committed(cluster) == dict.fromkeys(range(PARTITIONS), 5)
            except Exception:
                return False

        wait_until(is_served, "the committed offsets are lost")
