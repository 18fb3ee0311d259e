"""`cluster.json`: the cluster of a data directory.

Scripts read this file, so its keys are a contract: cluster_id, bootstrap, nodes (id, pid, host, port, controller_port,
data, log, roles). A listed node has been formatted, whatever happened to its disk since: an emptied disk is therefore
never formatted a second time. `pid` is null while `up` knows that the node is stopped; a number may be stale
(`launch/processes` checks it). A node that is not a broker has no `port`, one that is not a controller no
`controller_port`.

While new nodes are being formatted they are in a separate list, `planned`: an interrupted `up` continues with the same
ids and ports, since they are part of the initial voter set.
"""

from __future__ import annotations

import json
import os
from typing import Any

import msgspec

STATE_FILE = "cluster.json"

Roles = tuple[str, ...]
BROKER: Roles = ("broker",)
CONTROLLER: Roles = ("controller",)
COMBINED: Roles = ("broker", "controller")


class StateUnreadable(Exception):
    """`cluster.json` is invalid or cannot be read."""


class NodeState(msgspec.Struct):
    id: int
    pid: int | None
    host: str
    port: int | None
    controller_port: int | None
    data: str
    log: str
    roles: Roles = COMBINED

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def endpoint(self) -> str:
        """The broker listener, or the controller listener of a node that is not a broker."""
        return f"{self.host}:{self.controller_port if self.port is None else self.port}"

    @property
    def controller_endpoint(self) -> str:
        return f"{self.host}:{self.controller_port}"

    @property
    def ports(self) -> list[int]:
        return [port for port in (self.port, self.controller_port) if port is not None]

    @property
    def properties(self) -> str:
        return os.path.join(self.data, "server.properties")


class ClusterState(msgspec.Struct):
    cluster_id: str
    nodes: list[NodeState] = msgspec.field(default_factory=list)
    planned: list[NodeState] = msgspec.field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.endpoint for node in self.nodes if node.is_broker)

    def node(self, node_id: int) -> NodeState | None:
        return next((node for node in self.nodes if node.id == node_id), None)

    def add(self, node: NodeState) -> None:
        self.nodes = sorted([*self.nodes, node], key=lambda each: each.id)

    def as_json(self) -> dict[str, Any]:
        document = {
            "cluster_id": self.cluster_id,
            "bootstrap": self.bootstrap,
            "nodes": [msgspec.structs.asdict(node) for node in self.nodes],
        }
        if self.planned:
            document["planned"] = [msgspec.structs.asdict(node) for node in self.planned]
        return document


def read_state(directory: str) -> ClusterState | None:
    path = os.path.join(directory, STATE_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        nodes = [_node(entry) for entry in content["nodes"]]
        planned = [_node(entry) for entry in content.get("planned", [])]
        return ClusterState(str(content["cluster_id"]), sorted(nodes, key=lambda node: node.id), planned)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateUnreadable(f"{path} cannot be read: {error.strerror}; choose another --data directory") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateUnreadable(
            f"{path} cannot be read ({_damage(error)}); it is written by `strandline up` and contains the "
            "cluster id and the nodes: restore it from a copy, or use another --data directory"
        ) from error


def _damage(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]}"
    if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError, TypeError, AttributeError)):
        return "it is not valid"
    return str(error)


def write_state(directory: str, state: ClusterState) -> None:
    """Atomically: neither a reader nor a crash sees a partial file."""
    path = os.path.join(directory, STATE_FILE)
    temporary = path + ".tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(state.as_json(), file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _node(entry: dict[str, Any]) -> NodeState:
    # Files without roles are of combined nodes.
    known = {"roles": COMBINED, **entry}
    node = NodeState(**{name: known[name] for name in NodeState.__struct_fields__})
    node.roles = tuple(node.roles)
    if node.roles not in (BROKER, CONTROLLER, COMBINED):
        raise ValueError(f"the roles of a node are broker, controller or both, not {', '.join(map(str, node.roles))}")
    numbers: list[object] = [node.id, node.pid or 0]
    numbers += [node.port] if node.is_broker else []
    numbers += [node.controller_port] if node.is_controller else []
    if not all(isinstance(number, int) for number in numbers):
        raise ValueError("a node's id, pid and ports must be numbers")
    return node
