"""The connections of a node, whichever listener they came by: what they share, their idle sweep, and their drain.

There is one processor, on the one event loop: docs/decisions/0006-process-model.md says why `num.network.threads` does
not change that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from strandline.protocol.framing import RECEIVE_BUFFER_BYTES
from strandline.runtime.clock import Clock
from strandline.runtime.loop_lag import LoopLag
from strandline.runtime.metrics import Metrics
from strandline.runtime.offload import Offload
from strandline.runtime.tasks import TaskGroup, yield_to_loop
from strandline.server.connection import Connection
from strandline.server.dispatch import Dispatch
from strandline.server.outbox import Backlog
from strandline.server.requests import RequestQueue
from strandline.server.settings import ServerSettings

SWEEP_MS = 1_000
SWEPT_PER_STEP = 1_000


class Processor:
    def __init__(
        self,
        clock: Clock,
        offload: Offload,
        tasks: TaskGroup,
        settings: ServerSettings,
        metrics: Metrics,
        lag: LoopLag,
        queue: RequestQueue,
        dispatch: Dispatch,
    ) -> None:
        self.clock = clock
        self.offload = offload
        self.tasks = tasks
        self.settings = settings
        self.metrics = metrics
        self.lag = lag
        self.queue = queue
        self.dispatch = dispatch
        self.backlog = Backlog()
        # All connections read into it, one after the other, and leave nothing there.
        self.receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self.draining = False
        self._connections: dict[Connection, None] = {}
        self._when_empty: asyncio.Future[None] | None = None
        metrics.gauge("kafka.server:type=socket-server-metrics,name=connection-count", self.count)
        metrics.gauge("strandline.server:type=Requests,name=ResponseQueueBytes", lambda: self.backlog.bytes)

    def count(self) -> int:
        return len(self._connections)

    def joined(self, connection: Connection) -> None:
        self._connections[connection] = None

    def left(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        if not self._connections and self._when_empty is not None and not self._when_empty.done():
            self._when_empty.set_result(None)

    async def sweep(self) -> None:
        """Every connection is looked at about once a second, a bounded number in one step."""
        while True:
            await asyncio.sleep(SWEEP_MS / 1000)
            await self._look_at_all(lambda connection: connection.check(self.clock.now_ms()))

    async def drain(self, timeout_ms: int) -> None:
        """Nothing new begins; returns when every connection has had its answers, or cuts the rest after the time."""
        self.draining = True
        await self._look_at_all(Connection.drain)
        if self._connections:
            loop = asyncio.get_running_loop()
            self._when_empty = empty = loop.create_future()
            timer = loop.call_later(max(timeout_ms, 0) / 1000, _finish, empty)
            await empty
            timer.cancel()
        await self._look_at_all(Connection.abort)

    async def _look_at_all(self, look: Callable[[Connection], None]) -> None:
        for number, connection in enumerate(list(self._connections)):
            if number % SWEPT_PER_STEP == SWEPT_PER_STEP - 1:
                await yield_to_loop()
            look(connection)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
