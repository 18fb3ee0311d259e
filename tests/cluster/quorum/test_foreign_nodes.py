"""A node that does not belong to the cluster logs why, and the cluster is not affected by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.lifecycle.commands import strandline
from cluster.quorum.admin_requests import create_topic, describe_quorum, eventually, live_brokers
from cluster.quorum.foreign_node import ForeignNode
from strandline.testing import Cluster

pytestmark = pytest.mark.xdist_group("quorum")

OTHER_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


@pytest.fixture(autouse=True)
def cluster_is_unaffected(shared_cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """After each test the cluster has its three voters and brokers, no other, and accepts writes."""

    def check() -> None:
        brokers = [node.endpoint for node in shared_cluster.nodes]
        voters = eventually(lambda: describe_quorum(brokers[0])).current_voters
        assert [voter.replica_id for voter in voters] == [1, 2, 3]
        assert all(live_brokers(broker) == {1, 2, 3} for broker in brokers)
        create_topic(brokers[0], f"after-{tmp_path.name}", 1, 3)

    request.addfinalizer(check)


@pytest.mark.parametrize("roles", ["broker", "controller"])
def test_a_node_of_another_cluster_logs_that_the_cluster_id_differs(
    shared_cluster: Cluster, tmp_path: Path, roles: str
) -> None:
    node = ForeignNode(tmp_path, shared_cluster, 9, roles)
    assert (
        node.format(OTHER_CLUSTER_ID, *(["--no-initial-controllers"] if roles == "controller" else [])).returncode == 0
    )
    with node.running():
        line = node.log_line("belongs to another cluster", OTHER_CLUSTER_ID)
        assert any(each.controller_endpoint in line for each in shared_cluster.nodes), "names a controller"


def id_of(cluster: Cluster, *, leads: bool) -> int:
    """The id of the active controller, or of another node."""
    leader = eventually(lambda: describe_quorum(cluster.nodes[0].endpoint).leader_id, lambda found: found > 0)
    return next(node.id for node in cluster.nodes if (node.id == leader) == leads)


def test_a_broker_with_the_id_of_a_registered_broker_waits_and_logs_why(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    taken = id_of(shared_cluster, leads=False)
    node = ForeignNode(tmp_path, shared_cluster, taken, "broker")
    assert node.format(shared_cluster.state.cluster_id).returncode == 0
    with node.running():
        line = node.log_line(f"waiting to register as broker {taken}", "DUPLICATE_BROKER_REGISTRATION")
        assert "node.id of its own" in line


def test_a_controller_with_the_id_of_a_voter_becomes_an_observer(shared_cluster: Cluster, tmp_path: Path) -> None:
    taken = id_of(shared_cluster, leads=False)
    node = ForeignNode(tmp_path, shared_cluster, taken, "controller")
    assert node.format(shared_cluster.state.cluster_id, "--no-initial-controllers").returncode == 0
    with node.running():
        line = node.log_line("follows without a vote", f"voter {taken} is another node")
        voters = eventually(lambda: describe_quorum(shared_cluster.nodes[0].endpoint)).current_voters
        voter = next(each for each in voters if each.replica_id == taken)
        assert str(voter.replica_directory_id) in line


@pytest.mark.parametrize("roles", ["broker", "controller"])
def test_a_node_with_the_id_of_the_leader_logs_the_conflict(
    shared_cluster: Cluster, tmp_path: Path, roles: str
) -> None:
    taken = id_of(shared_cluster, leads=True)
    node = ForeignNode(tmp_path, shared_cluster, taken, roles)
    how = ["--no-initial-controllers"] if roles == "controller" else []
    assert node.format(shared_cluster.state.cluster_id, *how).returncode == 0
    with node.running():
        assert "change the node.id of this node" in node.log_line(f"names node {taken} as the leader")


def test_a_controller_that_is_not_a_voter_becomes_an_observer_and_logs_the_voters(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    node = ForeignNode(tmp_path, shared_cluster, 8, "controller")
    assert node.format(shared_cluster.state.cluster_id, "--no-initial-controllers").returncode == 0
    with node.running():
        assert "the voters are 1, 2, 3" in node.log_line("follows without a vote")


def test_a_controller_missing_from_its_own_static_voters_is_not_formatted(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    voters = ",".join(f"{node.id}@{node.controller_endpoint}" for node in shared_cluster.nodes)
    static = {"controller.quorum.voters": voters, "controller.quorum.bootstrap.servers": ""}
    node = ForeignNode(tmp_path, shared_cluster, 8, "controller", static)
    refused = node.format(shared_cluster.state.cluster_id)
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert "node.id=8 is not among the voters" in refused.stderr


def test_an_unknown_node_can_be_neither_added_nor_removed_as_a_voter(shared_cluster: Cluster) -> None:
    removed = strandline("quorum", "remove", "9", "-b", shared_cluster.bootstrap)
    assert removed.returncode == 1 and "9 is not a voter: the voters are 1:" in removed.stderr
    added = strandline("quorum", "add", "9", "-b", shared_cluster.bootstrap)
    assert added.returncode == 1 and "Traceback" not in added.stderr and "9" in added.stderr
