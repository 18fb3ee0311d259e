"""Consumer groups (`group.protocol=consumer`, KIP-848) as librdkafka and Kafka's own consumer use them: members share
partitions, are killed, and the others take over."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from strandline.launch.cluster import Cluster

TIMEOUT_S = 60.0
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "100",
    "offsets.topic.num.partitions": "5",
}
PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.started(tmp_path_factory.mktemp("consumer-groups"), settings=SETTINGS) as started:
        yield started


@pytest.fixture
def numbers(cluster: Cluster, topic: str) -> str:
    """A topic with numbers in each of its partitions."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
    write_numbers(cluster, topic, range(120))
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


def member(cluster: Cluster, group: str, pattern: str, **extra: Any) -> Consumer:
    config = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "group.protocol": "consumer", **extra})
    consumer.subscribe([pattern])
    return consumer


def poll(consumer: Consumer, found: list[int]) -> None:
    message = consumer.poll(0.1)
    if message is not None:
        assert message.error() is None, message.error()
        found.append(int(message.value() or b""))


def share(members: list[Consumer], found: list[int]) -> bool:
    for each in members:
        poll(each, found)
    return all(len(each.assignment()) == PARTITIONS // len(members) for each in members)


def test_librdkafka_members_share_and_take_over(cluster: Cluster, numbers: str) -> None:
    found: list[int] = []
    members = [member(cluster, numbers, numbers)]
    wait_until(lambda: share(members, found) and len(found) == 120, "the first member does not read everything")
    members += [member(cluster, numbers, numbers) for _ in range(2)]
    wait_until(lambda: share(members, found), "three members do not share")
    members.pop(0).close()
    wait_until(lambda: share(members, found), "nothing is taken over")
    write_numbers(cluster, numbers, range(120, 240))
    wait_until(lambda: share(members, found) and len(found) >= 240, "the members do not continue")
    for each in members:
        each.close()
    assert sorted(found) == list(range(240))


def test_topics_that_match_a_regular_expression_of_librdkafka_are_read(cluster: Cluster, numbers: str) -> None:
    found: list[int] = []
    consumer = member(cluster, f"{numbers}-regex", f"^{numbers}.*")
    wait_until(lambda: poll(consumer, found) or len(found) == 120, "the topic is not matched")
    consumer.close()


def test_a_static_member_of_librdkafka_returns_to_its_partitions(cluster: Cluster, numbers: str) -> None:
    found: list[int] = []
    members = [member(cluster, numbers, numbers, **{"group.instance.id": instance}) for instance in "ij"]
    wait_until(lambda: share(members, found), "two members do not share")
    owned = members[1].assignment()
    members[1].close()
    members[1] = member(cluster, numbers, numbers, **{"group.instance.id": "j"})
    wait_until(lambda: share(members, found), "the static member does not return")
    assert sorted(members[1].assignment()) == sorted(owned)
    for each in members:
        each.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_live_group_of_librdkafka_changes_its_protocol_and_back(
    cluster: Cluster, numbers: str, strategy: str
) -> None:
    found: list[int] = []
    group = f"{numbers}-{strategy}"
    config = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    classic = Consumer({**config, "partition.assignment.strategy": strategy, "heartbeat.interval.ms": 300})
    classic.subscribe([numbers])
    wait_until(lambda: share([classic], found) and len(found) == 120, "the classic member does not read everything")
    modern = member(cluster, group, numbers)
    wait_until(lambda: share([classic, modern], found), "members of both protocols do not share")
    modern.close()
    wait_until(lambda: share([classic], found), "the classic member does not take over")
    write_numbers(cluster, numbers, range(120, 240))
    wait_until(lambda: share([classic], found) and len(found) >= 240, "the classic member does not continue")
    classic.close()
    assert sorted(found) == list(range(240))


class JavaConsumer:
    """Kafka's VerifiableConsumer, a process of its own that prints what happens to it."""

    def __init__(self, classpath: str, bootstrap: str, group: str, topic: str, output: Path) -> None:
        self._output = output
        command = ["java", "-Xmx128m", "-cp", classpath, "org.apache.kafka.tools.VerifiableConsumer"]
        command += ["--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group]
        command += ["--group-protocol", "consumer", "--reset-policy", "earliest", "--verbose"]
        with output.open("w") as stdout:
            self._process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.STDOUT)

    def events(self) -> list[dict[str, Any]]:
        lines = [line for line in self._output.read_text().splitlines() if line.startswith("{")]
        return [json.loads(line) for line in lines if line.endswith("}")]

    def owned(self) -> set[int]:
        owned: set[int] = set()
        for event in self.events():
            partitions = {each["partition"] for each in event.get("partitions", ()) if isinstance(each, dict)}
            if event["name"] == "partitions_assigned":
                owned |= partitions
            elif event["name"] == "partitions_revoked":
                owned -= partitions
        return owned

    def read(self) -> list[int]:
        return [int(event["value"]) for event in self.events() if event["name"] == "record_data"]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.mark.oracle
@pytest.mark.slow
def test_java_consumers_share_and_take_over_from_one_that_is_killed(
    cluster: Cluster, numbers: str, kafka_classpath: str, tmp_path: Path
) -> None:
    members = [
        JavaConsumer(kafka_classpath, cluster.bootstrap, numbers, numbers, tmp_path / f"{index}.txt")
        for index in range(3)
    ]

    def pause() -> bool:
        time.sleep(0.2)
        return False

    try:
        wait_until(lambda: all(len(each.owned()) == 2 for each in members) or pause(), "three members do not share")
        assert set.union(*(each.owned() for each in members)) == set(range(PARTITIONS))
        members.pop(0).kill()
        wait_until(lambda: all(len(each.owned()) == 3 for each in members) or pause(), "nothing is taken over")
        write_numbers(cluster, numbers, range(120, 240))
        wanted = set(range(120, 240))
        wait_until(lambda: wanted <= {n for each in members for n in each.read()} or pause(), "records are missing")
    finally:
        for each in members:
            each.kill()
