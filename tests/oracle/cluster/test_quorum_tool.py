"""Kafka's MetadataQuorumCommand with a quorum of three: described by every node; a voter is added and removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compat.java.jvm import Tools
from oracle.cluster.conftest import IMPLEMENTATION, Run
from oracle.cluster.mixed_cluster import MixedCluster, wait_until
from oracle.cluster.tool_output import FEATURES, QUORUM, rows, status
from oracle.kafka_server import CLUSTER_ID
from strandline.launch.cluster_state import COMBINED

pytestmark = pytest.mark.xdist_group("cluster")


def directory_id(cluster: MixedCluster, node_id: int) -> str:
    lines = (cluster.nodes[node_id].directory / "meta.properties").read_text().splitlines()
    return next(line.removeprefix("directory.id=") for line in lines if line.startswith("directory.id="))


def roles(run: Run, *where: str) -> dict[int, str]:
    return {int(row["NodeId"]): row["Status"] for row in rows(run(QUORUM, *where, "describe", "--replication").lines)}


def test_the_status_names_the_leader_every_voter_and_every_observer(run: Run, cluster: MixedCluster) -> None:
    found = status(run(QUORUM, "describe", "--status").lines)
    assert found["ClusterId"] == CLUSTER_ID
    assert found["LeaderId"] in (1, 2, 3) and found["LeaderEpoch"] >= 1 and found["HighWatermark"] > 0
    assert found["MaxFollowerLag"] >= 0
    assert found["CurrentVoters"] == [
        {
            "id": node_id,
            "directoryId": directory_id(cluster, node_id),
            "endpoints": [f"CONTROLLER://{cluster.nodes[node_id].controller}"],
        }
        for node_id in (1, 2, 3)
    ]
    assert found["CurrentObservers"] == [{"id": 4, "directoryId": directory_id(cluster, 4)}]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_every_controller_and_every_broker_describe_the_same_quorum(
    run: Run, cluster: MixedCluster, index: int
) -> None:
    def described(*where: str) -> list[Any]:
        found = status(run(QUORUM, *where, "describe", "--status").lines)
        return [found[name] for name in ("ClusterId", "LeaderId", "LeaderEpoch", "CurrentVoters", "CurrentObservers")]

    # An election may happen between the two requests.
    wait_until(
        lambda: (
            described("--bootstrap-server", cluster.brokers[index])
            == described("--bootstrap-controller", cluster.controllers[index])
        )
    )


def test_replication_status_shows_each_replica_close_to_the_leader(run: Run, cluster: MixedCluster) -> None:
    def table() -> list[dict[str, str]]:
        return rows(run(QUORUM, "describe", "--replication").lines)

    def is_close(row: dict[str, str], leader: dict[str, str]) -> bool:
        behind_ms = int(leader["LastFetchTimestamp"]) - int(row["LastFetchTimestamp"])
        return int(row["Lag"]) < 50 and 0 <= behind_ms < 3000 and int(row["LastCaughtUpTimestamp"]) > 0

    def are_close() -> bool:
        found = table()
        return all(is_close(row, found[0]) for row in found)

    def leads(node_id: str) -> bool:
        return status(run(QUORUM, "describe", "--status").lines)["LeaderId"] == int(node_id)

    wait_until(are_close, lambda: str(table()))
    wait_until(lambda: leads(table()[0]["NodeId"]))
    found = table()
    leader = int(found[0]["NodeId"])
    assert {int(row["NodeId"]): row["Status"] for row in found} == {
        **{voter: "Leader" if voter == leader else "Follower" for voter in (1, 2, 3)},
        4: "Observer",
    }
    for row in found:
        assert row["DirectoryId"] == directory_id(cluster, int(row["NodeId"]))
        assert int(row["LogEndOffset"]) + int(row["Lag"]) == int(found[0]["LogEndOffset"])


def test_replication_status_is_human_readable(run: Run) -> None:
    table = run(QUORUM, "describe", "--replication", "--human-readable").lines
    assert all("ms ago" in line for line in table[1:]) and len(table) == 5


def test_an_observer_is_added_as_a_voter_and_removed(tools: Tools, run: Run, cluster: MixedCluster) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    joining = ("--command-config", str(cluster.nodes[4].properties))
    added = tools.run(QUORUM, *joining, *server, "add-controller")
    assert added.code == 0, added.output
    assert "Added controller 4 with directory id" in added.output
    assert roles(run)[4] == "Follower"
    again = tools.run(QUORUM, *joining, *server, "add-controller")
    assert again.code == 1 and "DuplicateVoter" in again.output
    wrong = ("--controller-id", "4", "--controller-directory-id", directory_id(cluster, 1))
    refused = run(QUORUM, *server, "remove-controller", *wrong, code=1)
    assert "VoterNotFound" in refused.output
    which = ("--controller-id", "4", "--controller-directory-id", directory_id(cluster, 4))
    removed = run(QUORUM, "--bootstrap-controller", cluster.controllers[0], "remove-controller", *which)
    assert "KRaft controller 4 with directory id" in removed.output
    wait_until(lambda: roles(run).get(4) == "Observer")
    assert sorted(roles(run)) == [1, 2, 3, 4]


def test_adding_a_voter_twice_is_rejected(tools: Tools, cluster: MixedCluster) -> None:
    for where in (("--bootstrap-server", cluster.bootstrap), ("--bootstrap-controller", cluster.controllers[1])):
        ran = tools.run(QUORUM, "--command-config", str(cluster.nodes[1].properties), *where, "add-controller")
        assert ran.code == 1 and "DuplicateVoter" in ran.output


def test_static_voters_are_written_to_the_log_when_kraft_version_is_upgraded(
    tools: Tools, kafka_classpath: str, tmp_path: Path
) -> None:
    static = MixedCluster(tmp_path, kafka_classpath, [COMBINED] * 3, 3, static=True)
    static.format_by_kafka(tools)
    where = ("--bootstrap-server", static.bootstrap)

    def voters() -> list[dict[str, Any]]:
        ran = tools.run(QUORUM, *where, "describe", "--status")
        assert ran.code == 0, ran.output
        found: list[dict[str, Any]] = status(ran.lines)["CurrentVoters"]
        return found

    with static.killed_on_exit():
        static.start(IMPLEMENTATION)
        assert [(voter["id"], "directoryId" in voter) for voter in voters()] == [(1, False), (2, False), (3, False)]
        # Every voter has to send UpdateRaftVoter to the leader first.
        raised = ("upgrade", "--feature", "kraft.version=1")
        wait_until(lambda: tools.run(FEATURES, *where, *raised).code == 0)
        wait_until(lambda: all("directoryId" in voter for voter in voters()))
        assert [voter["directoryId"] for voter in voters()] == [directory_id(static, each) for each in (1, 2, 3)]
        static.kill()
        static.start(IMPLEMENTATION)
        assert [voter["directoryId"] for voter in voters()] == [directory_id(static, each) for each in (1, 2, 3)]
