"""Connections to nodes by address and lane: opened on first use, shared, and replaced once they have ended.

Owned by `client/routing` (a client's connections) and `server/peers` (a node's connections to other nodes). A node
responds in order on each connection, so requests that may wait long at the receiver use a lane, that is a connection,
of their own. Invariant: at most one connection per address and lane is open or being opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

from strandline.client.connection import Connection
from strandline.client.errors import ConnectionLost
from strandline.client.settings import ClientSettings
from strandline.model.ids import Endpoint
from strandline.runtime.network import Network

L = TypeVar("L", bound=Hashable)


class ConnectionPool(Generic[L]):
    def __init__(self, network: Network, settings: ClientSettings) -> None:
        self._network = network
        self._settings = settings
        self._connections: dict[tuple[Endpoint, L], Connection] = {}
        self._opening: dict[tuple[Endpoint, L], asyncio.Lock] = {}
        self._is_closed = False
        self.has_ever_connected = False
        """Whether any node has responded on any connection of this pool."""

    async def connection(self, endpoint: Endpoint, lane: L) -> Connection:
        """The open connection of this lane. The first caller opens it, concurrent callers wait for that attempt."""
        key = endpoint, lane
        connection = self._connections.get(key)
        if connection is not None and connection.is_open:
            return connection
        async with self._opening.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is not None and connection.is_open:
                return connection
            if self._is_closed:
                raise ConnectionLost("the client is closed")
            return await self._open(key)

    def open_connection(self, lane: L) -> Connection | None:
        """Any connection of this lane that is open already."""
        for (_, each), connection in self._connections.items():
            if each == lane and connection.is_open:
                return connection
        return None

    def disconnect(self, endpoint: Endpoint) -> None:
        """Closes the connections to this address: calls in flight fail, later calls connect again."""
        for (address, _), connection in self._connections.items():
            if address == endpoint:
                connection.close()

    def disconnect_all(self, why: str) -> None:
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close(why)

    def close(self) -> None:
        """Closes every connection for good: calls in flight fail, and so do later ones."""
        self._is_closed = True
        self.disconnect_all("closed by us")

    async def _open(self, key: tuple[Endpoint, L]) -> Connection:
        connection = await Connection.open(self._network, key[0], self._settings)
        self.has_ever_connected = True
        if self._is_closed:
            connection.close()
            raise ConnectionLost("the client is closed")
        self._connections[key] = connection
        return connection
