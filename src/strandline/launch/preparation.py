"""Prepares the directory of a cluster: chooses nodes and ports, formats each node once.

Called by `launch/cluster` with the directory locked. Invariant: a node listed in cluster.json is never formatted again,
except by `replace`, which makes it an observer.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping

import msgspec

from strandline.launch.cluster_state import ClusterState, NodeState, Roles, read_state, write_state
from strandline.launch.errors import ClusterIdMismatch, DataDirectoryEmpty, NotReplaceable, PortInUse
from strandline.launch.formatting import (
    cluster_on_disk,
    format_node,
    is_formatted,
    meta_properties_on_disk,
    metadata_directory,
)
from strandline.launch.ports import FIRST_EPHEMERAL_PORT, next_free_port, random_free_port, wait_until_free
from strandline.launch.server_properties import node_properties
from strandline.launch.topology import Topology
from strandline.model.ids import random_uuid

HOST = "127.0.0.1"
CONTROLLER_PORT_DISTANCE = 10_000
PORT_RELEASE_SECONDS = 10.0


class Prepared(msgspec.Struct, frozen=True):
    state: ClusterState
    joining: list[NodeState]
    """Controllers added to an existing cluster: they are not voters yet."""


def prepare(directory: str, topology: Topology, port: int | None, settings: Mapping[str, str]) -> Prepared:
    """Chooses ports, formats new nodes, and records them in cluster.json afterwards."""
    state = read_state(directory)
    if state is None:
        existing = _existing_cluster_id(directory)
        state = ClusterState(existing or str(random_uuid(random.SystemRandom())))
        write_state(directory, state)
    joining: list[NodeState] = []
    while planned := state.planned or _plan(directory, state, topology, port):
        initial_controllers: list[NodeState] = []
        if not state.nodes and (state.planned or _existing_cluster_id(directory) is None):
            initial_controllers = [node for node in planned if node.is_controller]
        else:
            joining += [node for node in planned if node.is_controller and state.nodes]
        state.planned = planned
        write_state(directory, state)
        for node in planned:
            format_node(node, state, settings, initial_controllers)
        for node in planned:
            state.add(node)
        state.planned = []
        write_state(directory, state)
    return Prepared(state, joining)


def _existing_cluster_id(directory: str) -> str | None:
    """The cluster id of the first formatted node directory."""
    names = sorted(name for name in os.listdir(directory) if name.startswith("node-"))
    paths = [path for name in names if os.path.isdir(path := os.path.join(directory, name))]
    identities = (meta_properties_on_disk(path) for path in paths)
    return next((each.cluster_id for each in identities if each is not None), None)


def _plan(directory: str, state: ClusterState, topology: Topology, port: int | None) -> list[NodeState]:
    planned: list[NodeState] = []
    for roles in topology.missing(state.nodes):
        planned.append(_new_node(directory, [*state.nodes, *planned], roles, port))
    return planned


def _new_node(directory: str, present: list[NodeState], roles: Roles, port: int | None) -> NodeState:
    """A node whose ports are the next free ones. The controller port of a combined node is at a distance from the
    broker ports, and below the ephemeral ports."""
    node_id = max((node.id for node in present), default=0) + 1
    taken = {each for node in present for each in node.ports}
    data = os.path.join(directory, f"node-{node_id}")
    node = NodeState(node_id, None, HOST, None, None, data, f"{data}.log", roles)
    if node.is_broker:
        node.port = random_free_port(HOST, taken) if port is None else next_free_port(HOST, port, taken)
        taken.add(node.port)
    if not node.is_controller:
        return node
    if port is None:
        node.controller_port = random_free_port(HOST, taken)
    elif node.is_broker:
        above, below = port + CONTROLLER_PORT_DISTANCE, port - CONTROLLER_PORT_DISTANCE
        node.controller_port = next_free_port(HOST, above if above < FIRST_EPHEMERAL_PORT else below, taken)
    else:
        node.controller_port = next_free_port(HOST, port, taken)
    return node


def check_startable(node: NodeState, state: ClusterState, settings: Mapping[str, str], directory: str) -> None:
    """Raises LaunchError unless the directory is the node's and its ports are free, or are released in time."""
    properties = node_properties(node, state.nodes, settings)
    if not is_formatted(properties):
        others = _other_controllers(node, state)
        raise DataDirectoryEmpty(node.id, metadata_directory(properties), directory, others=others)
    found = cluster_on_disk(properties)
    if found != state.cluster_id:
        raise ClusterIdMismatch(node.id, metadata_directory(properties), found, state.cluster_id)
    timeout_seconds = 0.0 if node.pid is None else PORT_RELEASE_SECONDS
    for port in node.ports:
        if not wait_until_free(node.host, port, timeout_seconds):
            raise PortInUse(node.id, node.host, port)


def replace(node: NodeState, state: ClusterState, settings: Mapping[str, str]) -> None:
    """Formats a node whose directory is empty with a new directory id, as an observer."""
    properties = node_properties(node, state.nodes, settings)
    where = metadata_directory(properties)
    if is_formatted(properties):
        raise NotReplaceable(
            f"node {node.id} is formatted in {where}: only a node with an empty directory is replaced. "
            "To discard its data, move that directory away first"
        )
    if not _other_controllers(node, state):
        raise NotReplaceable(
            f"node {node.id} is the only controller of this cluster: the metadata that was in {where} exists nowhere "
            "else. Restore it from a backup, or start a new cluster in another --data directory"
        )
    format_node(node, state, settings, initial_controllers=[])


def _other_controllers(node: NodeState, state: ClusterState) -> bool:
    return any(each.is_controller and each.id != node.id for each in state.nodes)
