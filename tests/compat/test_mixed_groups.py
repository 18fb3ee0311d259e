"""Our own client and librdkafka as members of one group: they read each other's subscriptions and assignments."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from strandline.client.blocking import BlockingClient, BlockingConsumer, Outgoing
from strandline.client.settings import GroupSettings
from strandline.launch.cluster import Cluster

pytestmark = pytest.mark.long

TIMEOUT_S = 60.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "5",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.started(tmp_path_factory.mktemp("mixed"), settings=SETTINGS) as started:
        yield started


def member(client: BlockingClient, topic: str, protocol: str, *assignors: str) -> BlockingConsumer:
    settings = GroupSettings(
        protocol=protocol,
        assignors=assignors or ("range",),
        offset_reset="earliest",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
    )
    return client.consumer(topic, [topic], settings)


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours leads", "librdkafka leads"])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky", "consumer"])
def test_two_kinds_of_members_share_the_partitions(
    cluster: Cluster, topic: str, assignor: str, ours_first: bool
) -> None:
    protocol = "consumer" if assignor == "consumer" else "classic"
    extra: dict[str, str | int] = {"group.protocol": "consumer"}
    if protocol == "classic":
        extra = {"partition.assignment.strategy": assignor, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
    theirs = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "auto.offset.reset": "earliest", **extra}
    )
    found: list[int] = []
    with BlockingClient(cluster.bootstrap) as client:
        client.run(lambda each: each.topics.create(topic, partitions=4))
        with client.producer() as producer:
            producer.send(topic, [Outgoing(b"%d" % number, partition=number % 4) for number in range(100)])
        if not ours_first:
            theirs.subscribe([topic])
            _until(lambda: _poll(theirs, found) or len(theirs.assignment()) == 4)
        with member(client, topic, protocol, *([assignor] if protocol == "classic" else [])) as ours:
            if ours_first:
                _until(lambda: _read(ours, found) or len(ours.assignment) == 4)
                theirs.subscribe([topic])

            def balanced() -> bool:
                _poll(theirs, found)
                _read(ours, found)
                return len(ours.assignment) == len(theirs.assignment()) == 2

            _until(balanced)
            _until(lambda: balanced() and len(set(found)) == 100)
            theirs.close()
            _until(lambda: _read(ours, found) or len(ours.assignment) == 4)
    assert sorted(set(found)) == list(range(100))


def _until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline


def _poll(consumer: Consumer, found: list[int]) -> None:
    message = consumer.poll(0.1)
    if message is not None and not message.error():
        found.append(int(message.value() or b""))


def _read(consumer: BlockingConsumer, found: list[int]) -> None:
    for fetched in consumer.poll(100):
        found += [int(record.value or b"") for record in fetched.records()]
