"""What a launcher decides before it starts anything; starting real nodes is tried in tests/cluster."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import pytest

from strandline.launch import processes
from strandline.launch.cluster import Cluster
from strandline.launch.cluster_state import ClusterState, NodeState, write_state
from strandline.launch.errors import (
    ConfigOverrideRejected,
    DataDirectoryEmpty,
    DirectoryLocked,
    LaunchError,
    NodeExited,
)


def prepared(directory: Path, pid: int | None = None) -> tuple[Cluster, NodeState]:
    """A directory in which `up` has made a node before, and which nothing runs in."""
    cluster = Cluster(directory)
    data = str(directory / "node-1")
    node = NodeState(1, pid, "127.0.0.1", 1, 2, data, f"{data}.log")
    write_state(str(directory), ClusterState("AAAAAAAAAAAAAAAAAAAAAg", [node]))
    return cluster, node


def test_an_emptied_disk_is_never_formatted_again(tmp_path: Path) -> None:
    cluster, node = prepared(tmp_path)
    with pytest.raises(DataDirectoryEmpty, match="Formatting it again as it was would let it forget"):
        cluster.up()
    assert not os.path.exists(node.data)


def test_a_pid_that_belongs_to_a_stranger_is_no_node(tmp_path: Path) -> None:
    cluster, node = prepared(tmp_path, pid=os.getpid())
    assert cluster.running() == []
    assert not processes.is_node(os.getpid(), node.properties)
    assert not processes.is_node(None, node.properties)


def test_a_process_is_recognised_by_the_file_it_was_started_with() -> None:
    mine = Path("/proc/self/cmdline")
    if not mine.exists():
        pytest.skip("no /proc on this platform")
    words = mine.read_bytes().decode().split("\0")
    assert sys.executable in words or words[0]
    assert not processes.is_node(os.getpid(), "/no/such/server.properties")


def test_down_on_what_is_not_running_writes_nothing_and_stops_nothing(tmp_path: Path) -> None:
    cluster, _ = prepared(tmp_path)
    before = (tmp_path / "cluster.json").read_bytes()
    assert cluster.down() == []
    assert (tmp_path / "cluster.json").read_bytes() == before


def test_two_launchers_do_not_work_on_one_directory(tmp_path: Path) -> None:
    cluster, _ = prepared(tmp_path)
    with open(tmp_path / ".up.lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DirectoryLocked, match="is at work in"):
            cluster.up()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "it has no version"),
        ("version=x", "version is 'x', not a number"),
        ("version=1\nnode.id=one", "node.id is 'one'"),
    ],
)
def test_a_damaged_identity_is_told_in_words(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "meta.properties").write_text(content)
    with pytest.raises(LaunchError) as refused:
        Cluster(tmp_path).up()
    assert told in str(refused.value) and "int()" not in str(refused.value)


def test_a_setting_that_no_node_can_run_with_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigOverrideRejected, match=r"num\.partitions"):
        Cluster(tmp_path / "new").up(settings={"num.partitions": "many"})
    assert list(tmp_path.iterdir()) == []


def test_what_a_node_will_warn_about_is_said_at_the_terminal_too(tmp_path: Path) -> None:
    said: list[str] = []
    _, node = prepared(tmp_path)
    with pytest.raises(DataDirectoryEmpty):
        Cluster(tmp_path, say=said.append).up(settings={"foo.bar": "1", "num.partitions": "3"})
    assert said == ["warning: foo.bar is not a known key and has no effect"]
    assert not os.path.exists(node.data)


def test_the_end_of_a_log_tells_why_a_node_died(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_text("old start\n")
    since = log.stat().st_size
    with log.open("a") as file:
        file.writelines(f"line {number}\n" for number in range(100))
    assert processes.tail(str(log), lines=2, since=since) == "line 98\nline 99"
    assert "old start" not in processes.tail(str(log), lines=500, since=since)
    assert "line 99" in str(NodeExited(1, 1, processes.tail(str(log))))
    assert processes.tail(str(tmp_path / "none")).startswith("(its log cannot be read")
