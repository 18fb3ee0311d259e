from __future__ import annotations

import json
from pathlib import Path

import pytest

from strandline.launch.cluster_state import (
    BROKER,
    CONTROLLER,
    ClusterState,
    NodeState,
    StateUnreadable,
    read_state,
    write_state,
)


def node(number: int, pid: int | None = None) -> NodeState:
    return NodeState(number, pid, "127.0.0.1", 9091 + number, 19091 + number, f"/data/node-{number}", "/data/log")


def test_the_file_has_exactly_the_keys_that_scripts_rely_on(tmp_path: Path) -> None:
    state = ClusterState("id of the cluster")
    state.add(node(2, pid=4321))
    state.add(node(1))
    write_state(str(tmp_path), state)
    content = json.loads((tmp_path / "cluster.json").read_text())
    assert list(content) == ["cluster_id", "bootstrap", "nodes"]
    assert content["bootstrap"] == "127.0.0.1:9092,127.0.0.1:9093"
    assert [list(each) for each in content["nodes"]] == [
        ["id", "pid", "host", "port", "controller_port", "data", "log", "roles"]
    ] * 2
    assert [each["pid"] for each in content["nodes"]] == [None, 4321]
    assert [each["roles"] for each in content["nodes"]] == [["broker", "controller"]] * 2


def test_a_controller_has_no_broker_port_and_is_not_a_bootstrap_server(tmp_path: Path) -> None:
    broker = NodeState(1, None, "127.0.0.1", 9092, None, "/data/node-1", "/data/log", BROKER)
    controller = NodeState(2, None, "127.0.0.1", None, 9093, "/data/node-2", "/data/log", CONTROLLER)
    write_state(str(tmp_path), ClusterState("c", [broker, controller]))
    content = json.loads((tmp_path / "cluster.json").read_text())
    assert content["bootstrap"] == "127.0.0.1:9092"
    assert [(each["port"], each["controller_port"]) for each in content["nodes"]] == [(9092, None), (None, 9093)]
    assert read_state(str(tmp_path)) == ClusterState("c", [broker, controller])


def test_a_file_without_roles_is_of_combined_nodes(tmp_path: Path) -> None:
    write_state(str(tmp_path), ClusterState("c", [node(1)]))
    content = json.loads((tmp_path / "cluster.json").read_text())
    del content["nodes"][0]["roles"]
    (tmp_path / "cluster.json").write_text(json.dumps(content))
    assert read_state(str(tmp_path)) == ClusterState("c", [node(1)])


def test_a_written_state_is_read_back(tmp_path: Path) -> None:
    state = ClusterState("c", [node(1, pid=7)])
    write_state(str(tmp_path), state)
    assert read_state(str(tmp_path)) == state
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


def test_a_directory_without_the_file_has_no_cluster(tmp_path: Path) -> None:
    assert read_state(str(tmp_path)) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"cluster_id": "c"}',
        '{"cluster_id": "c", "nodes": [{"id": 1}]}',
        '{"cluster_id": "c", "nodes": [{"id": "1", "pid": null, "host": "h", "port": 1, "controller_port": 2, '
        '"data": "d", "log": "l"}]}',
        '{"cluster_id": "c", "nodes": [{"id": 1, "pid": null, "host": "h", "port": 1, "controller_port": 2, '
        '"data": "d", "log": "l", "roles": ["witness"]}]}',
        '{"cluster_id": "c", "nodes": [{"id": 1, "pid": null, "host": "h", "port": null, "controller_port": 2, '
        '"data": "d", "log": "l", "roles": ["broker"]}]}',
    ],
)
def test_a_damaged_file_is_an_error_and_not_overwritten(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(StateUnreadable, match="restore it from a copy") as error:
        read_state(str(tmp_path))
    assert not any(word in str(error.value) for word in ("Error", "indices", "char 0"))


def test_a_file_in_place_of_the_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateUnreadable, match="Not a directory; choose another --data"):
        read_state(str(tmp_path / "file"))
