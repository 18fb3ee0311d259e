"""The network port: asyncio transports and protocols, from uvloop in production and from memory in simulation."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Listener(Protocol):
    @property
    def port(self) -> int: ...
    async def close(self) -> None:
        """Stops accepting; existing connections stay open."""
        ...


class Network(Protocol):
    async def listen(self, host: str, port: int, factory: ProtocolFactory, backlog: int = 50) -> Listener: ...
    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> asyncio.Transport: ...


class SystemNetwork:
    async def listen(self, host: str, port: int, factory: ProtocolFactory, backlog: int = 50) -> Listener:
        loop = asyncio.get_running_loop()
        # For port 0 the system would choose a port per address family, and only one can be reported.
        everywhere = None if port else "0.0.0.0"
        server = await loop.create_server(factory, host or everywhere, port, backlog=backlog)
        return SystemListener(server)

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> asyncio.Transport:
        transport, _ = await asyncio.get_running_loop().create_connection(factory, host, port)
        no_delay(transport)
        return transport


class SystemListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self._port: int = server.sockets[0].getsockname()[1]

    @property
    def port(self) -> int:
        """The port, which stays known after `close`."""
        return self._port

    async def close(self) -> None:
        self._server.close()


def no_delay(transport: asyncio.BaseTransport) -> None:
    """Sends small responses at once. A simulated transport has no socket."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
