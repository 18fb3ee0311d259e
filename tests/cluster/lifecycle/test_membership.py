"""Nodes and voters are added, removed, drained and replaced in a cluster of processes."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path

import pytest

from cluster.lifecycle.commands import ids, json_of, leader_of, strandline, wait_until
from strandline.launch import ports
from strandline.testing import Cluster

pytestmark = pytest.mark.xdist_group("three nodes")


def test_a_node_with_a_new_disk_is_an_observer_until_it_is_added_as_a_voter(cluster: Cluster) -> None:
    lost = next(node for node in cluster.nodes if node.id != leader_of(cluster))
    cluster.kill(lost.id)
    shutil.rmtree(lost.data)
    refused = strandline("up", "--detach", "--data", cluster.directory)
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert f"--replace {lost.id}" in refused.stderr and "quorum remove" in refused.stderr
    assert not os.path.exists(lost.data)

    replaced = strandline("up", "--detach", "--replace", str(lost.id), "--data", cluster.directory)
    assert replaced.returncode == 0, replaced.stderr
    where = ["-b", cluster.bootstrap]
    old = next(each for each in json_of("quorum", "describe", *where)["voters"] if each["id"] == lost.id)
    assert json_of("quorum", "remove", str(lost.id), *where)["directory_id"] == old["directory_id"]
    added = json_of("quorum", "add", str(lost.id), *where)
    assert added["added"] and added["directory_id"] != old["directory_id"]
    assert ids(json_of("quorum", "describe", *where)["voters"]) == [1, 2, 3]
    cluster.wait_until_healthy()


def test_a_drained_broker_gets_no_new_replicas_until_it_is_uncordoned(cluster: Cluster) -> None:
    where = ["-b", cluster.bootstrap]
    json_of("topic", "create", "before", "-p", "6", "-r", "2", *where)
    drained = json_of("broker", "drain", "3", *where)
    assert drained["status"] == "empty" and drained["moved"]

    def replicas(topic: str) -> set[int]:
        described = json_of("topic", "describe", topic, *where)
        return {replica for each in described["partitions"] for replica in each["replicas"]}

    assert replicas("before") == {1, 2}
    json_of("topic", "create", "meanwhile", "-p", "6", "-r", "2", *where)
    assert replicas("meanwhile") == {1, 2}
    assert strandline("config", "unset", "broker", "3", "cordoned.log.dirs", *where).returncode == 0
    attempts = itertools.count()

    def is_used_again() -> bool:
        name = f"after-{next(attempts)}"
        json_of("topic", "create", name, "-p", "6", "-r", "2", *where)
        return replicas(name) == {1, 2, 3}

    wait_until(is_used_again, "the controller places no replicas on broker 3")


@pytest.mark.slow
def test_a_cluster_grows_and_its_new_nodes_become_voters(tmp_path: Path) -> None:
    port = ports.random_free_port("127.0.0.1")
    data = ["--data", str(tmp_path)]
    try:
        assert strandline("up", "--detach", "--port", str(port), *data).returncode == 0
        grown = strandline("up", "--nodes", "3", "--detach", "--port", str(port), *data)
        assert grown.returncode == 0, grown.stderr
        assert "node 2 has joined the quorum" in grown.stderr and "node 3 has joined the quorum" in grown.stderr
        bootstrap = json.loads((tmp_path / "cluster.json").read_text())["bootstrap"]
        assert ids(json_of("quorum", "describe", "-b", bootstrap)["voters"]) == [1, 2, 3]
        smaller = strandline("up", "--nodes", "1", "--detach", *data)
        assert smaller.returncode == 0 and "3 nodes, not 1" in smaller.stderr
        assert strandline("up", "--brokers", "2", "--controllers", "1", *data).returncode == 2
    finally:
        assert strandline("down", *data).returncode == 0
