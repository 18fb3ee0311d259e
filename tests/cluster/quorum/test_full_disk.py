"""A controller whose disk is full says so, and the others go on; when there is room it has what it missed.

A leader that cannot write leaves. A follower stays if the disk may have room again, and leaves if it failed in any
other way.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.quorum.asking import create_topic, eventually, quorum, topics
from cluster.quorum.conftest import SETTINGS
from strandline.launch.cluster_state import NodeState
from strandline.testing import Cluster

pytestmark = pytest.mark.xdist_group("quorum")

Fill = Callable[[Cluster, NodeState], None]


def limit_files(cluster: Cluster, node: NodeState) -> None:
    """No file of this process grows any further: works everywhere, and the error is "file too large".

    What it has said so far is taken away: it has to have room to say why it leaves."""
    os.truncate(node.log, 0)
    running = cluster.state.node(node.id)
    assert running is not None and running.pid is not None
    log = max((Path(node.data) / "__cluster_metadata-0").glob("*.log"))
    limit = log.stat().st_size + 300
    resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (limit, limit))


def fill_the_disk(_: Cluster, node: NodeState) -> None:
    """To the last byte: the error is "no space left on device"."""
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


def others_write_on(cluster: Cluster, victim: NodeState, fill: Fill, noticed: Callable[[], bool]) -> str:
    """Until the victim has noticed, and a little longer; the last topic that they made."""
    others = [node for node in cluster.nodes if node.id != victim.id]
    fill(cluster, victim)
    number, left = 0, 5
    while left:
        left -= noticed()
        number += 1
        assert number < 500, "it never noticed"
        name = f"full-{victim.id}-{number}"
        eventually(lambda name=name: made(others, name))  # type: ignore[misc]
    return name


def is_gone(cluster: Cluster, victim: NodeState) -> bool:
    return all(node.id != victim.id for node in cluster.running())


def has_said_why(victim: NodeState) -> None:
    reason = [line for line in Path(victim.log).read_text().splitlines() if "the node stops" in line][-1]
    assert "the metadata log cannot be written" in reason and "__cluster_metadata-0" in reason


def everybody_has(cluster: Cluster, topic: str) -> None:
    for node in cluster.nodes:
        eventually(lambda node=node: topic in topics(node.endpoint))  # type: ignore[misc]
    cluster.wait_until_healthy()


def made(brokers: list[NodeState], name: str) -> bool:
    """Whether the topic is there; one of the brokers is asked to make it as long as it is not."""
    if name not in topics(brokers[0].endpoint):
        create_topic(brokers[0].endpoint, name, 1, 2, timeout_ms=2000)
    return True


def chosen(cluster: Cluster, *, leads: bool) -> NodeState:
    leader = eventually(lambda: quorum(cluster.nodes[0].endpoint).leader_id, lambda found: found > 0)
    return next(node for node in cluster.nodes if (node.id == leader) == leads)


@pytest.mark.parametrize("leads", [False, True], ids=["a follower", "the leader"])
def test_a_controller_that_cannot_write_leaves_and_nothing_is_lost(lasting: Cluster, leads: bool) -> None:
    victim = chosen(lasting, leads=leads)
    last = others_write_on(lasting, victim, limit_files, lambda: is_gone(lasting, victim))
    has_said_why(victim)
    lasting.up(port=None)
    everybody_has(lasting, last)


@pytest.mark.slow
def test_a_disk_without_a_free_byte_is_waited_for_by_a_follower_and_left_by_a_leader(tmp_path: Path) -> None:
    with contextlib.ExitStack() as disks:
        # One for every node, so that whoever follows can be the one.
        for number in (1, 2, 3):
            os.makedirs(tmp_path / f"node-{number}")
            disks.enter_context(small_disk(tmp_path / f"node-{number}"))
        with Cluster(tmp_path, nodes=3, settings=SETTINGS) as cluster:
            follower = chosen(cluster, leads=False)
            refuses = "__cluster_metadata-0 is read-only until a write succeeds"
            last = others_write_on(cluster, follower, fill_the_disk, lambda: refuses in Path(follower.log).read_text())
            assert [node.id for node in cluster.running()] == [1, 2, 3]
            (Path(follower.data) / "ballast").unlink()
            everybody_has(cluster, last)

            leader = chosen(cluster, leads=True)
            last = others_write_on(cluster, leader, fill_the_disk, lambda: is_gone(cluster, leader))
            has_said_why(leader)
            (Path(leader.data) / "ballast").unlink()
            cluster.up(port=None)
            everybody_has(cluster, last)
