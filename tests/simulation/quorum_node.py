"""One node of a quorum on a simulated machine: the whole Raft shell, real connections, and a minimal controller.

The leader writes numbered configs one after the other, as a controller does: reserve, replay, append, wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from strandline.metadata.image import Image
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint, Uuid
from strandline.model.timeline import Touched
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from strandline.protocol.messages.metadata_records import ConfigRecord
from strandline.protocol.types import Message
from strandline.raft.disk.snapshots import write_first_voters
from strandline.raft.disk.storage import METADATA_PARTITION, MetadataStorage, StorageSettings
from strandline.raft.machine.voters import Voter
from strandline.raft.shell.driver import Quorum, SnapshotSettings
from strandline.raft.shell.replay import QuorumListener
from strandline.runtime.metrics import Metrics
from strandline.runtime.offload import Offload
from strandline.runtime.tasks import TaskGroup
from strandline.runtime.world import World
from strandline.server.dispatch import Handler
from strandline.server.peers import PeerConnections
from strandline.server.requests import Call
from strandline.server.server import Server
from strandline.server.settings import ListenerSpec, ServerSettings
from strandline.simulation.offload import SimOffload
from strandline.simulation.world import Machine

if TYPE_CHECKING:
    from simulation.quorum_cluster import QuorumCluster

HOME = "/data"
PARTITION = f"{HOME}/{METADATA_PARTITION}"
PORT = 9093
CLUSTER = "a-cluster-of-quorums"
RAFT_APIS = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)
TINY = StorageSettings(segment_bytes=1500, retention_bytes=3000)
OFTEN = SnapshotSettings(max_bytes_between=2000, max_interval_ms=20_000)
T = TypeVar("T")
KEYS = 23
"""Each number is the value of one of so many keys, so that the image stays small in a long run."""


def voter(number: int) -> Voter:
    return Voter(number, Uuid.of(7, 1000 + number), (("CONTROLLER", Endpoint(f"node{number}", PORT)),))


class HoldingOffload:
    """An offload that holds the next job of a given name until it is released: before it runs, as a busy thread would,
    or `when_done`, as a busy event loop would delay its result."""

    def __init__(self, inner: Offload) -> None:
        self._inner = inner
        self._next: tuple[str, bool] | None = None
        self._released = asyncio.Event()
        self.is_holding = False

    def hold(self, name: str, *, when_done: bool) -> None:
        self._next = name, when_done
        self._released = asyncio.Event()

    def release(self) -> None:
        self._released.set()

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        if self._next is None or getattr(work, "__name__", "") != self._next[0]:
            return await self._inner.run(work, *arguments)
        (_, when_done), self._next = self._next, None
        if when_done:
            done = await self._inner.run(work, *arguments)
            await self._hold()
            return done
        await self._hold()
        return await self._inner.run(work, *arguments)

    async def _hold(self) -> None:
        self.is_holding = True
        await self._released.wait()
        self.is_holding = False

    def close(self) -> None:
        self._inner.close()


class QuorumNode(QuorumListener):
    def __init__(
        self,
        cluster: QuorumCluster,
        number: int,
        *,
        storage: StorageSettings = TINY,
        policy: SnapshotSettings = OFTEN,
        is_controller: bool = True,
    ) -> None:
        self.number = number
        self.machine: Machine = cluster.simulation.machine(f"node{number}")
        self.quorum: Quorum
        self.image: Image
        self.storage: MetadataStorage
        self.offload: HoldingOffload
        self.task: asyncio.Task[None] | None = None
        self.is_ready = False
        self.stop = asyncio.Event()
        self.pause_s = 0.02
        self.is_controller = is_controller
        self._cluster = cluster
        self._settings = storage
        self._policy = policy
        self._writer: asyncio.Task[Any] | None = None

    @property
    def is_running(self) -> bool:
        return self.machine.process is not None and self.machine.process.alive

    def boot(self) -> None:
        self._cluster.check_running()
        self.is_ready = False
        self.stop = asyncio.Event()
        self.task = self.machine.boot(self.run)

    async def run(self, world: World) -> None:
        cluster = self._cluster
        offload = self.offload = HoldingOffload(SimOffload(world.random, threads=2))
        if not world.disk.exists(HOME):
            world.disk.make_dirs(HOME)
            world.disk.sync_dir("/")
            if cluster.dynamic is not None:
                write_first_voters(world.disk, PARTITION, cluster.dynamic, wall_ms=world.clock.wall_ms())
        self.image = Image()
        self.storage = await offload.run(
            partial(MetadataStorage.open, world.disk, HOME, wall_ms=world.clock.wall_ms(), settings=self._settings)
        )
        peers = PeerConnections(world.network, f"raft-client-{self.number}")
        self.quorum = quorum = Quorum(
            self.storage,
            self.image,
            world.clock,
            offload,
            peers,
            world.random,
            me=voter(self.number) if self.is_controller else Voter(self.number, Uuid.of(7, 1000 + self.number)),
            cluster_id=CLUSTER,
            is_controller=self.is_controller,
            settings=cluster.settings,
            configured_voters=cluster.configured,
            bootstrap=cluster.bootstrap,
            snapshot_settings=self._policy,
        )
        quorum.register(self)
        await quorum.start()
        server = Server([ListenerSpec("CONTROLLER", "", PORT, controller=True)], world, ServerSettings(), Metrics())
        await server.start({"CONTROLLER": self._handlers()})
        try:
            async with TaskGroup() as self._tasks:
                self._tasks.start(quorum.run(), "quorum")
                self.is_ready = True
                await self.stop.wait()
                await quorum.resign()
                self._tasks.cancel()
            await server.stop(100)
            await quorum.close()
        finally:
            self.is_ready = False
            peers.close()

    def _handlers(self) -> dict[int, Handler]:
        async def raft(call: Call, request: Message) -> Message:
            return await self.quorum.handle(request, call.version)

        async def versions(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
            keys = [ApiVersion(key, *API[key].request.versions) for key in (*RAFT_APIS, ApiKey.API_VERSIONS)]
            features = [SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)]
            return ApiVersionsResponse(api_keys=keys, supported_features=features)

        table = {int(key): Handler(API[key], raft, _failure) for key in RAFT_APIS}
        return {**table, int(ApiKey.API_VERSIONS): Handler(API[ApiKey.API_VERSIONS], versions, _failure)}

    def on_commit(self, touched: list[Touched]) -> None:
        self._cluster.history.on_commit(self.number, self.image)

    def on_leading(self, epoch: int) -> None:
        self._cluster.history.on_leading(self.number, epoch)
        assert self.image.end_offset == self.image.committed.offset == self.quorum.committed.value
        self._writer = self._tasks.start(self._write(), "writer")

    def on_stepped_down(self) -> None:
        assert not self.quorum.is_leader
        assert self.image.end_offset == self.quorum.committed.value
        if self._writer is not None:
            self._writer.cancel()

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(self.pause_s)
            if self._cluster.is_writing:
                await self.write_one()

    async def write_one(self) -> None:
        history, quorum = self._cluster.history, self.quorum
        try:
            number = history.written
            history.written += 1
            committed = quorum.committed
            offset = append(quorum, self.image, number)
            await committed.reached(offset + 1)
            history.acked[number] = offset
        except KafkaError as error:
            assert error.code is ErrorCode.NOT_CONTROLLER


def append(quorum: Quorum, image: Image, number: int) -> int:
    """Appends as a controller does. Returns the offset."""
    base_offset = quorum.reserve()
    record = ConfigRecord(resource_type=2, resource_name="r", name=str(number % KEYS), value=str(number))
    image.mark(base_offset)
    image.replay(record, base_offset)
    assert quorum.append([record]) == base_offset
    return base_offset


def _failure(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    response: Any = API[request.api_key].response
    return response(error_code=int(code))  # type: ignore[no-any-return]
