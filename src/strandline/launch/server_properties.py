"""The properties file of a node that `up` starts: Kafka's keys, written anew at every start.

The node itself reads it like any other server.properties, so a person may copy it and carry on with
`strandline server`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from strandline.launch.cluster_state import NodeState
from strandline.launch.errors import ConfigOverrideRejected
from strandline.node.properties_file import format_properties

COMMENT = "Written by `strandline up` at every start: change settings with --set key=value."
CONTROLLER_LISTENER = "CONTROLLER"
_DECIDED = frozenset(
    {
        "broker.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "listeners",
        "node.id",
        "process.roles",
    }
)


def node_properties(node: NodeState, nodes: list[NodeState], settings: Mapping[str, str]) -> dict[str, str]:
    """What the node is told; `settings` have the last word."""
    return {
        "process.roles": ",".join(node.roles),
        "node.id": str(node.id),
        "controller.quorum.bootstrap.servers": ",".join(
            each.controller_endpoint for each in nodes if each.is_controller
        ),
        "controller.listener.names": CONTROLLER_LISTENER,
        **_listeners(node),
        "listener.security.protocol.map": f"{CONTROLLER_LISTENER}:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": node.data,
        **_copies(nodes),
        **settings,
    }


def _listeners(node: NodeState) -> dict[str, str]:
    for_clients = f"PLAINTEXT://{node.host}:{node.port}"
    for_controllers = f"{CONTROLLER_LISTENER}://{node.controller_endpoint}"
    if not node.is_broker:
        return {"listeners": for_controllers}
    return {
        "listeners": f"{for_clients},{for_controllers}" if node.is_controller else for_clients,
        "advertised.listeners": for_clients,
        "inter.broker.listener.name": "PLAINTEXT",
    }


def _copies(nodes: list[NodeState]) -> dict[str, str]:
    """Three of everything where there are brokers for them. Kafka's defaults are one for topics, which is no copy at
    all, and three for its own, with which fewer brokers could not begin."""
    replicas = max(1, min(3, sum(each.is_broker for each in nodes)))
    in_sync = max(1, replicas - 1)
    return {
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
    }


def write_properties(path: str, properties: Mapping[str, str]) -> None:
    temporary = path + ".tmp"
    with open(temporary, "wb") as file:
        file.write(format_properties(properties, comment=COMMENT))
    os.replace(temporary, path)


def check_settings(settings: Mapping[str, str]) -> tuple[str, ...]:
    """What a node will warn about. Refuses what no node can run with, and what the launcher decides itself."""
    for key in settings:
        if key in _DECIDED:
            raise ConfigOverrideRejected(
                f"--set {key} is not possible: `up` decides it and writes it to cluster.json. For a node that is "
                "wholly your own write a server.properties and run `strandline server`"
            )
    if not settings:
        return ()
    from strandline.node.config import Config, InvalidConfig

    # Any node will do: what differs between nodes cannot be set.
    node = NodeState(1, None, "127.0.0.1", 9092, 19092, "/data", "/data.log")
    try:
        return Config.of(node_properties(node, [node], settings), where="--set").warnings
    except InvalidConfig as error:
        raise ConfigOverrideRejected(str(error)) from error
