"""The port through which a node calls other nodes: the quorum, replication, the controller and the controller channel.

`server/peers` implements it over connections; tests implement it in memory.
"""

from __future__ import annotations

from typing import Protocol

from strandline.model.ids import Endpoint
from strandline.protocol.types import Message


class Peers(Protocol):
    async def call(self, endpoint: Endpoint, request: Message, *, timeout_ms: int) -> Message:
        """The response to a request. Raises OSError, TimeoutError or KafkaError if there is none in time."""
        ...

    async def refuses_connections(self, endpoint: Endpoint) -> bool:
        """Probes the address: True only if a new connection is refused, which shows that no process listens there.

        An accepted connection, a timeout, an unknown name or a missing route: False."""
        ...

    def disconnect(self, endpoint: Endpoint) -> None:
        """Closes the connections to this address: calls in flight fail, later calls connect again."""
        ...
