"""The server.properties of a node that `up` starts, written at every start.

It is an ordinary properties file: a copy of it can be used with `strandline server`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from strandline.launch.cluster_state import NodeState
from strandline.launch.errors import ConfigOverrideRejected
from strandline.node.properties_file import format_properties

COMMENT = "Written by `strandline up` at every start: change settings with --set key=value."
CONTROLLER_LISTENER = "CONTROLLER"
_SET_BY_UP = frozenset(
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
    """The node's configs; `settings` take precedence."""
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
        **_replication_configs(nodes),
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


def _replication_configs(nodes: list[NodeState]) -> dict[str, str]:
    """Three replicas if there are enough brokers; Kafka's default is one, which tolerates no failure. Those of
    `__consumer_offsets` and `__transaction_state` are not set: a node fits them to the brokers there are, and raises
    them when brokers join."""
    replicas = max(1, min(3, sum(each.is_broker for each in nodes)))
    in_sync = max(1, replicas - 1)
    return {
        "default.replication.factor": str(replicas),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
    }


def write_properties(path: str, properties: Mapping[str, str]) -> None:
    temporary = path + ".tmp"
    with open(temporary, "wb") as file:
        file.write(format_properties(properties, comment=COMMENT))
    os.replace(temporary, path)


def check_settings(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the warnings of the config. Rejects invalid values, and keys that the launcher sets itself."""
    for key in settings:
        if key in _SET_BY_UP:
            raise ConfigOverrideRejected(
                f"--set {key} is not possible: `up` sets it and records it in cluster.json. To set it yourself, "
                "write a server.properties and run `strandline server`"
            )
    if not settings:
        return ()
    from strandline.node.config import Config, InvalidConfig

    # Any node: the keys that differ between nodes cannot be set.
    node = NodeState(1, None, "127.0.0.1", 9092, 19092, "/data", "/data.log")
    try:
        return Config.of(node_properties(node, [node], settings), where="--set").warnings
    except InvalidConfig as error:
        raise ConfigOverrideRejected(str(error)) from error
