"""The decisions of a launcher before it starts processes; tests/cluster starts real nodes."""

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
    """A directory in which `up` has created a node that is not running."""
    cluster = Cluster(directory)
    data = str(directory / "node-1")
    node = NodeState(1, pid, "127.0.0.1", 1, 2, data, f"{data}.log")
    write_state(str(directory), ClusterState("AAAAAAAAAAAAAAAAAAAAAg", [node]))
    return cluster, node


def test_an_emptied_directory_is_never_formatted_again(tmp_path: Path) -> None:
    cluster, node = prepared(tmp_path)
    with pytest.raises(DataDirectoryEmpty, match="not formatted again as the same voter"):
        cluster.up()
    assert not os.path.exists(node.data)


def test_a_pid_of_another_program_is_not_a_node(tmp_path: Path) -> None:
    cluster, node = prepared(tmp_path, pid=os.getpid())
    assert cluster.running() == []
    assert not processes.is_node(os.getpid(), node.properties)
    assert not processes.is_node(None, node.properties)


def test_a_node_process_is_recognised_by_its_properties_file() -> None:
    mine = Path("/proc/self/cmdline")
    if not mine.exists():
        pytest.skip("no /proc on this platform")
    words = mine.read_bytes().decode().split("\0")
    assert sys.executable in words or words[0]
    assert not processes.is_node(os.getpid(), "/no/such/server.properties")


def test_down_without_running_nodes_changes_nothing(tmp_path: Path) -> None:
    cluster, _ = prepared(tmp_path)
    before = (tmp_path / "cluster.json").read_bytes()
    assert cluster.down() == []
    assert (tmp_path / "cluster.json").read_bytes() == before


def test_only_one_launcher_at_a_time_uses_a_directory(tmp_path: Path) -> None:
    cluster, _ = prepared(tmp_path)
    with open(tmp_path / ".up.lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DirectoryLocked, match="is using"):
            cluster.up()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it has no version"),
        ("version=x", "version is 'x', not a number"),
        ("version=1\nnode.id=one", "node.id is 'one'"),
    ],
)
def test_an_invalid_meta_properties_is_reported_with_its_problem(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "meta.properties").write_text(content)
    with pytest.raises(LaunchError) as error:
        Cluster(tmp_path).up()
    assert message in str(error.value) and "int()" not in str(error.value)


def test_an_invalid_config_is_rejected_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigOverrideRejected, match=r"num\.partitions"):
        Cluster(tmp_path / "new").up(settings={"num.partitions": "many"})
    assert list(tmp_path.iterdir()) == []


def test_config_warnings_of_a_node_are_printed(tmp_path: Path) -> None:
    messages: list[str] = []
    _, node = prepared(tmp_path)
    with pytest.raises(DataDirectoryEmpty):
        Cluster(tmp_path, say=messages.append).up(settings={"foo.bar": "1", "num.partitions": "3"})
    assert messages == ["warning: foo.bar is not a known key and has no effect"]
    assert not os.path.exists(node.data)


def test_the_end_of_the_log_explains_the_exit_of_a_node(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_text("old start\n")
    since = log.stat().st_size
    with log.open("a") as file:
        file.writelines(f"line {number}\n" for number in range(100))
    assert processes.tail(str(log), lines=2, since=since) == "line 98\nline 99"
    assert "old start" not in processes.tail(str(log), lines=500, since=since)
    assert "line 99" in str(NodeExited(1, 1, processes.tail(str(log))))
    assert processes.tail(str(tmp_path / "none")).startswith("(its log cannot be read")
