"""An unmodified node on a simulated machine: its config, its formatted storage, its program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

from strandline.node.config import Config
from strandline.node.node import Node
from strandline.node.storage import FormatPlan, format_storage
from strandline.runtime.disk import Disk
from strandline.runtime.world import World

PORT = 9092
CLUSTER_ID = "c2ltdWxhdGVkY2x1c3Rlcg"

TINY: Mapping[str, str] = {
    "log.roll.ms": "2000",
    "log.index.size.max.bytes": "96",
    "log.index.interval.bytes": "200",
    "log.retention.check.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.flush.start.offset.checkpoint.interval.ms": "1100",
    "log.segment.delete.delay.ms": "300",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "num.partitions": "1",
}
"""Limits so small that rolls, retention, checkpoints and snapshots happen all the time."""


def node_config(machine: str, node_id: int = 1, overrides: Mapping[str, str] | None = None) -> Config:
    """The config of a single node that is broker and controller."""
    return Config.of(
        {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{machine}:{PORT},CONTROLLER://{machine}:{PORT + 1}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"{machine}:{PORT + 1}",
            "log.dirs": "/data",
            **TINY,
            **(overrides or {}),
        },
        hostname=machine,
        where=f"{machine}.properties",
    )


def format_node(config: Config, disk: Disk, random: Random) -> None:
    plan = FormatPlan(standalone=True)
    format_storage(config, CLUSTER_ID, plan, disk=disk, random=random, wall_ms=1_800_000_000_000)


def node_program(
    config: Config, stop: asyncio.Event, on_ready: Callable[[Node], None] | None = None
) -> Callable[[World], Coroutine[Any, Any, None]]:
    """The program to boot a machine with: runs the node until `stop` is set."""

    async def program(world: World) -> None:
        try:
            await Node(config, world).run(stop, on_ready)
        finally:
            world.close()

    return program
