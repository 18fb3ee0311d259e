"""The server of one node: listeners, connections, request queue and dispatch, built, started and stopped in one place.

`node` constructs it, gives `start` a table of handlers for each listener, and calls `stop` at the end. Nothing runs
before `start`, and nothing after `stop`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from strandline.model.errors import NodeFault
from strandline.runtime.loop_lag import LoopLag
from strandline.runtime.metrics import Metrics
from strandline.runtime.tasks import TaskGroup
from strandline.runtime.world import World
from strandline.server.acceptor import Acceptor, ConnectionCounts
from strandline.server.dispatch import Dispatch, Handler
from strandline.server.processor import Processor
from strandline.server.requests import Call, RequestQueue
from strandline.server.settings import ListenerSpec, ServerSettings

logger = logging.getLogger(__name__)


class Server:
    def __init__(
        self,
        listeners: Sequence[ListenerSpec],
        world: World,
        settings: ServerSettings,
        metrics: Metrics,
        *,
        on_fault: Callable[[NodeFault], None] | None = None,
        authorise: Callable[[Call, Any], None] | None = None,
    ) -> None:
        self._listeners = listeners
        self._world = world
        self._settings = settings
        self._tasks = TaskGroup(on_error=self._failed)
        self.lag = LoopLag(metrics.window("strandline.runtime:type=EventLoop,name=StepTimeUs"))
        metrics.gauge("strandline.runtime:type=EventLoop,name=LongestStepMs", self.lag.longest_ms)
        self._on_fault = on_fault or _log_fault
        self._queue = RequestQueue(self._tasks, world.clock, settings, metrics, self.lag)
        self._dispatch = Dispatch(
            self._queue, world.clock, world.offload, metrics, self._on_fault, settings.max_request_elements, authorise
        )
        self._processor = Processor(
            world.clock, world.offload, self._tasks, settings, metrics, self.lag, self._queue, self._dispatch
        )
        self._acceptors: list[Acceptor] = []
        self.ports: dict[str, int] = {}  # by listener name, known once started

    async def start(self, handlers: Mapping[str, Mapping[int, Handler]]) -> None:
        """Listens. When one listener fails, those that were started are closed again."""
        logger.info(
            "one event loop serves all connections: num.network.threads=%d is ignored", self._settings.processors
        )
        counts = ConnectionCounts(self._settings)
        try:
            for listener in self._listeners:
                routes = self._dispatch.routes(handlers[listener.name])
                acceptor = Acceptor(listener, routes, self._processor, counts, self._world.clock)
                self._acceptors.append(acceptor)
                self.ports[listener.name] = await acceptor.start(self._world.network, self._settings.backlog)
        except BaseException:
            await self._stop_accepting()
            raise
        self._tasks.start(self._guarded(self._processor.check_connections), "server.check_connections")
        self._tasks.start(self._guarded(self.lag.watch), "server.loop_lag")

    async def stop(self, drain_ms: int) -> None:
        """Stops accepting, waits at most `drain_ms` for the responses to requests in flight, then aborts
        connections."""
        await self._stop_accepting()
        try:
            await self._processor.drain(drain_ms)
        finally:
            async with self._tasks:
                self._tasks.cancel()

    def resize(self, handlers: int) -> None:
        """num.io.threads changed while running."""
        self._queue.resize(handlers)

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A background task that fails stops the node: a server without it would only look alive."""
        try:
            await work()
        except Exception as error:
            logger.exception("a background task of the server failed")
            self._on_fault(NodeFault(f"a background task of the server failed: {error!r}"))

    def _failed(self, error: BaseException) -> None:
        """A connection's task failed unexpectedly, which cancels the task group: the server cannot continue."""
        logger.error("a task of the server failed", exc_info=error)
        self._on_fault(NodeFault(f"a task of the server failed: {error!r}"))

    async def _stop_accepting(self) -> None:
        for acceptor in self._acceptors:
            await acceptor.stop()
        self._acceptors.clear()


def _log_fault(fault: NodeFault) -> None:
    logger.critical("the node must stop: %s", fault)
