"""Our command line against a cluster of Apache Kafka nodes.

One cluster of three combined nodes, formatted by us, for all tests; a fourth node is added.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.quorum.admin_requests import wait_until_replayed_by_all
from oracle.kafka_server import KafkaServer, internal_topic_configs
from strandline.cli.main import run
from strandline.launch.cluster_state import ClusterState
from strandline.launch.preparation import prepare
from strandline.launch.server_properties import node_properties, write_properties
from strandline.launch.topology import Topology

# One worker only: three Kafka nodes are enough for a machine.
pytestmark = pytest.mark.xdist_group("commands")


@dataclass
class KafkaCluster:
    directory: Path
    classpath: str
    servers: dict[int, KafkaServer]

    def grow(self, nodes: int) -> ClusterState:
        state = prepare(str(self.directory), Topology(nodes=nodes), None, {}).state
        for node in state.nodes:
            if node.id not in self.servers:
                write_properties(node.properties, node_properties(node, state.nodes, internal_topic_configs(nodes)))
                self.servers[node.id] = KafkaServer(self.classpath, Path(node.properties))
        for server in self.servers.values():
            server.wait_until_ready()
        return state


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(tmp_path_factory.mktemp("commands"), kafka_classpath, {})
    try:
        cluster.grow(3)
        yield cluster
    finally:
        for server in cluster.servers.values():
            server.kill()


@pytest.fixture
def json_of(kafka: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command and returns its JSON output.

    Before each command all of Kafka's brokers have replayed the changes of earlier commands."""

    def run_command(*arguments: str, code: int = 0) -> Any:
        brokers = [server.bootstrap for server in kafka.servers.values()]
        wait_until_replayed_by_all(brokers)
        assert run([*arguments, "-b", ",".join(brokers), "--json"]) == code, capsys.readouterr().err
        printed = capsys.readouterr().out
        return json.loads(printed) if printed else None

    return run_command


def ids(members: list[dict[str, Any]]) -> list[int]:
    return [each["id"] for each in members]


def test_quorum_health_and_features_are_described(json_of: Any) -> None:
    quorum = json_of("quorum", "describe")
    assert ids(quorum["voters"]) == [1, 2, 3] and quorum["leader_id"] in (1, 2, 3)
    health = json_of("cluster", "health", "--wait", "60")
    assert health["healthy"] and health["facts"]["ActiveBrokerCount"] == 3
    levels = {each["name"]: each["level"] for each in json_of("feature", "describe")}
    assert levels["metadata.version"] == 30 and levels["kraft.version"] == 1
    assert json_of("feature", "upgrade", "group.version=1")["applied"]
    json_of("feature", "downgrade", "metadata.version=3.3", code=1)
    assert json_of("feature", "disable", "group.version", "--dry-run")["applied"] is False


def test_replicas_are_reassigned_and_preferred_leaders_elected(json_of: Any) -> None:
    json_of("topic", "create", "moved", "-p", "4", "-r", "2")
    assert len(json_of("topic", "reassign", "moved", "--to", "3,1", "--wait")) == 4
    partitions = json_of("topic", "describe", "moved")["partitions"]
    assert [each["replicas"] for each in partitions] == [[3, 1], [1, 3], [3, 1], [1, 3]]
    assert {each["error"] for each in json_of("leader", "elect", "moved")} <= {None, "ELECTION_NOT_NEEDED"}
    assert [each["leader"] for each in json_of("topic", "describe", "moved")["partitions"]] == [3, 1, 3, 1]
    assert json_of("topic", "reassign", "--status") == []
    assert json_of("topic", "reassign", "moved", "--cancel") == []
    plan = json_of("topic", "reassign", "--generate", "moved", "-r", "3")
    assert [sorted(each["replicas"]) for each in plan["partitions"]] == [[1, 2, 3]] * 4


def test_a_broker_is_drained_only_when_other_brokers_can_hold_its_replicas(kafka: KafkaCluster, json_of: Any) -> None:
    json_of("topic", "create", "everywhere", "-p", "2", "-r", "3")
    json_of("broker", "drain", "2", code=1)
    kafka.grow(4)
    drained = json_of("broker", "drain", "2")
    assert drained["status"] == "empty" and drained["moved"]
    brokers = {each["id"]: each for each in json_of("broker", "list")}
    assert (brokers[2]["replicas"], brokers[2]["leaders"]) == (0, 0) and brokers[4]["replicas"] > 0
    json_of("topic", "create", "later", "-p", "6", "-r", "3")
    later = json_of("topic", "describe", "later")["partitions"]
    assert {replica for each in later for replica in each["replicas"]} == {1, 3, 4}, "broker 2 is cordoned"
    json_of("broker", "unregister", "2", code=1)

    assert json_of("quorum", "add", "4")["added"] and not json_of("quorum", "add", "4")["added"]
    assert json_of("quorum", "remove", "2")["removed"]
    assert ids(json_of("quorum", "describe")["voters"]) == [1, 3, 4]
    kafka.servers.pop(2).stop()
    json_of("broker", "unregister", "2", "--force")
    assert ids(json_of("broker", "list")) == [1, 3, 4]
    assert json_of("cluster", "health", "--wait", "60")["healthy"]


def test_metadata_show_and_metadata_log_read_kafkas_files(
    kafka: KafkaCluster, json_of: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    json_of("topic", "create", "seen", "-p", "2", "-r", "1", "-c", "retention.ms=1234")
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
