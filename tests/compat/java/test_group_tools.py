"""Kafka's ConsumerGroupCommand with our node, and DumpLogSegments on our `__consumer_offsets`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat.java.jvm import ToolResult, Tools
from strandline.launch.cluster import Cluster

pytestmark = [pytest.mark.oracle, pytest.mark.xdist_group("java")]

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.started(tmp_path_factory.mktemp("groups"), settings=SETTINGS) as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": started.bootstrap})
        for number in range(20):
            producer.produce("t", str(number), partition=number % 2)
        assert producer.flush(TIMEOUT_S) == 0
        yield started


def joined(cluster: Cluster, group: str) -> Consumer:
    """A member that has read and committed all 20 records."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    deadline, count = time.monotonic() + TIMEOUT_S, 0
    while count < 20:
        assert time.monotonic() < deadline
        count += consumer.poll(0.2) is not None
    consumer.commit(asynchronous=False)
    return consumer


Run = Callable[..., ToolResult]


@pytest.fixture
def run(tools: Tools, cluster: Cluster) -> Run:
    def run_tool(*arguments: str) -> ToolResult:
        """The tool exits with 0 even when the coordinator rejects a change."""
        ran = tools.run(GROUPS, "--bootstrap-server", cluster.bootstrap, *arguments)
        assert ran.code == 0, ran.output
        return ran

    return run_tool


def rows(result: ToolResult) -> list[list[str]]:
    """The lines of the group: without headings and notes."""
    return [line.split() for line in result.lines if line.startswith("g ")]


def test_a_group_is_described_reset_and_deleted(run: Run, cluster: Cluster) -> None:
    member = joined(cluster, "g")
    assert "g" in run("--list").lines
    described = sorted(row[:6] for row in rows(run("--describe", "--group", "g")))
    assert described == [["g", "t", "0", "10", "10", "0"], ["g", "t", "1", "10", "10", "0"]]
    (members,) = rows(run("--describe", "--group", "g", "--members"))
    assert members[0] == "g" and members[1].startswith("reader-") and members[2:5] == ["/127.0.0.1", "reader", "2"]
    (state,) = rows(run("--describe", "--group", "g", "--state"))
    assert state[-2:] == ["Stable", "1"]
    refused = run("--reset-offsets", "--group", "g", "--topic", "t", "--to-earliest", "--execute")
    assert "inactive" in refused.output
    assert "not empty" in run("--delete", "--group", "g").output
    member.close()
    dry = run("--reset-offsets", "--group", "g", "--topic", "t", "--to-offset", "4", "--dry-run")
    assert {tuple(row) for row in rows(dry)} == {("g", "t", "0", "4"), ("g", "t", "1", "4")}
    run("--reset-offsets", "--group", "g", "--topic", "t:0", "--to-offset", "4", "--execute")
    described = sorted(row[:6] for row in rows(run("--describe", "--group", "g")))
    assert [row[3:6] for row in described] == [["4", "10", "6"], ["10", "10", "0"]]
    run("--delete-offsets", "--group", "g", "--topic", "t:1")
    assert [row[2] for row in rows(run("--describe", "--group", "g"))] == ["0"]
    run("--delete", "--group", "g")
    assert "g" not in run("--list").lines


def test_kafka_reads_the_records_of_our_groups(tools: Tools, cluster: Cluster) -> None:
    joined(cluster, "dumped").close()
    segments = ",".join(str(each) for each in Path(cluster.nodes[0].data).glob("__consumer_offsets-0/*.log"))
    dumped = tools.run("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", segments)
    assert dumped.code == 0, dumped.output
    records = [line for line in dumped.output.splitlines() if '"group":"dumped"' in line]
    assert '"type":"2"' in records[0] and '"protocolType":""' in records[0], "an empty group first"
    stable = next(line for line in records if '"members":[{' in line)
    assert '"protocolType":"consumer"' in stable and '"clientHost":"/127.0.0.1"' in stable
    offsets = [line for line in records if '"type":"1"' in line]
    assert len(offsets) == 2 and all('"version":"4"' in line and '"offset":10' in line for line in offsets)
    assert "Could not decode" not in dumped.output
