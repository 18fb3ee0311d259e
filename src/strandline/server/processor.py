"""The connections of all listeners of a node: what they share, the check for idle ones, and draining them at the end.

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
from strandline.server.disconnect_log import DisconnectLog
from strandline.server.dispatch import Dispatch
from strandline.server.outbox import UnsentBytes
from strandline.server.requests import RequestQueue
from strandline.server.settings import ServerSettings

CHECK_INTERVAL_MS = 1_000
CHECKS_PER_STEP = 1_000


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
        self.unsent = UnsentBytes()
        self.receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
        """All connections receive into this buffer, one after the other, and leave nothing in it."""
        self.disconnects = DisconnectLog()
        self.draining = False
        self._connections: dict[Connection, None] = {}
        self._when_empty: asyncio.Future[None] | None = None
        metrics.gauge("kafka.server:type=socket-server-metrics,name=connection-count", self.count)
        metrics.gauge("strandline.server:type=Requests,name=ResponseQueueBytes", lambda: self.unsent.bytes)

    def count(self) -> int:
        return len(self._connections)

    def add(self, connection: Connection) -> None:
        self._connections[connection] = None

    def remove(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        if not self._connections and self._when_empty is not None and not self._when_empty.done():
            self._when_empty.set_result(None)

    async def check_connections(self) -> None:
        """Checks every connection about once a second, a bounded number of them in one step."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_MS / 1000)
            await self._for_each(lambda connection: connection.check(self.clock.now_ms()))
            self.disconnects.report(self.clock.now_ms())

    async def drain(self, timeout_ms: int) -> None:
        """No request starts any more. Returns when all responses are sent; aborts connections that are left after
        `timeout_ms`."""
        self.draining = True
        await self._for_each(Connection.drain)
        if self._connections:
            loop = asyncio.get_running_loop()
            self._when_empty = empty = loop.create_future()
            timer = loop.call_later(max(timeout_ms, 0) / 1000, _finish, empty)
            await empty
            timer.cancel()
        await self._for_each(Connection.abort)

    async def _for_each(self, action: Callable[[Connection], None]) -> None:
        for number, connection in enumerate(list(self._connections)):
            if number % CHECKS_PER_STEP == CHECKS_PER_STEP - 1:
                await yield_to_loop()
            action(connection)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
