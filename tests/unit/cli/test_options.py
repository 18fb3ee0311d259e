"""The default of --bootstrap."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from strandline.cli.options import DEFAULT_DATA, add_client_options
from strandline.launch.cluster_state import ClusterState, NodeState, write_state


def node(number: int, port: int) -> NodeState:
    return NodeState(number, None, "127.0.0.1", port, 10_000 + port, f"node-{number}", "log")


@pytest.fixture
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STRANDLINE_BOOTSTRAP", raising=False)
    data = tmp_path / DEFAULT_DATA
    data.mkdir()
    return data


def bootstrap(*arguments: str) -> str:
    parser = argparse.ArgumentParser()
    add_client_options(parser)
    found: str = parser.parse_args(arguments).bootstrap
    return found


def test_the_default_is_port_9092_of_this_host(data_directory: Path) -> None:
    assert bootstrap() == "127.0.0.1:9092"


def test_all_nodes_of_a_cluster_in_the_default_directory_are_used(data_directory: Path) -> None:
    write_state(str(data_directory), ClusterState("c", [node(1, 9092), node(2, 9093)]))
    assert bootstrap() == "127.0.0.1:9092,127.0.0.1:9093"
    assert bootstrap("-b", "elsewhere:1") == "elsewhere:1"


def test_a_cluster_on_other_ports_is_not_used(data_directory: Path) -> None:
    write_state(str(data_directory), ClusterState("c", [node(1, 9192), node(2, 9193)]))
    assert bootstrap() == "127.0.0.1:9092"


def test_the_environment_variable_takes_precedence(data_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_state(str(data_directory), ClusterState("c", [node(1, 9092), node(2, 9093)]))
    monkeypatch.setenv("STRANDLINE_BOOTSTRAP", "from-environment:1")
    assert bootstrap() == "from-environment:1"


def test_an_unreadable_cluster_json_is_ignored(data_directory: Path) -> None:
    (data_directory / "cluster.json").write_text("{")
    assert bootstrap() == "127.0.0.1:9092"
