"""A controller whose disk is full logs it, and the other voters continue; it catches up when the disk has space.

A leader that cannot write stops. A follower waits if the disk is full, and stops after any other write error.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.quorum.admin_requests import create_topic, describe_quorum, eventually, topics
from cluster.quorum.conftest import SETTINGS
from strandline.launch.cluster_state import NodeState
from strandline.testing import Cluster

pytestmark = pytest.mark.xdist_group("quorum")

Fill = Callable[[Cluster, NodeState], None]


def limit_files(cluster: Cluster, node: NodeState) -> None:
    """Limits the file size of the process, which works everywhere; the error is "file too large".

    The log of the process is emptied, so that it has space to log why it stops."""
    os.truncate(node.log, 0)
    running = cluster.state.node(node.id)
    assert running is not None and running.pid is not None
    log = max((Path(node.data) / "__cluster_metadata-0").glob("*.log"))
    limit = log.stat().st_size + 300
    resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (limit, limit))


def fill_the_disk(_: Cluster, node: NodeState) -> None:
    """The error is "no space left on device"."""
    with open(Path(node.data) / "ballast", "wb", buffering=0) as ballast:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    ballast.write(bytes(size))


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[None]:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here (the other tests of full disks ran): {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def write_through_others(cluster: Cluster, victim: NodeState, fill: Fill, noticed: Callable[[], bool]) -> str:
    """Until the victim has noticed, and five topics longer; returns the last topic that was created."""
    others = [node for node in cluster.nodes if node.id != victim.id]
    fill(cluster, victim)
    number, left = 0, 5
    while left:
        left -= noticed()
        number += 1
        assert number < 500, "the victim never noticed"
        name = f"full-{victim.id}-{number}"
        eventually(lambda name=name: made(others, name))  # type: ignore[misc]
    return name


def has_stopped(cluster: Cluster, victim: NodeState) -> bool:
    return all(node.id != victim.id for node in cluster.running())


def check_logged_reason(victim: NodeState) -> None:
    reason = [line for line in Path(victim.log).read_text().splitlines() if "the node stops" in line][-1]
    assert "the metadata log cannot be written" in reason and "__cluster_metadata-0" in reason


def wait_until_all_have(cluster: Cluster, topic: str) -> None:
    for node in cluster.nodes:
        eventually(lambda node=node: topic in topics(node.endpoint))  # type: ignore[misc]
    cluster.wait_until_healthy()


def made(brokers: list[NodeState], name: str) -> bool:
    """Creates the topic unless it exists."""
    if name not in topics(brokers[0].endpoint):
        create_topic(brokers[0].endpoint, name, 1, 2, timeout_ms=2000)
    return True


def chosen(cluster: Cluster, *, leads: bool) -> NodeState:
    leader = eventually(lambda: describe_quorum(cluster.nodes[0].endpoint).leader_id, lambda found: found > 0)
    return next(node for node in cluster.nodes if (node.id == leader) == leads)


@pytest.mark.parametrize("leads", [False, True], ids=["a follower", "the leader"])
def test_a_controller_that_cannot_write_stops_and_catches_up_after_a_restart(
    shared_cluster: Cluster, leads: bool
) -> None:
    victim = chosen(shared_cluster, leads=leads)
    last = write_through_others(shared_cluster, victim, limit_files, lambda: has_stopped(shared_cluster, victim))
    check_logged_reason(victim)
    shared_cluster.up(port=None)
    wait_until_all_have(shared_cluster, last)


@pytest.mark.slow
def test_with_a_full_disk_a_follower_waits_and_a_leader_stops(tmp_path: Path) -> None:
    with contextlib.ExitStack() as disks:
        # One for every node: the leader is not known in advance.
        for number in (1, 2, 3):
            os.makedirs(tmp_path / f"node-{number}")
            disks.enter_context(small_disk(tmp_path / f"node-{number}"))
        with Cluster(tmp_path, nodes=3, settings=SETTINGS) as cluster:
            follower = chosen(cluster, leads=False)
            refuses = "__cluster_metadata-0 is read-only until a write succeeds"
            last = write_through_others(
                cluster, follower, fill_the_disk, lambda: refuses in Path(follower.log).read_text()
            )
            assert [node.id for node in cluster.running()] == [1, 2, 3]
            (Path(follower.data) / "ballast").unlink()
            wait_until_all_have(cluster, last)

            leader = chosen(cluster, leads=True)
            last = write_through_others(cluster, leader, fill_the_disk, lambda: has_stopped(cluster, leader))
            check_logged_reason(leader)
            (Path(leader.data) / "ballast").unlink()
            cluster.up(port=None)
            wait_until_all_have(cluster, last)
