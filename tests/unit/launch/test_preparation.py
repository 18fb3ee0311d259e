"""The nodes of a directory are planned, and each is formatted once."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from pathlib import Path

import pytest

from strandline.launch.cluster_state import (
    BROKER,
    COMBINED,
    CONTROLLER,
    ClusterState,
    NodeState,
    read_state,
    write_state,
)
from strandline.launch.errors import ClusterIdMismatch, DataDirectoryEmpty, NotReplaceable, PortInUse
from strandline.launch.ports import FIRST_EPHEMERAL_PORT, random_free_port
from strandline.launch.preparation import Prepared, check_startable, prepare, replace
from strandline.launch.topology import Topology
from strandline.node.meta_properties import MetaProperties, read_meta_properties
from strandline.raft.disk.snapshots import read_snapshot
from strandline.raft.machine.voters import VoterSet
from strandline.runtime.disk import SystemDisk

FIRST_VOTERS = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def prepared(directory: Path, **requested: int) -> Prepared:
    return prepare(str(directory), Topology(**requested), None, {})


def identity(node: NodeState) -> MetaProperties:
    found = read_meta_properties(SystemDisk(), node.data)
    assert found is not None
    return found


def first_voters(node: NodeState) -> VoterSet | None:
    path = Path(node.data, FIRST_VOTERS)
    return read_snapshot(SystemDisk(), str(path)).voters if path.exists() else None


def files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_three_nodes_have_the_same_initial_voter_set(tmp_path: Path) -> None:
    state = prepared(tmp_path, nodes=3).state
    assert [(node.id, node.roles) for node in state.nodes] == [(1, COMBINED), (2, COMBINED), (3, COMBINED)]
    assert len({port for node in state.nodes for port in node.ports}) == 6
    sets = [first_voters(node) for node in state.nodes]
    assert sets[0] is not None and sets == [sets[0]] * 3
    for node, voter in zip(state.nodes, sets[0].voters, strict=True):
        assert identity(node) == MetaProperties(state.cluster_id, node.id, voter.directory_id)
        assert [(name, at.port) for name, at in voter.listeners] == [("CONTROLLER", node.controller_port)]


def test_brokers_have_the_first_ids_and_only_controllers_are_voters(tmp_path: Path) -> None:
    state = prepared(tmp_path, controllers=3, brokers=2).state
    assert [node.roles for node in state.nodes] == [BROKER, BROKER, CONTROLLER, CONTROLLER, CONTROLLER]
    assert [first_voters(node) is None for node in state.nodes] == [True, True, False, False, False]
    voters = first_voters(state.nodes[2])
    assert voters is not None and [voter.id for voter in voters.voters] == [3, 4, 5]


def test_ports_are_the_next_free_ones_from_the_given_one(tmp_path: Path) -> None:
    start = random_free_port("127.0.0.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", start))
        taken.listen()
        nodes = prepare(str(tmp_path), Topology(controllers=2, brokers=2), start, {}).state.nodes
    ports = [node.ports[0] for node in nodes]
    assert ports == sorted(ports) and ports[0] > start and all(len(node.ports) == 1 for node in nodes)


def test_preparing_again_changes_nothing(tmp_path: Path) -> None:
    prepared(tmp_path, nodes=3)
    before = files(tmp_path)
    assert prepared(tmp_path, nodes=3).joining == []
    assert files(tmp_path) == before


def test_a_node_added_later_is_an_observer_with_a_new_directory_id(tmp_path: Path) -> None:
    before = prepared(tmp_path, nodes=1).state
    after = prepared(tmp_path, nodes=3)
    assert [node.id for node in after.joining] == [2, 3]
    assert [first_voters(node) is None for node in after.state.nodes] == [False, True, True]
    assert len({identity(node).directory_id for node in after.state.nodes}) == 3
    assert after.state.nodes[0] == before.nodes[0]


def test_an_interrupted_preparation_continues_with_the_same_ids_ports_and_voters(tmp_path: Path) -> None:
    whole = prepared(tmp_path, nodes=3).state
    voters = first_voters(whole.nodes[0])
    # As if we had been killed after the first node was formatted, before the list was written.
    shutil.rmtree(whole.nodes[1].data)
    shutil.rmtree(whole.nodes[2].data)
    write_state(str(tmp_path), ClusterState(whole.cluster_id, [], whole.nodes))
    assert "planned" in json.loads((tmp_path / "cluster.json").read_text())
    again = prepared(tmp_path, nodes=3).state
    assert again == whole
    assert [first_voters(node) for node in again.nodes] == [voters] * 3
    assert "planned" not in json.loads((tmp_path / "cluster.json").read_text())


def test_without_cluster_json_existing_directories_keep_their_voters(tmp_path: Path) -> None:
    before = prepared(tmp_path, nodes=3).state
    kept = identity(before.nodes[0])
    (tmp_path / "cluster.json").unlink()
    shutil.rmtree(before.nodes[1].data)
    forgotten = identity(before.nodes[2]).directory_id
    after = prepared(tmp_path, nodes=3).state
    assert after.cluster_id == before.cluster_id and identity(after.nodes[0]) == kept
    assert first_voters(after.nodes[1]) is None
    assert identity(after.nodes[2]).directory_id == forgotten


def test_an_emptied_directory_is_rejected_with_a_remedy(tmp_path: Path) -> None:
    state = prepared(tmp_path, nodes=3).state
    shutil.rmtree(state.nodes[1].data)
    with pytest.raises(DataDirectoryEmpty) as error:
        check_startable(state.nodes[1], state, {}, str(tmp_path))
    assert "--replace 2" in str(error.value) and "quorum remove 2" in str(error.value)
    assert not Path(state.nodes[1].data).exists()


def test_a_replaced_node_has_a_new_directory_id_and_no_vote(tmp_path: Path) -> None:
    state = prepared(tmp_path, nodes=3).state
    before = identity(state.nodes[1])
    shutil.rmtree(state.nodes[1].data)
    replace(state.nodes[1], state, {})
    after = identity(state.nodes[1])
    assert (after.cluster_id, after.node_id) == (before.cluster_id, before.node_id)
    assert after.directory_id != before.directory_id and first_voters(state.nodes[1]) is None
    assert read_state(str(tmp_path)) == state


def test_only_an_empty_node_is_replaced_and_only_with_other_controllers(tmp_path: Path) -> None:
    state = prepared(tmp_path, nodes=1).state
    with pytest.raises(NotReplaceable, match="only a node with an empty directory"):
        replace(state.nodes[0], state, {})
    shutil.rmtree(state.nodes[0].data)
    with pytest.raises(NotReplaceable, match="the only controller"):
        replace(state.nodes[0], state, {})


@pytest.mark.parametrize("port", [9092, 29092, 45092])
def test_controller_ports_are_not_ephemeral_ports(tmp_path: Path, port: int) -> None:
    state = prepare(str(tmp_path), Topology(nodes=2), port, {}).state
    for node in state.nodes:
        assert node.controller_port is not None and node.controller_port < max(FIRST_EPHEMERAL_PORT, port)


def test_a_node_with_a_directory_of_another_cluster_is_not_started(tmp_path: Path) -> None:
    state = prepared(tmp_path, nodes=1).state
    (node,) = state.nodes
    check_startable(node, state, {}, str(tmp_path))
    meta = Path(node.data, "meta.properties")
    meta.write_text(meta.read_text().replace(state.cluster_id, "AAAAAAAAAAAAAAAAAAAAAg"))
    with pytest.raises(
        ClusterIdMismatch, match=f"node 1 belongs to cluster {state.cluster_id}, but .* AAAAAAAAAAAAAAAAAAAAAg"
    ):
        check_startable(node, state, {}, str(tmp_path))


def test_only_the_port_of_a_killed_process_is_waited_for(tmp_path: Path) -> None:
    state = prepared(tmp_path, nodes=1).state
    (node,) = state.nodes
    with socket.create_server((node.host, node.port or 0)) as dying:
        with pytest.raises(PortInUse):
            check_startable(node, state, {}, str(tmp_path))
        node.pid = 1
        threading.Timer(0.05, dying.close).start()
        check_startable(node, state, {}, str(tmp_path))
        assert dying.fileno() == -1
