"""Quorums of several nodes on simulated machines: the whole shell, real connections, and a controller of ten lines.

Each node that leads writes numbered settings, one after the other, as a controller does: reserve, replay, append, wait.
What it was told is committed is kept in a ledger that no node can see, with whoever led which epoch and what each image
showed at each offset. `Ledger` complains at once when two of them disagree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar

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
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.voters import Voter, VoterSet
from strandline.raft.shell.driver import Quorum, SnapshotPolicy
from strandline.runtime.metrics import Metrics
from strandline.runtime.offload import Offload
from strandline.runtime.tasks import TaskGroup
from strandline.runtime.world import World
from strandline.server.dispatch import Handler
from strandline.server.peers import Peers
from strandline.server.requests import Call
from strandline.server.server import Server
from strandline.server.settings import ListenerSpec, ServerSettings
from strandline.simulation.offload import SimOffload
from strandline.simulation.world import Machine, Simulation

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
OFTEN = SnapshotPolicy(max_bytes_between=2000, max_interval_ms=20_000)
T = TypeVar("T")
# Each number is a value of one of these keys, so that an image stays small however long a run is.
KEYS = 23


def voter(number: int) -> Voter:
    return Voter(number, Uuid.of(7, 1000 + number), (("CONTROLLER", Endpoint(f"node{number}", PORT)),))


class Ledger:
    """What happened, as nobody in the cluster can know it."""

    def __init__(self) -> None:
        self.written = 0
        self.acked: dict[int, int] = {}
        """Number → the offset it was committed at."""
        self.leaders: dict[int, int] = {}
        self.images: dict[int, tuple[tuple[str, str], ...]] = {}

    def on_leading(self, node: int, epoch: int) -> None:
        known = self.leaders.setdefault(epoch, node)
        assert known == node, f"epoch {epoch} is led by {known} and by {node}"

    def on_committed(self, node: int, image: Image) -> None:
        shown = tuple(sorted(image.committed.configs(2, "r").items()))
        known = self.images.setdefault(image.committed.offset, shown)
        assert known == shown, f"node {node} shows at offset {image.committed.offset} {shown}, others saw {known}"

    def check_kept(self, image: Image) -> None:
        """Of each key the latest number that was acknowledged, or a later one."""
        shown = image.committed.configs(2, "r")
        for number, offset in self.acked.items():
            value = shown.get(str(number % KEYS))
            assert (value is not None and int(value) >= number) or self._overwritten(number), (
                f"{number} was committed at offset {offset}, and key {number % KEYS} shows {value}"
            )

    def _overwritten(self, number: int) -> bool:
        """A number that was given out later may have been committed earlier, by another leader."""
        offset = self.acked[number]
        return any(other % KEYS == number % KEYS and at > offset for other, at in self.acked.items())


class Holding:
    """An offload that keeps back the next work of a certain name until it is released: as a busy thread would, or, when
    it is done already, as a busy loop would the news of it."""

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


class Node:
    def __init__(
        self,
        stage: Stage,
        number: int,
        *,
        storage: StorageSettings = TINY,
        policy: SnapshotPolicy = OFTEN,
        is_controller: bool = True,
    ) -> None:
        self.number = number
        self.machine: Machine = stage.simulation.machine(f"node{number}")
        self.quorum: Quorum
        self.image: Image
        self.storage: MetadataStorage
        self.offload: Holding
        self.task: asyncio.Task[None] | None = None
        self.is_ready = False
        self.stop = asyncio.Event()
        self.pause_s = 0.02
        self.is_controller = is_controller
        self._stage = stage
        self._settings = storage
        self._policy = policy
        self._writer: asyncio.Task[Any] | None = None

    @property
    def is_alive(self) -> bool:
        return self.machine.process is not None and self.machine.process.alive

    def boot(self) -> None:
        self._stage.check_alive()
        self.is_ready = False
        self.stop = asyncio.Event()
        self.task = self.machine.boot(self.run)

    async def run(self, world: World) -> None:
        stage = self._stage
        offload = self.offload = Holding(SimOffload(world.random, threads=2))
        if not world.disk.exists(HOME):
            world.disk.make_dirs(HOME)
            world.disk.sync_dir("/")
            if stage.dynamic is not None:
                write_first_voters(world.disk, PARTITION, stage.dynamic, wall_ms=world.clock.wall_ms())
        self.image = Image()
        self.storage = await offload.run(
            partial(MetadataStorage.open, world.disk, HOME, wall_ms=world.clock.wall_ms(), settings=self._settings)
        )
        peers = Peers(world.network, f"raft-client-{self.number}")
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
            settings=stage.settings,
            configured_voters=stage.configured,
            bootstrap=stage.bootstrap,
            policy=self._policy,
        )
        quorum.on_commit = self._on_commit
        quorum.on_leading = self._on_leading
        quorum.on_stepped_down = self._on_stepped_down
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

    def _on_commit(self, touched: list[Touched]) -> None:
        self._stage.ledger.on_committed(self.number, self.image)

    def _on_leading(self, epoch: int) -> None:
        self._stage.ledger.on_leading(self.number, epoch)
        assert self.image.end_offset == self.image.committed.offset == self.quorum.committed.value
        self._writer = self._tasks.start(self._write(), "writer")

    def _on_stepped_down(self) -> None:
        assert not self.quorum.is_leader
        assert self.image.end_offset == self.quorum.committed.value
        if self._writer is not None:
            self._writer.cancel()

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(self.pause_s)
            if self._stage.is_writing:
                await self.write_one()

    async def write_one(self) -> None:
        ledger, quorum = self._stage.ledger, self.quorum
        try:
            number = ledger.written
            ledger.written += 1
            committed = quorum.committed
            offset = append(quorum, self.image, number)
            await committed.reached(offset + 1)
            ledger.acked[number] = offset
        except KafkaError as error:
            assert error.code is ErrorCode.NOT_CONTROLLER


def append(quorum: Quorum, image: Image, number: int) -> int:
    """As a controller does it; the offset."""
    base_offset = quorum.reserve()
    record = ConfigRecord(resource_type=2, resource_name="r", name=str(number % KEYS), value=str(number))
    image.mark(base_offset)
    image.replay(record, base_offset)
    assert quorum.append([record]) == base_offset
    return base_offset


def _failure(request: Any, version: int, code: ErrorCode, why: str) -> Message:
    response: Any = API[request.api_key].response
    return response(error_code=int(code))  # type: ignore[no-any-return]


class Stage:
    """A simulation with a quorum in it."""

    def __init__(
        self,
        simulation: Simulation,
        voters: Sequence[int] = (1, 2, 3),
        *,
        observers: Sequence[int] = (),
        dynamic: bool = False,
        settings: QuorumSettings | None = None,
        storage: StorageSettings = TINY,
        policy: SnapshotPolicy = OFTEN,
    ) -> None:
        self.simulation = simulation
        self.settings = settings or QuorumSettings()
        self.ledger = Ledger()
        self.is_writing = True
        named = VoterSet(tuple(voter(number) for number in voters))
        plain = VoterSet(tuple(Voter(each.id, listeners=each.listeners) for each in named.voters))
        self.dynamic = named if dynamic else None
        self.configured = None if dynamic else plain
        self.bootstrap = [Endpoint(f"node{number}", PORT) for number in voters] if dynamic else []
        self.nodes = {
            number: Node(self, number, storage=storage, policy=policy, is_controller=number in voters)
            for number in (*voters, *observers)
        }

    def boot(self) -> None:
        for node in self.nodes.values():
            if not node.is_alive:
                node.boot()

    def living(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_alive and node.is_ready]

    def leader(self) -> Node | None:
        leading = [node for node in self.living() if node.quorum.is_leader]
        return max(leading, key=lambda node: node.quorum.epoch, default=None)

    async def until_led(self, within_s: float = 20) -> Node:
        async with asyncio.timeout(within_s):
            while (node := self.leader()) is None:
                await asyncio.sleep(0.005)
        return node

    async def until_written(self, more: int, within_s: float = 60) -> None:
        due = len(self.ledger.acked) + more
        async with asyncio.timeout(within_s):
            while len(self.ledger.acked) < due:
                await asyncio.sleep(0.005)

    async def until_settled(self, within_s: float = 60) -> None:
        """Everybody has the same, and all that was acknowledged is in it. Nobody writes meanwhile."""
        self.is_writing = False
        try:
            async with asyncio.timeout(within_s):
                while not self._is_settled():
                    self.check_alive()
                    self.boot()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError("not settled: " + "; ".join(self.describe())) from None
        for node in self.nodes.values():
            self.ledger.check_kept(node.image)
        self.is_writing = True

    def _is_settled(self) -> bool:
        leader = self.leader()
        if leader is None or len(self.living()) < len(self.nodes):
            return False
        end_offset = leader.quorum.end_offset
        return all(
            node.quorum.high_watermark.value == node.storage.log.log_end_offset == end_offset
            and node.image.committed.offset == end_offset
            and node.quorum.leader.id == leader.number
            for node in self.nodes.values()
        )

    def describe(self) -> list[str]:
        return [
            f"node {node.number}: {node.quorum.leader} hw {node.quorum.high_watermark.value} "
            f"log {node.storage.log.log_start_offset}..{node.storage.log.log_end_offset} "
            f"{type(node.quorum._replica.role).__name__}"
            if node.is_alive and node.is_ready
            else f"node {node.number} is down"
            for node in self.nodes.values()
        ]

    def check_alive(self) -> None:
        """A node that gave up by itself says why."""
        for node in self.nodes.values():
            if node.task is not None and node.task.done() and not node.task.cancelled():
                error = node.task.exception()
                if error is not None:
                    raise error


KINDS = (
    *("kill", "kill leader", "kill all", "power", "power all", "power soon", "stop"),
    *("boot", "boot", "boot all", "pause", "resume", "wait"),
    *("partition", "partition", "one way", "heal", "resets"),
)


class Chaos:
    """Faults at will, drawn from a generator; `heal` ends them all and boots whoever is down."""

    def __init__(self, stage: Stage, random: Random) -> None:
        self._stage = stage
        self._random = random
        self._paused: list[Node] = []
        self.story: list[str] = []

    async def run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until:
            await asyncio.sleep(self._random.choice([0.01, 0.1, 0.5, 1.5, 4]) * self._random.random())
            self._strike()
            self._stage.check_alive()

    def heal(self) -> None:
        for node in self._stage.nodes.values():
            if node.is_alive:
                node.machine.disk.lose_power_at = None
                if node in self._paused:
                    node.machine.resume()
        self._paused.clear()
        self._stage.simulation.fabric.heal()
        self._stage.simulation.fabric.weather.reset_chance = 0
        self._stage.boot()

    def _strike(self) -> None:
        random, stage = self._random, self._stage
        nodes = list(stage.nodes.values())
        node = random.choice(nodes)
        leader = stage.leader()
        kind = random.choice(KINDS)
        if "leader" in kind and leader is not None:
            node = leader
        self.story.append(f"{asyncio.get_running_loop().time():.3f} {kind} {node.number}")
        match kind.split()[0]:
            case "kill" if kind == "kill all":
                for each in nodes:
                    self._end(each, each.machine.kill)
            case "kill":
                self._end(node, node.machine.kill)
            case "power" if kind == "power all":
                for each in nodes:
                    self._end(each, each.machine.lose_power)
            case "power" if kind == "power soon":
                if node.is_alive:
                    node.machine.disk.lose_power_at = node.machine.disk.operations + random.randrange(20)
            case "power":
                self._end(node, node.machine.lose_power)
            case "boot" if kind == "boot all":
                stage.boot()
            case "boot":
                if not node.is_alive:
                    node.boot()
            case "stop":
                if node.is_alive and node not in self._paused:
                    node.stop.set()
            case "pause":
                if node.is_alive and node not in self._paused:
                    node.machine.pause()
                    self._paused.append(node)
            case _:
                self._disturb(kind, node)

    def _end(self, node: Node, how: Callable[[], None]) -> None:
        if node.is_alive:
            how()
        if node in self._paused:
            self._paused.remove(node)

    def _disturb(self, kind: str, node: Node) -> None:
        random, fabric = self._random, self._stage.simulation.fabric
        names = [each.machine.name for each in self._stage.nodes.values()]
        if len(names) == 1:
            return
        match kind:
            case "partition":
                alone = tuple(random.sample(names, random.randrange(1, len(names))))
                fabric.partition(alone, tuple(name for name in names if name not in alone))
            case "one way":
                fabric.block(*random.sample(names, 2))
            case "heal":
                fabric.heal()
            case "resume":
                for each in self._paused:
                    if each.is_alive:
                        each.machine.resume()
                self._paused.clear()
            case "resets":
                fabric.weather.reset_chance = random.choice([0, 0, 0.01, 0.05])
