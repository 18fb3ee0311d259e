"""Voters and nodes that come, go and are replaced, in a cluster of processes."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path

import pytest

from cluster.lifecycle.commands import ids, leader_of, strandline, told, until
from strandline.launch import ports
from strandline.testing import Cluster


def test_a_disk_that_was_lost_comes_back_without_a_vote_until_it_is_given_one(cluster: Cluster) -> None:
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
    old = next(each for each in told("quorum", "describe", *where)["voters"] if each["id"] == lost.id)
    assert told("quorum", "remove", str(lost.id), *where)["directory_id"] == old["directory_id"]
    added = told("quorum", "add", str(lost.id), *where)
    assert added["added"] and added["directory_id"] != old["directory_id"]
    assert ids(told("quorum", "describe", *where)["voters"]) == [1, 2, 3]
    cluster.wait_until_healthy()


def test_a_drained_broker_is_empty_and_gets_nothing_new_until_it_may_again(cluster: Cluster) -> None:
    where = ["-b", cluster.bootstrap]
    told("topic", "create", "before", "-p", "6", "-r", "2", *where)
    drained = told("broker", "drain", "3", *where)
    assert drained["status"] == "empty" and drained["moved"]

    def replicas(topic: str) -> set[int]:
        described = told("topic", "describe", topic, *where)
        return {replica for each in described["partitions"] for replica in each["replicas"]}

    assert replicas("before") == {1, 2}
    told("topic", "create", "meanwhile", "-p", "6", "-r", "2", *where)
    assert replicas("meanwhile") == {1, 2}
    assert strandline("config", "unset", "broker", "3", "cordoned.log.dirs", *where).returncode == 0
    attempts = itertools.count()

    def is_used_again() -> bool:
        name = f"after-{next(attempts)}"
        told("topic", "create", name, "-p", "6", "-r", "2", *where)
        return replicas(name) == {1, 2, 3}

    until(is_used_again, "the controller still keeps away from it")


@pytest.mark.slow
def test_a_cluster_grows_and_its_new_nodes_get_votes(tmp_path: Path) -> None:
    port = ports.random_free_port("127.0.0.1")
    data = ["--data", str(tmp_path)]
    try:
        assert strandline("up", "--detach", "--port", str(port), *data).returncode == 0
        grown = strandline("up", "--nodes", "3", "--detach", "--port", str(port), *data)
        assert grown.returncode == 0, grown.stderr
        assert "node 2 has joined the quorum" in grown.stderr and "node 3 has joined the quorum" in grown.stderr
        bootstrap = json.loads((tmp_path / "cluster.json").read_text())["bootstrap"]
        assert ids(told("quorum", "describe", "-b", bootstrap)["voters"]) == [1, 2, 3]
        smaller = strandline("up", "--nodes", "1", "--detach", *data)
        assert smaller.returncode == 0 and "3 nodes, not 1" in smaller.stderr
        assert strandline("up", "--brokers", "2", "--controllers", "1", *data).returncode == 2
    finally:
        assert strandline("down", *data).returncode == 0
