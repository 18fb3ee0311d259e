"""Our command line against a cluster of Apache Kafka: it speaks the protocol, not a dialect of ours.

One cluster of three combined nodes, formatted by us, for all tests; a fourth joins it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.quorum.admin_requests import wait_until_replayed_by_all
from oracle.kafka_server import KafkaServer
from strandline.cli.main import run
from strandline.launch.cluster_state import ClusterState
from strandline.launch.preparation import prepare
from strandline.launch.server_properties import node_properties, write_properties
from strandline.launch.topology import Topology

# Three nodes of Kafka are enough for a machine.
pytestmark = pytest.mark.xdist_group("commands")


@dataclass
class Kafka:
    directory: Path
    classpath: str
    servers: dict[int, KafkaServer]

    def grow(self, nodes: int) -> ClusterState:
        state = prepare(str(self.directory), Topology(nodes=nodes), None, {}).state
        for node in state.nodes:
            if node.id not in self.servers:
                write_properties(node.properties, node_properties(node, state.nodes, {}))
                self.servers[node.id] = KafkaServer(self.classpath, Path(node.properties))
        for server in self.servers.values():
            server.wait_until_ready()
        return state


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[Kafka]:
    cluster = Kafka(tmp_path_factory.mktemp("commands"), kafka_classpath, {})
    try:
        cluster.grow(3)
        yield cluster
    finally:
        for server in cluster.servers.values():
            server.kill()


@pytest.fixture
def told(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command and gives what it answers as JSON.

    Kafka's brokers learn in their own time what its controller has answered; each command finds them up to date."""

    def tell(*arguments: str, code: int = 0) -> Any:
        brokers = [server.bootstrap for server in kafka.servers.values()]
        wait_until_replayed_by_all(brokers)
        assert run([*arguments, "-b", ",".join(brokers), "--json"]) == code, capsys.readouterr().err
        printed = capsys.readouterr().out
        return json.loads(printed) if printed else None

    return tell


def ids(members: list[dict[str, Any]]) -> list[int]:
    return [each["id"] for each in members]


def test_quorum_health_and_features_are_told(told: Any) -> None:
    quorum = told("quorum", "describe")
    assert ids(quorum["voters"]) == [1, 2, 3] and quorum["leader_id"] in (1, 2, 3)
    health = told("cluster", "health", "--wait", "60")
    assert health["healthy"] and health["facts"]["ActiveBrokerCount"] == 3
    levels = {each["name"]: each["level"] for each in told("feature", "describe")}
    assert levels["metadata.version"] == 30 and levels["kraft.version"] == 1
    assert told("feature", "upgrade", "group.version=1")["applied"]
    told("feature", "downgrade", "metadata.version=3.3", code=1)
    assert told("feature", "disable", "group.version", "--dry-run")["applied"] is False


def test_replicas_are_moved_and_preferred_leaders_lead(told: Any) -> None:
    told("topic", "create", "moved", "-p", "4", "-r", "2")
    assert len(told("topic", "reassign", "moved", "--to", "3,1", "--wait")) == 4
    partitions = told("topic", "describe", "moved")["partitions"]
    assert [each["replicas"] for each in partitions] == [[3, 1], [1, 3], [3, 1], [1, 3]]
    assert {each["error"] for each in told("leader", "elect", "moved")} <= {None, "ELECTION_NOT_NEEDED"}
    assert [each["leader"] for each in told("topic", "describe", "moved")["partitions"]] == [3, 1, 3, 1]
    assert told("topic", "reassign", "--status") == []
    assert told("topic", "reassign", "moved", "--cancel") == []
    plan = told("topic", "reassign", "--generate", "moved", "-r", "3")
    assert [sorted(each["replicas"]) for each in plan["partitions"]] == [[1, 2, 3]] * 4


def test_a_broker_that_is_needed_is_not_drained_until_another_takes_its_place(kafka: Kafka, told: Any) -> None:
    told("topic", "create", "everywhere", "-p", "2", "-r", "3")
    told("broker", "drain", "2", code=1)
    kafka.grow(4)
    drained = told("broker", "drain", "2")
    assert drained["status"] == "empty" and drained["moved"]
    brokers = {each["id"]: each for each in told("broker", "list")}
    assert (brokers[2]["replicas"], brokers[2]["leaders"]) == (0, 0) and brokers[4]["replicas"] > 0
    told("topic", "create", "later", "-p", "6", "-r", "3")
    later = told("topic", "describe", "later")["partitions"]
    assert {replica for each in later for replica in each["replicas"]} == {1, 3, 4}, "it is cordoned"
    told("broker", "unregister", "2", code=1)

    assert told("quorum", "add", "4")["added"] and not told("quorum", "add", "4")["added"]
    assert told("quorum", "remove", "2")["removed"]
    assert ids(told("quorum", "describe")["voters"]) == [1, 3, 4]
    kafka.servers.pop(2).stop()
    told("broker", "unregister", "2", "--force")
    assert ids(told("broker", "list")) == [1, 3, 4]
    assert told("cluster", "health", "--wait", "60")["healthy"]


def test_metadata_of_kafka_is_read_from_its_files(kafka: Kafka, told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told("topic", "create", "seen", "-p", "2", "-r", "1", "-c", "retention.ms=1234")
    wait_until_replayed_by_all([server.bootstrap for server in kafka.servers.values()])
    where = ["--data", str(kafka.directory)]
    assert run(["metadata", "show", *where, "/", "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert tree["configs"]["topics"]["seen"] == {"retention.ms": "1234"} and set(tree["topics"]["seen"]) == {
        "id",
        "0",
        "1",
    }
    assert set(tree["brokers"]) >= {"1", "3"} and tree["features"]["metadata.version"] == 30
    assert run(["metadata", "log", *where]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(len(lines)))
    assert not any("damage" in line for line in lines)
