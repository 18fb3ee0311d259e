"""Clusters of several nodes as processes: started, failed, restarted, and described with the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.lifecycle.commands import ids, json_of, strandline, wait_until
from strandline.testing import Cluster

pytestmark = pytest.mark.xdist_group("three nodes")


def test_three_nodes_are_three_voters_and_three_brokers(cluster: Cluster) -> None:
    quorum = json_of("quorum", "describe", "-b", cluster.bootstrap)
    assert ids(quorum["voters"]) == [1, 2, 3] and quorum["leader_id"] in (1, 2, 3)
    ports_of_voters = [each["endpoints"][0]["port"] for each in quorum["voters"]]
    assert ports_of_voters == [node.controller_port for node in cluster.nodes]
    brokers = json_of("broker", "list", "-b", cluster.bootstrap)
    assert [(each["id"], each["state"]) for each in brokers] == [(1, "active"), (2, "active"), (3, "active")]
    health = json_of("cluster", "health", "--wait", "-b", cluster.bootstrap)
    assert health["healthy"] and health["facts"]["number-of-voters"] == 3


def test_cluster_health_fails_while_a_broker_is_fenced(cluster: Cluster) -> None:
    assert strandline("cluster", "health", "--wait", "-b", cluster.bootstrap).returncode == 0
    cluster.kill(3)

    def is_unhealthy() -> bool:
        health = strandline("cluster", "health", "-b", cluster.bootstrap)
        return health.returncode == 1 and "fenced brokers: 3" in health.stdout

    wait_until(is_unhealthy)
    cluster.start(3)
    assert strandline("cluster", "health", "--wait", "60", "-b", cluster.bootstrap).returncode == 0


def test_metadata_show_and_metadata_log_read_the_files_of_running_nodes(cluster: Cluster) -> None:
    assert strandline("topic", "create", "orders", "-p", "2", "-r", "3", "-b", cluster.bootstrap).returncode == 0
    where = ["--data", cluster.directory]
    wait_until(lambda: strandline("metadata", "show", *where, "/topics/orders").returncode == 0)
    assert sorted(json_of("metadata", "show", *where, "/topics/orders/1/replicas")) == [1, 2, 3]
    assert set(json_of("metadata", "show", *where, "/quorum/voters")) == {"1", "2", "3"}
    lines = strandline("metadata", "log", *where).stdout.splitlines()
    made = next(int(line.split()[0]) for line in lines if "TopicRecord name=orders" in line)
    assert "orders" not in json_of("metadata", "show", *where, "--at", str(made - 1), "/topics")
    assert "orders" in json_of("metadata", "show", *where, "--at", str(made), "/topics")
    for node in cluster.nodes:
        assert strandline("metadata", "show", *where, "--node", str(node.id), "/features").returncode == 0


@pytest.mark.slow
def test_a_cluster_of_separate_brokers_and_controllers_grows(tmp_path: Path) -> None:
    with Cluster(tmp_path, controllers=3, brokers=2) as cluster:
        assert [node.roles for node in cluster.nodes] == [("broker",)] * 2 + [("controller",)] * 3
        assert cluster.bootstrap.count(",") == 1
        quorum = json_of("quorum", "describe", "-b", cluster.bootstrap)
        assert ids(quorum["voters"]) == [3, 4, 5] and ids(quorum["observers"]) == [1, 2]
        controllers = ",".join(node.controller_endpoint for node in cluster.nodes if node.is_controller)
        assert json_of("quorum", "describe", "-b", controllers)["leader_id"] == quorum["leader_id"]
        cluster.kill(quorum["leader_id"])
        assert strandline("topic", "create", "t", "-r", "2", "-b", cluster.bootstrap).returncode == 0
        started = cluster.up(brokers=3, port=None)
        assert [node.id for node in started] == [quorum["leader_id"], 6]
        wait_until(lambda: ids(json_of("broker", "list", "-b", cluster.bootstrap)) == [1, 2, 6])
        cluster.wait_until_healthy()
