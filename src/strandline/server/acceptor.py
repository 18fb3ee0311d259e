"""One listener: accepts connections within the limits, and logs why it rejected others.

The limits on connections are the node's, so the acceptors of all listeners share one `ConnectionCounts`.
"""

from __future__ import annotations

import asyncio
import logging

from strandline.runtime.clock import Clock
from strandline.runtime.network import Listener, Network
from strandline.server.connection import Connection
from strandline.server.dispatch import Routes
from strandline.server.processor import Processor
from strandline.server.settings import ListenerSpec, ServerSettings

logger = logging.getLogger(__name__)

REJECTION_LOG_INTERVAL_MS = 1_000


class ConnectionCounts:
    """The number of connections, in total and for each address."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._by_host: dict[str, int] = {}
        self._all = 0

    def limit_reached(self, host: str, listener: ListenerSpec) -> str | None:
        """Which limit forbids one more connection from this address; None if none does."""
        settings = self._settings
        limit = settings.max_connections_per_ip_overrides.get(host, settings.max_connections_per_ip)
        if self._by_host.get(host, 0) >= limit:
            return f"{host} has {limit} connections already (max.connections.per.ip)"
        if self._all >= settings.max_connections and not (listener.controller or listener.protected):
            return f"the node has {settings.max_connections} connections already (max.connections)"
        return None

    def add(self, host: str) -> None:
        self._all += 1
        self._by_host[host] = self._by_host.get(host, 0) + 1

    def remove(self, host: str) -> None:
        self._all -= 1
        left = self._by_host[host] - 1
        if left:
            self._by_host[host] = left
        else:
            del self._by_host[host]


class Acceptor:
    def __init__(
        self, listener: ListenerSpec, routes: Routes, processor: Processor, counts: ConnectionCounts, clock: Clock
    ) -> None:
        self.listener = listener
        self._routes = routes
        self._processor = processor
        self._counts = counts
        self._clock = clock
        self._rejections = RejectionLog(clock)
        self._next_allowed_ms = float("-inf")  # when the connection creation rate allows the next one
        self._listening: Listener | None = None

    async def start(self, network: Network, backlog: int) -> int:
        self._listening = await network.listen(self.listener.host, self.listener.port, self._connection, backlog)
        return self._listening.port

    async def stop(self) -> None:
        if self._listening is not None:
            await self._listening.close()
            self._listening = None

    def _connection(self) -> Connection:
        return Connection(self._processor, self.listener, self._routes, self)

    def admit(self, connection: Connection) -> bool:
        reason = self._counts.limit_reached(connection.client_host, self.listener)
        if reason is None and self._processor.draining:
            reason = "the server is stopping"
        if reason is not None:
            self._rejections.add(f"{self.listener.name}: connection rejected: {reason}")
            return False
        self._counts.add(connection.client_host)
        self._processor.add(connection)
        delay_ms = self._delay_ms()
        if delay_ms > 0:
            connection.throttle()
            asyncio.get_running_loop().call_later(delay_ms / 1000, connection.unthrottle)
        return True

    def on_admitted_lost(self, connection: Connection) -> None:
        self._counts.remove(connection.client_host)
        self._processor.remove(connection)

    def _delay_ms(self) -> float:
        """max.connection.creation.rate: for how long a connection above the rate is not served."""
        now_ms = self._clock.now_ms()
        interval_ms = 1000 / self._processor.settings.max_connection_creation_rate
        # The rate is an average over a second, so the connections of one second may come at once.
        self._next_allowed_ms = max(self._next_allowed_ms, now_ms - 1000) + interval_ms
        return self._next_allowed_ms - now_ms


class RejectionLog:
    """Logs the reason of a rejection, at most once a second: a flood of connections must not flood the log."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_line_ms = -1
        self._suppressed = 0

    def add(self, reason: str) -> None:
        now_ms = self._clock.now_ms()
        if now_ms < self._next_line_ms:
            self._suppressed += 1
            return
        self._next_line_ms = now_ms + REJECTION_LOG_INTERVAL_MS
        suppressed, self._suppressed = self._suppressed, 0
        logger.warning(
            "%s%s", reason, f" ({suppressed} more were rejected since the last such line)" if suppressed else ""
        )
