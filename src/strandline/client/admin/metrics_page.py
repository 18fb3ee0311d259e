"""Reads the metrics page (HTTP, on any listener) of a Strandline node.

Apache Kafka has no such page: for its brokers the result is empty.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from strandline.model.ids import Endpoint
from strandline.runtime.exposition import parse_exposition
from strandline.runtime.network import Network

_REQUEST: Final = b"GET /metrics HTTP/1.0\r\n\r\n"
_LARGEST_PAGE_BYTES: Final = 16 * 1024 * 1024


async def read_metrics(network: Network, endpoint: Endpoint, timeout_ms: int) -> dict[str, float]:
    """Values by sample name; empty if there is no such page, or no response in time."""
    page = _Page()
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await network.connect(endpoint.host, endpoint.port, lambda: page)
            await page.ended.wait()
    except (OSError, TimeoutError):
        return {}
    finally:
        page.close()
    head, _, body = bytes(page.received).partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        return {}
    try:
        return parse_exposition(body.decode())
    except ValueError:  # not a metrics page
        return {}


class _Page(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.ended = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(_REQUEST)

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) > _LARGEST_PAGE_BYTES:
            self.received.clear()
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
