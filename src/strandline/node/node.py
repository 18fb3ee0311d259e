"""One node: the composition root. Starts the parts in order, lets them meet, and takes them down again.

    async with Node(config, world).running() as node: …

Start: directories are verified and locked; the metadata log is opened and replayed; the quorum of one takes the lead;
the controller is activated; the broker registers, publishes committed metadata, is unfenced; only then are clients
answered. Stop is the same way back. A `NodeFault` anywhere ends the node: who has lost its memory must not go on.

Nothing here touches the operating system: `World` does, so the same node runs on virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TypeVar

from strandline.controller.controller import Controller
from strandline.controller.settings import ControllerSettings
from strandline.handlers.context import Broker, LogDirectoryInfo
from strandline.handlers.controllers import controller_table
from strandline.handlers.failures import failure_of
from strandline.handlers.sessions import FetchSessions
from strandline.handlers.tables import broker_table
from strandline.log import housekeeping
from strandline.log.directory import DirectoryInUse
from strandline.log.store import LogStore
from strandline.metadata.features import bootstrap_records
from strandline.metadata.image import Image
from strandline.model.errors import NodeFault
from strandline.model.ids import ZERO_UUID, TopicPartition, Uuid, random_uuid
from strandline.node.config import Config
from strandline.node.forwarding import LocalController
from strandline.node.lifecycle import Lifecycle, Listeners, Registration
from strandline.node.logs import configure_logging
from strandline.node.producer_ids import Block, ProducerIdBlocks
from strandline.node.publisher import Publisher
from strandline.node.settings import LiveSettings
from strandline.node.storage import Storage, StorageRefused, open_storage
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.messages.producers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from strandline.raft.driver import SnapshotPolicy, SoleVoter
from strandline.raft.snapshots import read_bootstrap_checkpoint
from strandline.raft.storage import MetadataStorage, StorageSettings
from strandline.raft.voters import Voter, VoterSet
from strandline.replication.compaction import Compaction
from strandline.replication.flusher import Flusher
from strandline.replication.logs import Logs
from strandline.replication.table import PartitionTable
from strandline.replication.upkeep import Upkeep
from strandline.runtime.event_loop import run_to_end, settle_memory
from strandline.runtime.metrics import Metrics
from strandline.runtime.tasks import TaskGroup
from strandline.runtime.world import World, system_world
from strandline.server.dispatch import Handler
from strandline.server.server import Server

logger = logging.getLogger(__name__)

T = TypeVar("T")
DRAIN_MS = 5_000
LEAVE_MS = 30_000
CLOSING_THREADS = 4


class Node:
    def __init__(self, config: Config, world: World) -> None:
        self.config = config
        self.world = world
        self.metrics = Metrics()
        self.image = Image()
        self.settings = LiveSettings(config.node.node_id, config.static, self.image)
        self.ports: Mapping[str, int] = {}
        self._life: Lifecycle | None = None
        self._fault: asyncio.Future[NodeFault] | None = None

    @property
    def broker_epoch(self) -> int:
        """Of the current registration; -1 before the first."""
        return -1 if self._life is None else self._life.broker_epoch

    @property
    def node_id(self) -> int:
        return self.config.node.node_id

    def log_metrics(self) -> None:
        """On SIGUSR1: every metric, by Kafka's names where Kafka has one."""
        for name, value in self.metrics.snapshot(self.world.clock.now_ms()).items():
            logger.info("metric %s = %g", name, value)

    async def run(self, stop: asyncio.Event, on_ready: Callable[[Node], None] | None = None) -> None:
        """Starts, serves until `stop` is set, stops in good order. Raises NodeFault when it had to give up."""
        async with self.running():
            if on_ready is not None:
                on_ready(self)
            await stop.wait()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Node]:
        """The node for the length of a `with`: serving when it is entered, stopped in good order when it is left."""
        for warning in self.config.warnings:
            logger.warning("%s", warning)
        if not (self.config.node.is_broker and self.config.node.is_controller):
            roles = ",".join(self.config.node.roles)
            raise NodeFault(f"process.roles={roles}: this release runs nodes that are both: broker,controller")
        storage = await self._offload(
            partial(open_storage, self.config, disk=self.world.disk, random=self.world.random)
        )
        store = await self._open_store(storage)
        try:
            async with TaskGroup() as tasks:
                self._fault = asyncio.get_running_loop().create_future()
                tasks.start(self._watch_for_faults(), "faults")
                quorum = await self._lead(storage)
                tasks.start(quorum.run(), "metadata quorum")
                local = await self._activate(storage, quorum, tasks)
                broker = self._broker(storage, store, quorum, local, tasks)
                server, lifecycle = await self._serve(storage, store, quorum, broker, local, tasks)
                try:
                    yield self
                    logger.info("node %d is stopping", self.node_id)
                    if not any(other.active and other.id != self.node_id for other in self.image.latest.brokers()):
                        # Nobody can take over, so a request from now on would be refused for lack of brokers.
                        broker.stop_serving()
                    await lifecycle.leave(LEAVE_MS)
                finally:
                    await server.stop(DRAIN_MS)
                    tasks.cancel()
            await self._close(store)
            await quorum.close()
            logger.info("node %d has stopped; its logs are closed", self.node_id)
        finally:
            for directory in store.directories:
                directory.release()

    async def _open_store(self, storage: Storage) -> LogStore:
        online = {path: found for path, found in storage.directory_ids.items() if path in self.config.log_dirs}
        for path, reason in storage.offline.items():
            logger.error("log directory %s is offline: %s", path, reason)
        try:
            return await self._offload(LogStore.open, self.world.disk, online, self.world.random)
        except DirectoryInUse as error:
            raise StorageRefused(str(error)) from error

    async def _close(self, store: LogStore) -> None:
        await asyncio.gather(
            *(
                self._offload(housekeeping.close_ahead, store, share, CLOSING_THREADS)
                for share in range(CLOSING_THREADS)
            )
        )
        await self._offload(partial(housekeeping.close, store, self.broker_epoch))

    async def _activate(self, storage: Storage, quorum: SoleVoter, tasks: TaskGroup) -> LocalController:
        controller = await self._controller(storage, quorum)
        await controller.activate()
        tasks.start(controller.run(), "controller")
        return LocalController(controller, quorum)

    async def _serve(
        self,
        storage: Storage,
        store: LogStore,
        quorum: SoleVoter,
        broker: Broker,
        local: LocalController,
        tasks: TaskGroup,
    ) -> tuple[Server, Lifecycle]:
        server = Server(
            self.config.listener_specs(), self.world, self.config.server, self.metrics, on_fault=self._on_fault
        )
        try:
            await server.start(self._handlers(broker, local))
        except OSError as error:
            raise NodeFault(f"{error}. Name another address in `listeners`, or stop what uses this one") from error
        self.ports = server.ports
        lifecycle = self._lifecycle(storage, store, local)
        await lifecycle.register_controller(self._advertised(controllers=True))
        await lifecycle.register()
        self._life = lifecycle
        publisher = Publisher(
            self.node_id,
            self.image,
            self.settings,
            broker.partitions,
            self._logs,
            on_settings=lambda: server.resize(self.settings.get("num.io.threads")),
        )
        publisher.publish_everything()
        quorum.on_commit = publisher.publish
        expected = self._expected_partitions()
        await self._offload(store.set_aside_strays, expected)
        if storage.offline or not all(directory.health.is_online for directory in store.directories):
            self._logs.unreachable = frozenset(
                (topic_partition, topic_id)
                for topic_partition, topic_id in expected.items()
                if store.directory_of(topic_partition) is None
            )
        await lifecycle.unfence()
        broker.serving.set()
        settle_memory()
        tasks.start(lifecycle.run(), "heartbeats")
        for topic_partition in store.unrecovered():
            self._logs.open_soon(topic_partition, ZERO_UUID)
        return server, lifecycle

    def _expected_partitions(self) -> dict[TopicPartition, Uuid]:
        """Every replica that this broker is meant to hold, by committed metadata."""
        view = self.image.committed
        return {
            TopicPartition(topic.name, index): topic.id
            for topic in view.topics()
            for index, info in enumerate(view.partitions(topic.id))
            if self.node_id in info.replicas
        }

    async def _watch_for_faults(self) -> None:
        assert self._fault is not None
        raise await self._fault

    def _on_fault(self, fault: NodeFault) -> None:
        if self._fault is not None and not self._fault.done():
            self._fault.set_result(fault)

    async def _offload(self, work: Callable[..., T], *arguments: object) -> T:
        return await self.world.offload.run(work, *arguments)

    async def _lead(self, storage: Storage) -> SoleVoter:
        config = self.config
        settings = StorageSettings(
            segment_bytes=config.integer("metadata.log.segment.bytes"),
            segment_ms=config.integer("metadata.log.segment.ms"),
            retention_bytes=config.integer("metadata.max.retention.bytes"),
            retention_ms=config.integer("metadata.max.retention.ms"),
        )
        log = await self._offload(
            partial(
                MetadataStorage.open,
                self.world.disk,
                storage.metadata_log_dir,
                wall_ms=self.world.clock.wall_ms(),
                settings=settings,
            )
        )
        quorum = SoleVoter(
            log,
            self.image,
            self.world.clock,
            self.world.offload,
            node_id=self.node_id,
            directory_id=storage.directory_ids[storage.metadata_log_dir],
            configured_voters=self._configured_voters(),
            policy=SnapshotPolicy(
                config.integer("metadata.log.max.record.bytes.between.snapshots"),
                config.integer("metadata.log.max.snapshot.interval.ms"),
            ),
        )
        await quorum.start()
        return quorum

    def _configured_voters(self) -> VoterSet | None:
        """`controller.quorum.voters`, for a quorum whose voters are fixed by its configuration."""
        voters = sorted(self.config.quorum.voters)
        name = next((each.name for each in self.config.listeners if each.controller), "CONTROLLER")
        return (
            VoterSet(tuple(Voter(each.id, listeners=((name, each.endpoint),)) for each in voters)) if voters else None
        )

    async def _controller(self, storage: Storage, quorum: SoleVoter) -> Controller:
        config = self.config
        bootstrap = await self._offload(read_bootstrap_checkpoint, self.world.disk, storage.metadata_log_dir)
        return Controller(
            self.image,
            quorum,
            self.world.clock,
            self.world.random,
            ControllerSettings(
                node_id=self.node_id,
                cluster_id=storage.cluster_id,
                num_partitions=config.integer("num.partitions"),
                default_replication_factor=config.integer("default.replication.factor"),
                broker_session_timeout_ms=config.integer("broker.session.timeout.ms"),
                delete_topic_enable=config.boolean("delete.topic.enable"),
                static=config.static,
            ),
            bootstrap if bootstrap is not None else bootstrap_records(),
        )

    def _broker(
        self, storage: Storage, store: LogStore, quorum: SoleVoter, local: LocalController, tasks: TaskGroup
    ) -> Broker:
        world, settings = self.world, self.settings
        self._logs = Logs(store, world)
        flusher = Flusher(world.offload, tasks)
        partitions = PartitionTable(self.node_id, self.image, self._logs.open, settings.log_settings, flusher)
        changing = asyncio.Lock()
        Upkeep(store, partitions, flusher, world, settings.get, settings.log_settings, changing).start(tasks)
        tasks.start(Compaction(store, world, settings.get, changing).run(), "compaction")
        tasks.start(
            self._logs.run(lambda tp, _: partitions.find(tp.topic, ZERO_UUID, tp.partition).ready()), "log openings"
        )
        return Broker(
            node_id=self.node_id,
            cluster_id=storage.cluster_id,
            world=world,
            image=self.image,
            partitions=partitions,
            controller=local,
            kraft_version=lambda: quorum.kraft_version,
            producer_ids=ProducerIdBlocks(partial(self._allocate_producer_ids, local)),
            settings=settings,
            fetch_sessions=FetchSessions(
                self.config.integer("max.incremental.fetch.session.cache.slots"), world.random
            ),
            log_directories=partial(describe_directories, store),
        )

    async def _allocate_producer_ids(self, local: LocalController) -> Block:
        request = AllocateProducerIdsRequest(broker_id=self.node_id, broker_epoch=self.broker_epoch)
        response: AllocateProducerIdsResponse = await local.send(ApiKey.ALLOCATE_PRODUCER_IDS, request)
        return response.producer_id_start, response.producer_id_len

    def _handlers(self, broker: Broker, local: LocalController) -> dict[str, dict[int, Handler]]:
        tables: dict[str, dict[int, Handler]] = {}
        for listener in self.config.listeners:
            if listener.controller:
                served = controller_table(broker, local, local.served, listener.advertised(listener.port))
            else:
                served = broker_table(broker)
            broker.api_ranges[listener.name] = {
                key: (API[key].advertised_min_version, API[key].advertised_max_version) for key in served
            }
            tables[listener.name] = {
                int(key): Handler(API[key], handle, failure_of(key)) for key, handle in served.items()
            }
        return tables

    def _lifecycle(self, storage: Storage, store: LogStore, local: LocalController) -> Lifecycle:
        clean_epochs = {directory.clean_broker_epoch for directory in store.directories}
        registration = Registration(
            broker_id=self.node_id,
            cluster_id=storage.cluster_id,
            incarnation_id=random_uuid(self.world.random),
            listeners=self._advertised(controllers=False),
            rack=self.config.node.rack,
            directories=tuple(storage.directory_ids.values()),
            # Only a node whose every directory was closed in good order may say that it remembers everything.
            previous_broker_epoch=clean_epochs.pop() if len(clean_epochs) == 1 else -1,
        )
        return Lifecycle(
            registration,
            self.image,
            local.send,
            heartbeat_interval_ms=self.config.integer("broker.heartbeat.interval.ms"),
            offline_directories=partial(self._offline_directories, store),
        )

    def _advertised(self, *, controllers: bool) -> Listeners:
        return tuple(
            (each.name, each.advertised(self.ports[each.name]), each.security_protocol)
            for each in self.config.listeners
            if each.controller is controllers
        )

    def _offline_directories(self, store: LogStore) -> list[Uuid]:
        offline = [directory for directory in store.directories if not directory.health.is_online]
        if len(offline) == len(store.directories):
            raise NodeFault(f"no log directory is left: {offline[0].health.reason}")
        return [directory.id for directory in offline]


def describe_directories(store: LogStore) -> list[LogDirectoryInfo]:
    """Blocking."""
    described = []
    for directory in store.directories:
        total, usable, sizes = -1, -1, {}
        if directory.health.is_online:
            total, usable = directory.disk.usage(directory.path)
            sizes = store.sizes(directory)
        described.append(
            LogDirectoryInfo(directory.path, not directory.health.is_online, total, usable, sorted(sizes.items()))
        )
    return described


def run_node(path: str, overrides: Mapping[str, str] | None = None) -> int:
    """One node in the foreground of this process, until SIGTERM or SIGINT."""
    configure_logging()
    config = Config.load(path, overrides)
    return run_to_end(_run(config))


async def _run(config: Config) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    world = system_world()
    node = Node(config, world)
    loop.add_signal_handler(signal.SIGUSR1, node.log_metrics)
    try:
        await node.run(stop, _say_ready)
    except NodeFault as fault:
        logger.critical("the node stops: %s", fault)
        return 1
    finally:
        world.offload.close()
    return 0


def _say_ready(node: Node) -> None:
    logger.info("node %d serves on %s", node.node_id, ", ".join(f"{name} {port}" for name, port in node.ports.items()))
