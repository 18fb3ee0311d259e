"""The parts of the real network port that need no sockets."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

from strandline.runtime.network import SystemListener, no_delay


class FakeSocket:
    family = socket.AF_INET

    def __init__(self) -> None:
        self.options: list[tuple[int, int, int]] = []

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 9092)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.options.append((level, option, value))


class FakeServer:
    def __init__(self) -> None:
        self.sockets = [FakeSocket()]

    def close(self) -> None:
        self.sockets = []


class FakeTransport(asyncio.BaseTransport):
    def __init__(self, extra: dict[str, Any]) -> None:
        super().__init__(extra)


def test_a_listener_knows_its_port_after_it_has_closed() -> None:
    listener = SystemListener(cast(asyncio.Server, FakeServer()))
    asyncio.run(listener.close())
    assert listener.port == 9092


def test_connections_use_no_delay_and_keepalive() -> None:
    connection = FakeSocket()
    no_delay(FakeTransport({"socket": connection}))
    assert (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1) in connection.options
    assert (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1) in connection.options


def test_a_transport_without_a_socket_is_left_alone() -> None:
    transport = FakeTransport({})
    no_delay(transport)
    assert transport.get_extra_info("socket") is None
