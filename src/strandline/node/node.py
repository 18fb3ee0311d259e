"""One node: the composition root. Builds the parts, starts them in order and stops them in reverse.

    async with Node(config, world).running() as node: …

Start: the directories are verified and locked; the metadata log is opened and its committed part replayed; the
listeners open; the quorum runs. A controller is a standby or active; a broker registers, catches up, is unfenced and
only then serves clients. A `NodeFault` anywhere stops the node: a node that may have lost state must not continue.

All access to the operating system goes through `World`, so the same node runs on virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from strandline.client.peers import Peers
from strandline.handlers.context import NodeContext
from strandline.handlers.tables import broker_table, controller_table
from strandline.log.directory import DirectoryInUse
from strandline.log.store import LogStore
from strandline.metadata.image import Image
from strandline.model.errors import NodeFault
from strandline.model.ids import random_uuid
from strandline.node.broker_role import BrokerRole
from strandline.node.config import Config
from strandline.node.controller_channel import ControllerChannel
from strandline.node.controller_role import ControllerRole
from strandline.node.dynamic_config import DynamicConfig
from strandline.node.lifecycle import Listeners
from strandline.node.logging_setup import configure_logging
from strandline.node.metadata_quorum import open_quorum
from strandline.node.node_resources import NodeResources
from strandline.node.storage import Storage, StorageError, open_storage
from strandline.protocol.apis import API
from strandline.raft.disk.snapshots import read_bootstrap_checkpoint
from strandline.raft.shell.driver import Quorum
from strandline.runtime.event_loop import freeze_long_lived_objects, run_event_loop
from strandline.runtime.metrics import Metrics
from strandline.runtime.tasks import TaskGroup, cancel_when
from strandline.runtime.world import World, system_world
from strandline.server.dispatch import Handler
from strandline.server.peers import PeerConnections
from strandline.server.server import Server

logger = logging.getLogger(__name__)

T = TypeVar("T")
DRAIN_MS: Final = 5_000
WAIT_FOR_SHUTDOWNS_MS: Final = 2_000
"""How long a stopping controller waits for brokers in controlled shutdown."""


class Node:
    def __init__(self, config: Config, world: World) -> None:
        self.config = config
        self.world = world
        self.metrics = Metrics()
        self.image = Image()
        self.dynamic_config = DynamicConfig(config.node.node_id, config.static, self.image)
        self.ports: Mapping[str, int] = {}
        self.quorum: Quorum | None = None
        self.controller: ControllerRole | None = None
        self.broker: BrokerRole | None = None
        self._fault: asyncio.Future[NodeFault] | None = None

    @property
    def broker_epoch(self) -> int:
        """The broker epoch of the current registration; -1 before the first."""
        return -1 if self.broker is None else self.broker.broker_epoch

    @property
    def node_id(self) -> int:
        return self.config.node.node_id

    def log_metrics(self) -> None:
        """Logs every metric, under Kafka's name where Kafka has it; called on SIGUSR1."""
        for name, value in self.metrics.snapshot(self.world.clock.now_ms()).items():
            logger.info("metric %s = %g", name, value)

    async def run(self, stop: asyncio.Event, on_ready: Callable[[Node], None] | None = None) -> None:
        """Starts, serves until `stop` is set, then shuts down cleanly. Raises NodeFault if the node cannot continue.

        Starting may wait for other nodes; `stop` also ends that.
        """
        async with contextlib.AsyncExitStack() as stack:
            started = await cancel_when(stop.wait, stack.enter_async_context(self.running()))
            if started is None:
                return
            if on_ready is not None:
                on_ready(self)
            await stop.wait()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Node]:
        """The node as a context manager: it serves when the block is entered, and shuts down cleanly at its end."""
        for warning in self.config.warnings:
            logger.warning("%s", warning)
        storage = await self._offload(
            partial(open_storage, self.config, disk=self.world.disk, random=self.world.random)
        )
        store = await self._open_store(storage)
        try:
            async with TaskGroup() as tasks:
                self._fault = asyncio.get_running_loop().create_future()
                tasks.start(self._watch_for_faults(), "faults")
                server = self._server()
                peers = PeerConnections(self.world.network, f"raft-client-{self.node_id}")
                fetch_peers = PeerConnections(self.world.network, f"broker-{self.node_id}-fetcher")
                try:
                    await self._start(storage, store, server, peers, fetch_peers, tasks)
                    yield self
                    logger.info("node %d is stopping", self.node_id)
                    await self._shut_down()
                finally:
                    await server.stop(DRAIN_MS)
                    tasks.cancel()
                    peers.close()
                    fetch_peers.close()
            await self._close()
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
            raise StorageError(str(error)) from error

    def _server(self) -> Server:
        return Server(
            self.config.listener_specs(), self.world, self.config.server, self.metrics, on_fault=self._on_fault
        )

    async def _start(
        self,
        storage: Storage,
        store: LogStore,
        server: Server,
        peers: Peers,
        fetch_peers: Peers,
        tasks: TaskGroup,
    ) -> None:
        roles = self.config.node
        quorum = self.quorum = await open_quorum(self.config, storage, self.world, self.image, peers, self.metrics)
        resources = NodeResources(
            self.config,
            self.world,
            storage,
            self.image,
            self.dynamic_config,
            self.metrics,
            quorum,
            peers,
            random_uuid(self.world.random),
            tasks,
        )
        if roles.is_controller:
            bootstrap = await self._offload(read_bootstrap_checkpoint, self.world.disk, storage.metadata_log_dir)
            self.controller = ControllerRole(resources, bootstrap)
        channel = ControllerChannel(
            self.node_id,
            quorum,
            peers,
            self.world.clock,
            {} if self.controller is None else self.controller.methods,
            timeout_ms=self.config.integer("request.timeout.ms"),
        )
        if roles.is_broker:
            self.broker = BrokerRole(
                resources,
                store,
                channel,
                fetch_peers,
                lambda: server.resize(self.dynamic_config.get("num.io.threads")),
            )
        await self._listen(server)
        tasks.start(quorum.run(), "metadata quorum")
        if self.controller is not None:
            self.controller.start()
            registered = self.controller.register(channel.send, self._advertised(controllers=True))
            tasks.start(registered, "controller registration")
        if self.broker is not None:
            await self.broker.start(self._advertised(controllers=False))
        freeze_long_lived_objects()

    async def _listen(self, server: Server) -> None:
        tables: dict[str, dict[int, Handler]] = {}
        for listener in self.config.listeners:
            if listener.controller:
                assert self.controller is not None, "config: only controllers have controller listeners"
                controlling = self.controller.context()
                context: NodeContext = controlling
                served = controller_table(controlling)
            else:
                assert self.broker is not None, "config: only brokers have broker listeners"
                context = self.broker.broker
                served = broker_table(self.broker.broker)
            context.api_ranges[listener.name] = {
                key: (API[key].advertised_min_version, API[key].advertised_max_version) for key in served
            }
            tables[listener.name] = {
                int(key): Handler(API[key], bound.handle, bound.error_response) for key, bound in served.items()
            }
        try:
            await server.start(tables)
        except OSError as error:
            raise NodeFault(
                f"{error}. Set another address in `listeners`, or stop the process that uses this one"
            ) from error
        self.ports = server.ports

    async def _shut_down(self) -> None:
        """The broker first, since it needs a controller; then the controller waits for other brokers' shutdowns."""
        if self.broker is not None:
            await self.broker.controlled_shutdown()
        if self.controller is not None and self.quorum is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_FOR_SHUTDOWNS_MS / 1000):
                    while any(
                        other.in_controlled_shutdown and not other.fenced for other in self.image.committed.brokers()
                    ):
                        await asyncio.sleep(0.02)
        if self.quorum is not None:
            await self.quorum.resign()

    async def _close(self) -> None:
        if self.broker is not None:
            await self.broker.close()
        if self.quorum is not None:
            await self.quorum.close()

    async def _watch_for_faults(self) -> None:
        assert self._fault is not None
        raise await self._fault

    def _on_fault(self, fault: NodeFault) -> None:
        if self._fault is not None and not self._fault.done():
            self._fault.set_result(fault)

    async def _offload(self, work: Callable[..., T], *arguments: object) -> T:
        return await self.world.offload.run(work, *arguments)

    def _advertised(self, *, controllers: bool) -> Listeners:
        return tuple(
            (each.name, each.advertised(self.ports[each.name]), each.security_protocol)
            for each in self.config.listeners
            if each.controller is controllers
        )


def run_node(path: str, overrides: Mapping[str, str] | None = None) -> int:
    """Runs one node in this process until SIGTERM or SIGINT; returns the exit code."""
    configure_logging()
    config = Config.load(path, overrides)
    return run_event_loop(_run(config))


async def _run(config: Config) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    world = system_world()
    node = Node(config, world)
    loop.add_signal_handler(signal.SIGUSR1, node.log_metrics)
    try:
        await node.run(stop, _log_ready)
    except NodeFault as fault:
        logger.critical("the node stops: %s", fault)
        return 1
    finally:
        world.close()
    return 0


def _log_ready(node: Node) -> None:
    logger.info("node %d serves on %s", node.node_id, ", ".join(f"{name} {port}" for name, port in node.ports.items()))
