"""Our nodes and Apache Kafka 4.3.1 take turns on the directories of three voters: metadata and records are preserved.

One sequence is part of ./check; those marked `long` run with

    PYTHONPATH=src .venv/bin/python -m pytest -m long tests/oracle/cluster/test_quorum_handover.py"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from cluster.quorum.admin_requests import BROKER, TOPIC, call, create_topic, eventually, set_config, topics
from cluster.quorum.inventory import Inventory, inventory
from compat.java.jvm import Tools
from oracle.cluster.mixed_cluster import Implementation, MixedCluster
from oracle.cluster.tool_output import CONFIGS, FEATURES
from strandline.launch.cluster_state import COMBINED
from strandline.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("handover")]

PARTITIONS = 3
SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "5000"}


class QuorumHandover:
    """Three directories, served by one implementation after the other."""

    def __init__(self, home: Path, classpath: str, tools: Tools, *, static: bool = False) -> None:
        self.cluster = MixedCluster(home, classpath, [COMBINED] * 3, 3, SETTINGS, static)
        self.tools = tools
        self.stored: tuple[Inventory, dict[int, list[str]]] | None = None
        self.round = 0

    def serve(self, implementation: Implementation, *, killed: bool = False) -> None:
        """Starts the nodes, compares with what the previous nodes stored, changes metadata of every kind, stops."""
        self.cluster.start(implementation)
        brokers = self.cluster.brokers
        if self.stored is not None:
            metadata, records = self.stored
            # Metadata is complete at once; high watermarks advance only when followers have fetched.
            for broker in brokers:
                eventually(lambda broker=broker: inventory_of(broker, brokers), lambda found: found == metadata)  # type: ignore[misc]
            eventually(lambda: read(brokers), lambda found: found == records)
        self.change(brokers)
        self.stored = (settled_inventory(brokers), read(brokers))
        self.cluster.kill() if killed else self.cluster.stop()

    def change(self, brokers: Sequence[str]) -> None:
        number = self.round = self.round + 1
        if number == 1:
            create_topic(brokers[0], "records", PARTITIONS, 3, {"retention.ms": "-1"})
        else:
            call(brokers[1], DeleteTopicsRequest(topics=[DeleteTopicState(name="doomed")], timeout_ms=20_000))
        eventually(lambda: "doomed" not in topics(brokers[2]))
        create_topic(brokers[2], "doomed", 2, 2)
        create_topic(brokers[1], f"made-{number}", 2, 3, {"min.insync.replicas": "2"})
        more = CreatePartitionsTopic(name="doomed", count=4, assignments=None)
        call(brokers[0], CreatePartitionsRequest(topics=[more], timeout_ms=20_000))
        for round_ in range(8):
            set_config(brokers[round_ % 3], TOPIC, "records", "segment.bytes", str(1_048_576 + 100 * number + round_))
        set_config(brokers[0], BROKER, "", "log.retention.ms", str(700_000_000 + number))
        set_config(brokers[1], BROKER, "2", "log.cleaner.threads", str(1 + number % 2))
        set_config(brokers[0], 32, "some-group", "consumer.session.timeout.ms", str(50_000 + number))
        user = ("--entity-type", "users", "--entity-name", f"user-{number}")
        self.run(CONFIGS, "--alter", *user, "--add-config", f"producer_byte_rate={1000 + number}")
        self.run(CONFIGS, "--alter", *user, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=x]")
        level = number % 2
        verb = "upgrade" if level else "downgrade"
        self.run(FEATURES, verb, "--feature", f"eligible.leader.replicas.version={level}")
        produce(brokers, number)

    def run(self, tool: str, *arguments: str) -> None:
        ran = self.tools.run(tool, "--bootstrap-server", self.cluster.bootstrap, *arguments)
        assert ran.code == 0, ran.output


def inventory_of(broker: str, brokers: Sequence[str]) -> Inventory:
    found = inventory(broker, *brokers)
    # Kafka creates it when a consumer sends FindCoordinator.
    found["topics"].pop("__consumer_offsets", None)
    found["configs"].pop("2 __consumer_offsets", None)
    return found


def settled_inventory(brokers: Sequence[str]) -> Inventory:
    """When every broker has replayed everything."""

    def everywhere() -> list[Inventory]:
        return [inventory_of(broker, brokers) for broker in brokers]

    return eventually(everywhere, lambda found: all(each == found[0] for each in found))[0]


def produce(brokers: Sequence[str], number: int) -> None:
    producer = Producer({"bootstrap.servers": ",".join(brokers), "acks": "all", "compression.type": "zstd"})
    for index in range(60):
        producer.produce("records", f"value {number} {index}", key=f"{index}", partition=index % PARTITIONS)
    assert producer.flush(120) == 0


def read(brokers: Sequence[str]) -> dict[int, list[str]]:
    settings: dict[str, Any] = {"bootstrap.servers": ",".join(brokers), "group.id": "none"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.assign([TopicPartition("records", each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    found: dict[int, list[str]] = {each: [] for each in range(PARTITIONS)}
    ended: set[int] = set()
    deadline = time.monotonic() + 120
    while len(ended) < PARTITIONS:
        message = consumer.poll(90)
        assert message is not None and time.monotonic() < deadline, found
        partition, error = message.partition(), message.error()
        if error is None:
            assert partition is not None
            found[partition].append(f"{message.offset()} {message.key()!r} {message.value()!r}")
        elif error.code() == KafkaError._PARTITION_EOF:
            assert partition is not None
            ended.add(partition)
        else:
            assert not error.fatal(), error
    consumer.close()
    return found


def test_kafka_serves_the_directories_of_our_quorum_and_we_serve_them_again(
    kafka_classpath: str, tools: Tools, tmp_path: Path
) -> None:
    handover = QuorumHandover(tmp_path, kafka_classpath, tools)
    handover.cluster.format()
    with handover.cluster.killed_on_exit():
        handover.serve("ours")
        handover.serve("kafka")
        handover.serve("ours")
    assert handover.stored is not None
    assert sum(map(len, handover.stored[1].values())) == 3 * 60 and len(handover.stored[0]["topics"]) == 5


@pytest.mark.long
def test_directories_of_a_killed_quorum_are_served_by_the_other_implementation(
    kafka_classpath: str, tools: Tools, tmp_path: Path
) -> None:
    handover = QuorumHandover(tmp_path, kafka_classpath, tools)
    handover.cluster.format()
    with handover.cluster.killed_on_exit():
        handover.serve("ours", killed=True)
        handover.serve("kafka", killed=True)
        handover.serve("ours", killed=True)
        handover.serve("kafka")


@pytest.mark.long
def test_we_serve_the_directories_of_a_quorum_that_kafka_formatted(
    kafka_classpath: str, tools: Tools, tmp_path: Path
) -> None:
    # With static voters, as in most existing quorums.
    handover = QuorumHandover(tmp_path, kafka_classpath, tools, static=True)
    handover.cluster.format_by_kafka(tools)
    with handover.cluster.killed_on_exit():
        handover.serve("kafka")
        handover.serve("ours")
        handover.serve("kafka")
