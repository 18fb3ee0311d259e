"""Where commands look for a cluster when nobody says."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from strandline.cli.with_client import DEFAULT_DATA, add_client_options, explain_error
from strandline.client.errors import BrokerUnreachable
from strandline.launch.cluster_state import ClusterState, NodeState, write_state


def node(number: int, port: int) -> NodeState:
    return NodeState(number, None, "127.0.0.1", port, 10_000 + port, f"node-{number}", "log")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_without_a_cluster_here_it_is_the_well_known_port(here: Path) -> None:
    assert bootstrap() == "127.0.0.1:9092"


def test_a_cluster_here_is_reached_through_all_its_nodes(here: Path) -> None:
    write_state(str(here), ClusterState("c", [node(1, 9092), node(2, 9093)]))
    assert bootstrap() == "127.0.0.1:9092,127.0.0.1:9093"
    assert bootstrap("-b", "elsewhere:1") == "elsewhere:1"


def test_a_cluster_on_other_ports_is_not_guessed(here: Path) -> None:
    write_state(str(here), ClusterState("c", [node(1, 9192), node(2, 9193)]))
    assert bootstrap() == "127.0.0.1:9092"


def test_what_the_environment_says_comes_first(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_state(str(here), ClusterState("c", [node(1, 9092), node(2, 9093)]))
    monkeypatch.setenv("STRANDLINE_BOOTSTRAP", "told:1")
    assert bootstrap() == "told:1"


def test_a_file_that_cannot_be_read_is_somebody_elses_complaint(here: Path) -> None:
    (here / "cluster.json").write_text("{")
    assert bootstrap() == "127.0.0.1:9092"


def test_it_is_told_apart_whether_nobody_answers_or_only_somebody_who_is_needed() -> None:
    refused = BrokerUnreachable("127.0.0.1:9093: Connection refused")
    assert "nobody answers at 127.0.0.1:9093" in str(explain_error(refused, "127.0.0.1:9093"))
    told = str(explain_error(refused, "127.0.0.1:9092"))
    assert "127.0.0.1:9092 knows the cluster" in told and "127.0.0.1:9093: Connection refused" in told
