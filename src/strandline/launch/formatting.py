"""Formats the nodes that `up` creates for a dynamic quorum (kraft.version 1), and reads their meta.properties."""

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
    """The directory of the metadata log and the node's vote, which must never be formatted a second time."""
    return properties.get("metadata.log.dir") or properties["log.dirs"].split(",")[0].strip()


def is_formatted(properties: Mapping[str, str]) -> bool:
    return os.path.exists(_meta_properties_file(properties))


def cluster_on_disk(properties: Mapping[str, str]) -> str | None:
    """The cluster id in the node's meta.properties, read without importing the node package, which takes time."""
    with open(_meta_properties_file(properties), encoding="utf-8", errors="replace") as file:
        pairs = [line.strip().partition("=") for line in file]
    return next((value.strip() for key, _, value in pairs if key.strip() == "cluster.id"), None)


def _meta_properties_file(properties: Mapping[str, str]) -> str:
    return os.path.join(metadata_directory(properties), "meta.properties")


def meta_properties_on_disk(directory: str) -> MetaProperties | None:
    """The meta.properties of a directory; None if it is not formatted."""
    from strandline.node.meta_properties import MetaPropertiesUnreadable, read_meta_properties
    from strandline.runtime.disk import SystemDisk

    try:
        return read_meta_properties(SystemDisk(), directory)
    except (OSError, MetaPropertiesUnreadable) as error:
        raise LaunchError(str(error)) from error


def format_node(
    node: NodeState, state: ClusterState, settings: Mapping[str, str], initial_controllers: list[NodeState]
) -> None:
    """`initial_controllers` are the initial voters of a new cluster. Any other controller is an observer until it is
    added (`quorum add`), with a new directory id, so that it is not taken for a former voter.

    A directory that is already formatted for this cluster (by an interrupted `up`) is not changed.
    """
    from strandline.node.config import Config, InvalidConfig
    from strandline.node.storage import FormatPlan, StorageError, format_storage
    from strandline.runtime.disk import SystemDisk

    is_initial = any(each.id == node.id for each in initial_controllers)
    try:
        config = Config.of(node_properties(node, [*state.nodes, *state.planned], settings), where="--set")
        plan = FormatPlan(
            standalone=is_initial and len(initial_controllers) == 1,
            initial_controllers=_voter_list(initial_controllers, state.cluster_id)
            if is_initial and len(initial_controllers) > 1
            else None,
            no_initial_controllers=node.is_controller and not is_initial,
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


def _voter_list(controllers: list[NodeState], cluster_id: str) -> str:
    """Deterministic: the same for every initial voter, also after an interrupted `up`."""
    voters = []
    for node in controllers:
        directory_id = random_uuid(random.Random(f"{cluster_id}/{node.id}"))
        voters.append(f"{node.id}@{node.controller_endpoint}:{directory_id}")
    return ",".join(voters)
