"""How a replica of the quorum reaches the others, whatever carries the bytes (`server/peers` in production)."""

from __future__ import annotations

from typing import Protocol

from strandline.model.ids import Endpoint
from strandline.protocol.types import Message


class Peers(Protocol):
    async def call(self, endpoint: Endpoint, request: Message, *, timeout_ms: int) -> Message:
        """The answer to a request. Raises OSError, TimeoutError or KafkaError when there is none in time."""
        ...

    async def refuses_connections(self, endpoint: Endpoint) -> bool:
        """Whether a fresh dial is refused: evidence that no process listens there. Silence is no evidence."""
        ...
