"""All ports to the outside in one value: production and simulation each provide one."""

from __future__ import annotations

import random
from random import Random

import msgspec

from strandline.runtime.clock import Clock, SystemClock
from strandline.runtime.disk import Disk, SystemDisk
from strandline.runtime.network import Network, SystemNetwork
from strandline.runtime.offload import Offload, ThreadOffload


class World(msgspec.Struct, frozen=True):
    clock: Clock
    disk: Disk
    network: Network
    offload: Offload
    random: Random
    metadata_offload: Offload | None = None
    """Threads reserved for the metadata log, so that a busy pool delays no election; None: there is only one pool."""

    def close(self) -> None:
        """Returns when all threads have ended."""
        self.offload.close()
        if self.metadata_offload is not None:
            self.metadata_offload.close()


def system_world(threads: int = 4) -> World:
    return World(
        SystemClock(),
        SystemDisk(),
        SystemNetwork(),
        ThreadOffload(threads),
        random.SystemRandom(),
        metadata_offload=ThreadOffload(2),
    )
