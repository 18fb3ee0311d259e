"""Nodes that do not belong to a cluster are told so in words, and the cluster goes on as if they were not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.lifecycle.commands import strandline
from cluster.quorum.asking import create_topic, eventually, live_brokers, quorum
from cluster.quorum.strangers import Stranger
from strandline.testing import Cluster

pytestmark = pytest.mark.xdist_group("quorum")

ELSEWHERE = "4L6g3nShT-eMCtK--X86sw"


@pytest.fixture(autouse=True)
def goes_on(lasting: Cluster, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """After each test the cluster has its three members and no other, and writes."""

    def check() -> None:
        brokers = [node.endpoint for node in lasting.nodes]
        voters = eventually(lambda: quorum(brokers[0])).current_voters
        assert [voter.replica_id for voter in voters] == [1, 2, 3]
        assert all(live_brokers(broker) == {1, 2, 3} for broker in brokers)
        create_topic(brokers[0], f"after-{tmp_path.name}", 1, 3)

    request.addfinalizer(check)


@pytest.mark.parametrize("roles", ["broker", "controller"])
def test_a_node_of_another_cluster_is_told_that_it_is(lasting: Cluster, tmp_path: Path, roles: str) -> None:
    stranger = Stranger(tmp_path, lasting, 9, roles)
    assert stranger.format(ELSEWHERE, *(["--no-initial-controllers"] if roles == "controller" else [])).returncode == 0
    with stranger.running():
        told = stranger.says("belongs to another cluster", ELSEWHERE)
        assert any(node.controller_endpoint in told for node in lasting.nodes), "and who is"


def namesake(cluster: Cluster, *, leads: bool) -> int:
    leader = eventually(lambda: quorum(cluster.nodes[0].endpoint).leader_id, lambda found: found > 0)
    return next(node.id for node in cluster.nodes if (node.id == leader) == leads)


def test_a_broker_whose_id_is_taken_waits_and_says_what_for(lasting: Cluster, tmp_path: Path) -> None:
    taken = namesake(lasting, leads=False)
    stranger = Stranger(tmp_path, lasting, taken, "broker")
    assert stranger.format(lasting.state.cluster_id).returncode == 0
    with stranger.running():
        told = stranger.says(f"waiting to register as broker {taken}", "DUPLICATE_BROKER_REGISTRATION")
        assert "node.id of its own" in told


def test_a_controller_whose_id_is_that_of_a_voter_follows_without_a_vote(lasting: Cluster, tmp_path: Path) -> None:
    taken = namesake(lasting, leads=False)
    stranger = Stranger(tmp_path, lasting, taken, "controller")
    assert stranger.format(lasting.state.cluster_id, "--no-initial-controllers").returncode == 0
    with stranger.running():
        told = stranger.says("follows without a vote", f"voter {taken} is another node")
        voters = eventually(lambda: quorum(lasting.nodes[0].endpoint)).current_voters
        voter = next(each for each in voters if each.replica_id == taken)
        assert str(voter.replica_directory_id) in told


@pytest.mark.parametrize("roles", ["broker", "controller"])
def test_a_node_whose_id_is_that_of_the_leader_is_told_so(lasting: Cluster, tmp_path: Path, roles: str) -> None:
    taken = namesake(lasting, leads=True)
    stranger = Stranger(tmp_path, lasting, taken, roles)
    how = ["--no-initial-controllers"] if roles == "controller" else []
    assert stranger.format(lasting.state.cluster_id, *how).returncode == 0
    with stranger.running():
        assert "change the node.id of this node" in stranger.says(f"names node {taken} as the leader")


def test_a_controller_that_is_no_voter_follows_and_says_who_votes(lasting: Cluster, tmp_path: Path) -> None:
    stranger = Stranger(tmp_path, lasting, 8, "controller")
    assert stranger.format(lasting.state.cluster_id, "--no-initial-controllers").returncode == 0
    with stranger.running():
        assert "the voters are 1, 2, 3" in stranger.says("follows without a vote")


def test_a_controller_that_its_own_file_does_not_name_is_refused(lasting: Cluster, tmp_path: Path) -> None:
    voters = ",".join(f"{node.id}@{node.controller_endpoint}" for node in lasting.nodes)
    static = {"controller.quorum.voters": voters, "controller.quorum.bootstrap.servers": ""}
    stranger = Stranger(tmp_path, lasting, 8, "controller", static)
    refused = stranger.format(lasting.state.cluster_id)
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert "node.id=8 is not among the voters" in refused.stderr


def test_an_unknown_voter_is_neither_added_nor_removed(lasting: Cluster) -> None:
    removed = strandline("quorum", "remove", "9", "-b", lasting.bootstrap)
    assert removed.returncode == 1 and "9 is not a voter: the voters are 1:" in removed.stderr
    added = strandline("quorum", "add", "9", "-b", lasting.bootstrap)
    assert added.returncode == 1 and "Traceback" not in added.stderr and "9" in added.stderr
