"""Kafka's tools for topics, leaders and replicas at a cluster of several brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.quorum.admin_requests import call
from oracle.cluster.conftest import IMPLEMENTATION, Run
from oracle.cluster.mixed_cluster import MixedCluster, wait_until
from oracle.cluster.tool_output import ELECTION, REASSIGN, TOPICS, fields, partitions
from strandline.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture
def topic(run: Run, request: pytest.FixtureRequest) -> str:
    """Two partitions, each on three brokers, led by brokers 1 and 2."""
    name: str = request.node.name.removeprefix("test_").split("[")[0]
    run(TOPICS, "--create", "--topic", name, "--replica-assignment", "1:2:3,2:3:1")
    return name


def described(run: Run, topic: str) -> dict[int, dict[str, Any]]:
    return partitions(run(TOPICS, "--describe", "--topic", topic).lines)


def plan(path: Path, topic: str, replicas: dict[int, list[int]]) -> str:
    moves = [{"topic": topic, "partition": index, "replicas": each} for index, each in replicas.items()]
    path.write_text(json.dumps({"version": 1, "partitions": moves}))
    return str(path)


def test_topics_are_spread_over_brokers_and_described(run: Run) -> None:
    run(TOPICS, "--create", "--topic", "spread", "--partitions", "8", "--config", "retention.ms=90000")
    lines = run(TOPICS, "--describe", "--topic", "spread").lines
    head, found = fields(lines[0]), partitions(lines)
    assert (head["PartitionCount"], head["ReplicationFactor"]) == ("8", "3")
    assert "retention.ms=90000" in head["Configs"]
    for each in found.values():
        assert len(set(each["Replicas"])) == 3 and int(each["Leader"]) == each["Replicas"][0]
        assert sorted(each["Isr"]) == sorted(each["Replicas"]) and each["Elr"] == []
    assert {int(each["Leader"]) for each in found.values()} == {1, 2, 3, 4}, "every broker leads a partition"
    assert run(TOPICS, "--describe", "--topic", "spread", "--under-replicated-partitions").lines == []
    run(TOPICS, "--alter", "--topic", "spread", "--partitions", "9")
    assert len(described(run, "spread")) == 9
    run(TOPICS, "--delete", "--topic", "spread")
    assert "spread" not in run(TOPICS, "--list").lines


def test_a_replication_factor_above_the_number_of_brokers_is_rejected(run: Run) -> None:
    refused = run(TOPICS, "--create", "--topic", "many", "--replication-factor", "9", code=1).output
    assert "9" in refused and "4 broker" in refused


def test_a_reassignment_reorders_and_removes_replicas(run: Run, topic: str, tmp_path: Path) -> None:
    moves = plan(tmp_path / "moves.json", topic, {0: [3, 2, 1], 1: [2, 3]})
    started = run(REASSIGN, "--reassignment-json-file", moves, "--execute").output
    assert '"replicas":[1,2,3]' in started, "the current assignment is printed"
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in started
    verified = run(REASSIGN, "--reassignment-json-file", moves, "--verify").output
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    assert f"Reassignment of partition {topic}-1 is completed." in verified
    assert run(REASSIGN, "--list").lines == ["No partition reassignments found."]
    first, second = described(run, topic).values()
    assert (first["Replicas"], first["Leader"], sorted(first["Isr"])) == ([3, 2, 1], "1", [1, 2, 3])
    assert (second["Replicas"], second["Leader"], sorted(second["Isr"])) == ([2, 3], "2", [2, 3])


def test_a_reassignment_is_generated_and_executed(run: Run, topic: str, tmp_path: Path) -> None:
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    made = run(REASSIGN, "--topics-to-move-json-file", str(wanted), "--broker-list", "2,3,4", "--generate").lines
    proposed = json.loads(made[-1])
    assert {tuple(sorted(each["replicas"])) for each in proposed["partitions"]} == {(2, 3, 4)}
    moves = tmp_path / "moves.json"
    moves.write_text(made[-1])
    run(REASSIGN, "--reassignment-json-file", str(moves), "--execute")
    # The new replicas have to catch up with the leader before the old ones are removed.
    wait_until(lambda: run(REASSIGN, "--list").lines == ["No partition reassignments found."])
    for each in described(run, topic).values():
        assert sorted(each["Replicas"]) == sorted(each["Isr"]) == [2, 3, 4] and each["Leader"] in "234"
    verified = run(REASSIGN, "--reassignment-json-file", str(moves), "--verify").output
    assert f"Reassignment of partition {topic}-0 is completed." in verified


def test_a_reassignment_that_cannot_finish_is_listed_and_cancelled(
    run: Run, topic: str, tmp_path: Path, cluster: MixedCluster
) -> None:
    """Broker 4 is stopped, so its replica cannot catch up. The tool would not start this; the controller does."""
    moves = ("--reassignment-json-file", plan(tmp_path / "moves.json", topic, {0: [1, 2, 4]}), "--preserve-throttles")
    cluster.stop(4)
    try:
        wanted = ReassignableTopic(
            name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=[1, 2, 4])]
        )
        answer = call(cluster.brokers[0], AlterPartitionReassignmentsRequest(timeout_ms=20_000, topics=[wanted]))
        assert answer.responses[0].partitions[0].error_code == 0, answer
        assert f"{topic}-0: replicas: 1,2,4,3. adding: 4. removing: 3." in run(REASSIGN, "--list").output
        assert f"Reassignment of partition {topic}-0 is still in progress." in run(REASSIGN, *moves, "--verify").output
        cancelled = run(REASSIGN, *moves, "--cancel").output
        assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled
        assert run(REASSIGN, "--list").lines == ["No partition reassignments found."]
        wait_until(lambda: described(run, topic)[0]["Replicas"] == [1, 2, 3])
        assert "None of the specified partition reassignments are active." in run(REASSIGN, *moves, "--cancel").output
    finally:
        cluster.start(IMPLEMENTATION, 4)


def test_a_preferred_election_makes_the_preferred_replica_leader(run: Run, topic: str, tmp_path: Path) -> None:
    moves = plan(tmp_path / "moves.json", topic, {0: [3, 2, 1]})
    run(REASSIGN, "--reassignment-json-file", moves, "--execute")
    assert described(run, topic)[0]["Leader"] == "1"
    elect = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert (
        f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in run(ELECTION, *elect).output
    )
    wait_until(lambda: described(run, topic)[0]["Leader"] == "3")
    assert f"Valid replica already elected for partitions {topic}-0" in run(ELECTION, *elect).output
    run(REASSIGN, "--reassignment-json-file", plan(tmp_path / "back.json", topic, {0: [1, 2, 3]}), "--execute")
    wait_until(lambda: run(TOPICS, "--describe", "--under-replicated-partitions").lines == [])
    all_partitions = run(ELECTION, "--election-type", "preferred", "--all-topic-partitions").output
    assert "(PREFERRED) for partitions" in all_partitions and f"{topic}-0" in all_partitions
    assert f"{topic}-1" not in all_partitions, "its preferred replica leads already"


def test_elections_that_are_not_needed_or_unknown_are_reported_per_partition(
    run: Run, topic: str, tmp_path: Path
) -> None:
    wanted = tmp_path / "partitions.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 7}]}))
    ran = run(ELECTION, "--election-type", "preferred", "--path-to-json-file", str(wanted), code=1).output
    assert f"Valid replica already elected for partitions {topic}-0" in ran
    assert f"{topic}-7" in ran and "UnknownTopicOrPartitionException" in ran
    healthy = ("--election-type", "unclean", "--topic", topic, "--partition", "0")
    assert f"Valid replica already elected for partitions {topic}-0" in run(ELECTION, *healthy).output


def test_an_unclean_election_elects_a_replica_outside_the_isr(run: Run, cluster: MixedCluster, topic: str) -> None:
    """Nodes 1 to 3 vote, so only one of the two killed brokers may be a voter: brokers 3 and 4."""
    name = f"{topic}.4-3"
    run(TOPICS, "--create", "--topic", name, "--replica-assignment", "4:3")
    where = ("--bootstrap-server", cluster.brokers[0])

    def state() -> dict[str, Any]:
        return partitions(run(TOPICS, *where, "--describe", "--topic", name).lines)[0]

    wait_until(lambda: name in run(TOPICS, *where, "--list").lines)
    try:
        cluster.kill(3)
        wait_until(lambda: state()["Isr"] == [4])
        cluster.kill(4)
        wait_until(lambda: state()["Leader"] == "none")
        assert state()["Elr"] == [4] and state()["Isr"] == []
        cluster.start(IMPLEMENTATION, 3)
        assert state()["Leader"] == "none", "broker 3 may lack records that broker 4 acknowledged"
        elect = ("--election-type", "unclean", "--topic", name, "--partition", "0")
        ran = run(ELECTION, *where, *elect).output
        assert f"Successfully completed leader election (UNCLEAN) for partitions {name}-0" in ran
        wait_until(lambda: state()["Leader"] == "3")
        assert state()["Isr"] == [3]
    finally:
        for node_id in (3, 4):
            if not cluster.nodes[node_id].is_running:
                cluster.nodes[node_id].start(IMPLEMENTATION)
        cluster.wait_until_ready()
