"""Formatting the nodes that `up` makes: a quorum of their own that can change (kraft.version 1), once in their life."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from strandline.launch.cluster_state import ClusterState, NodeState
from strandline.launch.errors import LaunchError
from strandline.launch.server_properties import node_properties
from strandline.model.ids import random_uuid

if TYPE_CHECKING:
    from strandline.node.meta_properties import MetaProperties


def metadata_directory(properties: Mapping[str, str]) -> str:
    """Where the node keeps its vote: the directory that must never be formatted a second time."""
    return properties.get("metadata.log.dir") or properties["log.dirs"].split(",")[0].strip()


def is_formatted(properties: Mapping[str, str]) -> bool:
    return os.path.exists(_identity_file(properties))


def cluster_on_disk(properties: Mapping[str, str]) -> str | None:
    """Of which cluster the node's directory says it is; read without the node's own code, which takes time to load."""
    with open(_identity_file(properties), encoding="utf-8", errors="replace") as file:
        pairs = [line.strip().partition("=") for line in file]
    return next((value.strip() for key, _, value in pairs if key.strip() == "cluster.id"), None)


def _identity_file(properties: Mapping[str, str]) -> str:
    return os.path.join(metadata_directory(properties), "meta.properties")


def meta_properties_on_disk(directory: str) -> MetaProperties | None:
    """Whose directory this is; None if it is nobody's yet."""
    from strandline.node.meta_properties import MetaPropertiesUnreadable, read_meta_properties
    from strandline.runtime.disk import SystemDisk

    try:
        return read_meta_properties(SystemDisk(), directory)
    except (OSError, MetaPropertiesUnreadable) as error:
        raise LaunchError(str(error)) from error


def format_node(node: NodeState, state: ClusterState, settings: Mapping[str, str], founders: list[NodeState]) -> None:
    """`founders` are the controllers of a new cluster, its first voters; one that is none of them has no vote until
    it is added (`quorum add`), and a new directory id, so that nobody takes it for a voter that was there before.

    A directory that was formatted for this cluster already (we were interrupted before we could write that down) is
    left as it is.
    """
    from strandline.node.config import Config, InvalidConfig
    from strandline.node.storage import FormatPlan, StorageError, format_storage
    from strandline.runtime.disk import SystemDisk

    is_founder = any(founder.id == node.id for founder in founders)
    try:
        config = Config.of(node_properties(node, [*state.nodes, *state.planned], settings), where="--set")
        plan = FormatPlan(
            standalone=is_founder and len(founders) == 1,
            initial_controllers=_initial_controllers(founders, state.cluster_id)
            if is_founder and len(founders) > 1
            else None,
            no_initial_controllers=node.is_controller and not is_founder,
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
    except (InvalidConfig, StorageError) as error:
        raise LaunchError(str(error)) from error
    except OSError as error:
        raise LaunchError(f"node {node.id} cannot be formatted in {node.data}: {error.strerror}") from error


def _initial_controllers(founders: list[NodeState], cluster_id: str) -> str:
    """The same words for every founder, also if we are interrupted between two of them and begin again."""
    voters = []
    for node in founders:
        directory_id = random_uuid(random.Random(f"{cluster_id}/{node.id}"))
        voters.append(f"{node.id}@{node.controller_endpoint}:{directory_id}")
    return ",".join(voters)
