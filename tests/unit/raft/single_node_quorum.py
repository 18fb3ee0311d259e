"""A quorum of one node on a simulated machine; tests append metadata records to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from strandline.metadata.image import Image
from strandline.model.ids import Endpoint, Uuid
from strandline.model.timeline import Touched
from strandline.protocol.messages.metadata_records import ConfigRecord, FeatureLevelRecord
from strandline.protocol.types import Message
from strandline.raft.disk.batches import MetadataBatch, read_batches
from strandline.raft.disk.snapshots import write_first_voters
from strandline.raft.disk.storage import METADATA_PARTITION, MetadataStorage, StorageSettings
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.voters import Voter, VoterSet
from strandline.raft.shell import driver
from strandline.raft.shell.replay import QuorumListener
from strandline.raft.shell.snapshot_generator import SnapshotSettings
from strandline.runtime.disk import Disk
from strandline.runtime.metrics import Metrics
from strandline.runtime.world import World
from strandline.simulation.disk import SimDisk
from strandline.simulation.world import Simulation

HOME = "/data"
PARTITION = f"{HOME}/{METADATA_PARTITION}"
DIRECTORY = Uuid.of(6, 6666)
ONE_VOTER = VoterSet((Voter(1, DIRECTORY, (("CONTROLLER", Endpoint("h", 9093)),)),))


def format_dynamic(disk: Disk) -> None:
    disk.make_dirs(HOME)
    disk.sync_dir("/")
    write_first_voters(disk, PARTITION, ONE_VOTER, wall_ms=1)


def setting(number: int) -> list[Message]:
    """A batch that sets the config `number` of resource "r"."""
    return [ConfigRecord(resource_type=2, resource_name="r", name=str(number), value=str(number))]


def settings_in(image: Image) -> list[int]:
    return sorted(map(int, image.committed.configs(2, "r")))


def first_batch() -> list[Message]:
    return [FeatureLevelRecord(name="metadata.version", feature_level=30)]


def batches_in(storage: MetadataStorage, offset: int = 0) -> list[MetadataBatch]:
    """The batches of the log from this offset on."""
    return [
        batch
        for data, position, header in storage.chunks_from(offset)
        for batch in read_batches(data[position : position + header.size_bytes], storage.path)
    ]


class SingleNodeQuorum(QuorumListener):
    def __init__(
        self,
        world: World,
        *,
        node_id: int = 1,
        directory_id: Uuid = DIRECTORY,
        configured: VoterSet | None = None,
        snapshot_settings: SnapshotSettings | None = None,
        storage: StorageSettings | None = None,
        on_commit: Callable[[list[Touched]], Iterator[None] | None] | None = None,
    ) -> None:
        self.image = Image()
        self.metrics = Metrics()
        self.storage = MetadataStorage.open(world.disk, HOME, wall_ms=world.clock.wall_ms(), settings=storage)
        self.voter = driver.Quorum(
            self.storage,
            self.image,
            world.clock,
            world.offload,
            NoPeers(),
            world.random,
            me=Voter(node_id, directory_id, (("CONTROLLER", Endpoint("h", 9093)),)),
            cluster_id="a cluster of one",
            is_controller=True,
            settings=QuorumSettings(),
            configured_voters=configured,
            snapshot_settings=snapshot_settings,
            metrics=self.metrics,
        )
        self.leading = asyncio.Event()
        self._on_commit = on_commit
        self.voter.register(self)

    def on_commit(self, touched: list[Touched]) -> Iterator[None] | None:
        return None if self._on_commit is None else self._on_commit(touched)

    def on_leading(self, epoch: int) -> None:
        self.leading.set()

    def append(self, records: list[Message]) -> int:
        """Replayed and appended, as a controller does it."""
        self.image.replay_batch(self.voter.end_offset, records)
        return self.voter.append(records)

    async def write(self, records: list[Message]) -> None:
        last = self.append(records)
        await self.voter.committed.reached(last + 1)

    @asynccontextmanager
    async def running(self) -> Any:
        await self.voter.start()
        run = asyncio.create_task(self.voter.run())
        try:
            await self.leading.wait()
            yield self
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
            await self.voter.close()


class NoPeers:
    """A sole voter has no peers."""

    async def call(self, endpoint: Endpoint, request: Message, *, timeout_ms: int) -> Message:
        raise AssertionError(f"{request} to {endpoint}")

    async def refuses_connections(self, endpoint: Endpoint) -> bool:
        raise AssertionError(f"probe of {endpoint}")


def run_processes(*processes: Callable[[World], Awaitable[None]], seed: int = 1) -> None:
    """Each process is one process; all run one after the other on the same machine."""
    with Simulation(seed=seed) as simulation:

        async def scenario() -> None:
            machine = simulation.machine("node")
            for process in processes:

                async def program(world: World, process: Callable[[World], Awaitable[None]] = process) -> None:
                    await process(world)

                await machine.boot(program)

        simulation.run(scenario(), max_virtual_s=20_000)


def disk_of(world: World) -> SimDisk:
    assert isinstance(world.disk, SimDisk)
    return world.disk
