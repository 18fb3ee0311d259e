"""A broker that fetches a snapshot while its own disk is full or fails."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import pytest

from strandline.metadata.image import Image
from strandline.model.errors import ErrorCode, NodeFault
from strandline.model.ids import Endpoint, Uuid
from strandline.protocol.messages import fetch as fetching
from strandline.protocol.messages.fetch import FetchRequest
from strandline.protocol.messages.quorum import FetchSnapshotRequest
from strandline.protocol.types import Message
from strandline.raft.disk.snapshots import SnapshotWriter
from strandline.raft.disk.storage import MetadataStorage
from strandline.raft.machine.messages import fetch_response, fetch_snapshot_response
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.values import KnownLeader, SnapshotId
from strandline.raft.machine.voters import Voter
from strandline.raft.shell.driver import Quorum
from strandline.runtime.world import World
from strandline.simulation.disk import Fault, SimDisk
from strandline.simulation.volume import Volume
from unit.raft.single_node_quorum import HOME, ONE_VOTER, PARTITION, run_processes, setting, settings_in

OFFERED = SnapshotId(50, 3)
CHUNKS = 3


class LeaderWithSnapshot:
    """All it has is one snapshot, which it sends in three chunks."""

    def __init__(self) -> None:
        disk = SimDisk(Volume())
        disk.make_dirs("/elsewhere")
        writer = SnapshotWriter(disk, "/elsewhere/snapshot", epoch=OFFERED.epoch, metadata_version=30)
        writer.begin(last_timestamp=1, wall_ms=1)
        writer.append([record for number in range(40) for record in setting(number)], wall_ms=1)
        writer.finish(wall_ms=1)
        self.content = disk.read("/elsewhere/snapshot")
        self.chunks_sent = 0
        self.on_first_piece: Callable[[], None] = lambda: None

    async def call(self, endpoint: Endpoint, request: Message, *, timeout_ms: int) -> Message:
        await asyncio.sleep(0.01)
        known = KnownLeader(OFFERED.epoch, 1, ONE_VOTER.voters[0].endpoint)
        if isinstance(request, FetchRequest):
            response = fetch_response(known, ErrorCode.NONE, high_watermark=OFFERED.end_offset, log_start_offset=50)
            if request.topics[0].partitions[0].fetch_offset < OFFERED.end_offset:
                offered = fetching.SnapshotId(end_offset=OFFERED.end_offset, epoch=OFFERED.epoch)
                response.responses[0].partitions[0].snapshot_id = offered
            return response
        assert isinstance(request, FetchSnapshotRequest)
        position, size = request.topics[0].partitions[0].position, len(self.content)
        chunk = fetch_snapshot_response(known, ErrorCode.NONE, OFFERED, position=position, size=size)
        chunk_bytes = -(-size // CHUNKS)
        chunk.topics[0].partitions[0].unaligned_records = self.content[position : position + chunk_bytes]
        if self.chunks_sent == 0:
            self.on_first_piece()
        self.chunks_sent += 1
        return chunk

    async def refuses_connections(self, endpoint: Endpoint) -> bool:
        return False


class Broker:
    def __init__(self, world: World) -> None:
        assert isinstance(world.disk, SimDisk)
        world.disk.make_dirs(HOME)
        self.disk, self.image, self.leader = world.disk, Image(), LeaderWithSnapshot()
        self.storage = MetadataStorage.open(world.disk, HOME, wall_ms=world.clock.wall_ms())
        self.quorum = Quorum(
            self.storage,
            self.image,
            world.clock,
            world.offload,
            self.leader,
            world.random,
            me=Voter(7, Uuid.of(7, 7)),
            cluster_id="a cluster with a broker",
            is_controller=False,
            settings=QuorumSettings(),
            configured_voters=ONE_VOTER,
        )


@pytest.mark.parametrize(
    ("kind", "after"),
    [("create", 0), *(("write", chunk) for chunk in range(CHUNKS)), ("sync", 0), ("rename", 0), ("sync_dir", 0)],
)
def test_a_broker_with_a_full_disk_fetches_the_snapshot_again_when_there_is_room(kind: str, after: int) -> None:
    async def process(world: World) -> None:
        broker = Broker(world)
        full: list[Fault] = []
        part = f"{PARTITION}/{OFFERED.file_name}.part"
        await broker.quorum.start()
        broker.leader.on_first_piece = lambda: full.append(
            broker.disk.fail(kind, under=PARTITION if kind == "sync_dir" else part, code=errno.ENOSPC, after=after)
        )
        run = asyncio.create_task(broker.quorum.run())
        await asyncio.sleep(10)
        assert not run.done() and settings_in(broker.image) == []
        assert broker.leader.chunks_sent < 100, "there is a backoff in between"
        assert broker.quorum.leader.id == 1
        broker.disk.remove_fault(full[0])
        await broker.quorum.high_watermark.reached(OFFERED.end_offset)
        assert settings_in(broker.image) == list(range(40))
        assert broker.storage.snapshots == [OFFERED] and not broker.disk.exists(part)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await broker.quorum.close()

    run_processes(process)


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_disk_that_fails_during_a_snapshot_stops_the_broker(kind: str) -> None:
    async def process(world: World) -> None:
        broker = Broker(world)
        broker.disk.fail(kind, under=f"{PARTITION}/{OFFERED.file_name}.part", code=errno.EIO)
        await broker.quorum.start()
        with pytest.raises(NodeFault, match="cannot be used any more"):
            await broker.quorum.run()

    run_processes(process)
