"""Formatting the nodes that `up` makes: a quorum of their own that can change (kraft.version 1), once in their life."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping

from strandline.launch.errors import LaunchError
from strandline.launch.properties import node_properties
from strandline.launch.state import ClusterState, NodeState
from strandline.model.ids import random_uuid


def metadata_directory(properties: Mapping[str, str]) -> str:
    """Where the node keeps its vote: the directory that must never be formatted a second time."""
    return properties.get("metadata.log.dir") or properties["log.dirs"].split(",")[0].strip()


def is_formatted(properties: Mapping[str, str]) -> bool:
    return os.path.exists(os.path.join(metadata_directory(properties), "meta.properties"))


def cluster_id_on_disk(directory: str) -> str | None:
    """The cluster that a directory belongs to, where cluster.json was lost but the data was not."""
    from strandline.node.identity import IdentityUnreadable, read_identity
    from strandline.runtime.disk import SystemDisk

    try:
        identity = read_identity(SystemDisk(), directory)
    except (OSError, IdentityUnreadable) as error:
        raise LaunchError(str(error)) from error
    return identity.cluster_id if identity is not None else None


def format_node(node: NodeState, state: ClusterState, settings: Mapping[str, str], founders: list[NodeState]) -> None:
    """`founders` are the first nodes of a new cluster, its first voters; a node that is none of them will join later.

    A directory that was formatted for this cluster already (we were interrupted before we could write that down) is
    left as it is.
    """
    from strandline.node.config import Config, ConfigRefused
    from strandline.node.storage import FormatPlan, StorageRefused, format_storage
    from strandline.runtime.disk import SystemDisk

    try:
        config = Config.of(node_properties(node, state.nodes, settings), where="--set")
        plan = FormatPlan(
            standalone=founders == [node],
            initial_controllers=_initial_controllers(founders, state.cluster_id) if len(founders) > 1 else None,
            no_initial_controllers=not founders,
            ignore_formatted=True,
        )
        format_storage(
            config,
            state.cluster_id,
            plan,
            disk=SystemDisk(),
            random=random.SystemRandom(),
            wall_ms=time.time_ns() // 1_000_000,
        )
    except (ConfigRefused, StorageRefused) as error:
        raise LaunchError(str(error)) from error
    except OSError as error:
        raise LaunchError(f"node {node.id} cannot be formatted in {node.data}: {error.strerror}") from error


def _initial_controllers(founders: list[NodeState], cluster_id: str) -> str:
    """The same words for every founder, also if we are interrupted between two of them and begin again."""
    voters = []
    for node in founders:
        directory_id = random_uuid(random.Random(f"{cluster_id}/{node.id}"))
        voters.append(f"{node.id}@{node.host}:{node.controller_port}:{directory_id}")
    return ",".join(voters)
