"""Voters and nodes that come, go and are replaced, in a cluster of processes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from cluster.lifecycle.commands import ids, leader_of, strandline, told
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


@pytest.mark.slow
def test_a_cluster_grows_and_its_new_nodes_get_votes(tmp_path: Path) -> None:
    port = ports.any_free("127.0.0.1")
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
