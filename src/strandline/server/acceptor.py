"""One listener: accepts connections as far as the limits allow, and says why it refused the others.

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

log = logging.getLogger(__name__)

REFUSALS_LOGGED_EVERY_MS = 1_000


class ConnectionCounts:
    """How many connections there are, in all and for each address."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._by_host: dict[str, int] = {}
        self._all = 0

    def refusal(self, host: str, listener: ListenerSpec) -> str | None:
        """Why one more connection from this address must not be; None when it may."""
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
        self._refusals = RefusalLog(clock)
        self._turn_ms = float("-inf")  # when the rate of new connections allows the next one
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
        refusal = self._counts.refusal(connection.client_host, self.listener)
        if refusal is None and self._processor.draining:
            refusal = "the server is stopping"
        if refusal is not None:
            self._refusals.add(f"{self.listener.name}: connection refused: {refusal}")
            return False
        self._counts.add(connection.client_host)
        self._processor.joined(connection)
        delay_ms = self._delay_ms()
        if delay_ms > 0:
            connection.hold()
            asyncio.get_running_loop().call_later(delay_ms / 1000, connection.unhold)
        return True

    def left(self, connection: Connection) -> None:
        self._counts.remove(connection.client_host)
        self._processor.left(connection)

    def _delay_ms(self) -> float:
        """max.connection.creation.rate: a connection above it is not served until its turn comes."""
        now_ms = self._clock.now_ms()
        interval_ms = 1000 / self._processor.settings.max_connection_creation_rate
        # A second's worth may come at once, as the rate is meant as an average.
        self._turn_ms = max(self._turn_ms, now_ms - 1000) + interval_ms
        return self._turn_ms - now_ms


class RefusalLog:
    """Reasons for refusals, at most one a second: a flood of connections must not become a flood of lines."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until_ms = -1
        self._unsaid = 0

    def add(self, reason: str) -> None:
        now_ms = self._clock.now_ms()
        if now_ms < self._quiet_until_ms:
            self._unsaid += 1
            return
        self._quiet_until_ms = now_ms + REFUSALS_LOGGED_EVERY_MS
        unsaid, self._unsaid = self._unsaid, 0
        log.warning("%s%s", reason, f" ({unsaid} more were refused before)" if unsaid else "")
