"""How this broker reaches another one, whatever carries the bytes (`server/peers` in production)."""

from __future__ import annotations

from typing import Protocol

from strandline.model.ids import Endpoint
from strandline.protocol.types import Message


class Peers(Protocol):
    async def call(self, endpoint: Endpoint, request: Message, *, timeout_ms: int) -> Message:
        """The answer to a request. Raises OSError, TimeoutError or KafkaError when there is none in time."""
        ...

    def disconnect(self, endpoint: Endpoint) -> None:
        """Who was asked there is gone: calls under way fail, later ones dial anew."""
        ...
