"""Outbound calls to other nodes: the quorum's, and the broker's to its controller.

Implements the port `client/peers` over a `ConnectionPool`; callers decide whether to retry. Calls to one node share a
connection, with several in flight. A server responds to a connection in order, so requests that may wait long at the
receiver do not share one with those that must not: each lane to a node is a connection of its own. In particular a
parked Fetch never delays a Vote, and a heartbeat's connection carries nothing but heartbeats, so that its end is
evidence about the process at either side.

The version of a request is negotiated by each connection (ApiVersions).
"""

from __future__ import annotations

import asyncio
import errno
import re
from enum import Enum
from typing import Final

from strandline.client.connection import INVALID_ADDRESS_ERRORS
from strandline.client.connection_pool import ConnectionPool
from strandline.client.errors import RequestTimedOut, UnsupportedVersion
from strandline.client.peers import Peers
from strandline.client.settings import ClientSettings
from strandline.model.ids import Endpoint
from strandline.protocol.apis import ApiKey
from strandline.protocol.errors import EncodeError
from strandline.protocol.types import Message
from strandline.runtime.network import Network

# The timeout of a probe: a refused connection is reported at once or not at all.
_PROBE_TIMEOUT_MS: Final = 1_000


class Lane(Enum):
    """Groups of requests that share a connection to a node."""

    ELECTION = "Vote, BeginQuorumEpoch, EndQuorumEpoch: answered at once"
    FETCH = "Fetch and FetchSnapshot: parked until there are new records"
    HEARTBEAT = "BrokerHeartbeat: answered when committed, never behind another request"
    MARKERS = "WriteTxnMarkers: answered when the markers are replicated"
    REQUEST = "everything else: answered when committed"


_LANES: Final = {
    ApiKey.VOTE: Lane.ELECTION,
    ApiKey.BEGIN_QUORUM_EPOCH: Lane.ELECTION,
    ApiKey.END_QUORUM_EPOCH: Lane.ELECTION,
    ApiKey.API_VERSIONS: Lane.ELECTION,
    ApiKey.FETCH: Lane.FETCH,
    ApiKey.FETCH_SNAPSHOT: Lane.FETCH,
    ApiKey.BROKER_HEARTBEAT: Lane.HEARTBEAT,
    ApiKey.WRITE_TXN_MARKERS: Lane.MARKERS,
}


class PeerConnections(Peers):
    def __init__(self, network: Network, client_id: str) -> None:
        """`client_id` appears in the peers' logs and metrics: Kafka's are `raft-client-<node id>`."""
        self._network = network
        self._pool: ConnectionPool[Lane] = ConnectionPool(network, ClientSettings(client_id=client_id))

    async def call(self, endpoint: Endpoint, request: Message, *, timeout_ms: int) -> Message:
        """The response, within `timeout_ms` from now, connecting included. Raises a KafkaError of `client.errors` when
        there is none."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._pool.connection(endpoint, _lane(request))
            # The connection enforces the rest: it closes when a response is late, since later ones come behind it.
            left_ms = max(1, round((deadline - loop.time()) * 1000))
            return await connection.call(request, Message, timeout_ms=left_ms)
        except TimeoutError:
            raise RequestTimedOut(f"no response to {_name(request)} from {endpoint} within {timeout_ms} ms") from None
        except UnsupportedVersion as error:
            raise UnsupportedVersion(f"{endpoint} is too old for this node, or too new: {error.why}") from error
        except EncodeError as error:
            raise UnsupportedVersion(
                f"{endpoint} is too old for this node: {_name(request)} cannot be encoded: {error}"
            ) from error

    async def refuses_connections(self, endpoint: Endpoint) -> bool:
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_MS / 1000):
                transport = await self._network.connect(endpoint.host, endpoint.port, asyncio.Protocol)
        except INVALID_ADDRESS_ERRORS:
            return False
        except OSError as error:  # TimeoutError is one
            return _is_refusal(error)
        transport.abort()
        return False

    def disconnect(self, endpoint: Endpoint) -> None:
        self._pool.disconnect(endpoint)

    def close(self) -> None:
        """Closes every connection; calls in flight fail."""
        self._pool.close()


def _lane(request: Message) -> Lane:
    assert request.api_key is not None
    return _LANES.get(ApiKey(request.api_key), Lane.REQUEST)


def _name(request: Message) -> str:
    return type(request).__name__.removesuffix("Request")


def _is_refusal(error: OSError) -> bool:
    """A name with several addresses refuses if all do; asyncio raises one error for them, without errno."""
    if isinstance(error, ConnectionRefusedError):
        return True
    numbers = re.findall(r"\[Errno (\d+)\]", str(error))
    return bool(numbers) and all(int(number) == errno.ECONNREFUSED for number in numbers)
