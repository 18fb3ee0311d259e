"""Decodes requests and responses of a few APIs from the bytes on the network, at the moment they are written.

A violation happens when a message leaves the node, whether or not it arrives. The arrival of a request is reported too:
checkers compare the response with what the receiver could know by then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from struct import Struct

import msgspec

from strandline.protocol.apis import API, ApiKey
from strandline.protocol.codec import decode
from strandline.protocol.framing import decode_header, decode_response_header
from strandline.protocol.types import Message
from strandline.simulation.network import Fabric
from strandline.simulation.transport import SimTransport

_SIZE = Struct(">i")
_REQUEST = Struct(">hhi")  # key, version, correlation id
_CORRELATION = Struct(">i")


class ObservedRequest(msgspec.Struct, weakref=True, eq=False):
    """A request of an observed API."""

    source: str
    target: str
    api: ApiKey
    version: int
    message: Message
    connection: SimTransport | None = None

    @property
    def is_abandoned(self) -> bool:
        """A response could not be delivered any more."""
        connection = self.connection
        return connection is None or connection.closed or connection.peer.closed


class ObservedConnection(msgspec.Struct):
    """One connection: the bytes of incomplete frames, and the requests without a response."""

    apis: frozenset[ApiKey]
    written: bytearray = msgspec.field(default_factory=bytearray)
    arrived: bytearray = msgspec.field(default_factory=bytearray)
    responses: bytearray = msgspec.field(default_factory=bytearray)
    in_flight: dict[int, ObservedRequest] = msgspec.field(default_factory=dict)


class RequestTap:
    """Installed as the tap of a fabric. Observes connections to the given ports; of other APIs it reads only the
    key."""

    def __init__(
        self,
        fabric: Fabric,
        apis: Mapping[int, Collection[ApiKey]],
        *,
        on_request: Callable[[ObservedRequest], None],
        on_arrival: Callable[[ObservedRequest], None],
        on_response: Callable[[ObservedRequest, Message], None],
    ) -> None:
        """`apis`: the observed APIs by port."""
        self._apis = {port: frozenset(some) for port, some in apis.items()}
        self._on_request = on_request
        self._on_arrival = on_arrival
        self._on_response = on_response
        self._connections: dict[SimTransport, ObservedConnection] = {}
        fabric.tap = self

    def written(self, sender: SimTransport, data: bytes) -> None:
        connection = self._connection_of(sender if sender.is_client else sender.peer)
        if connection is None:
            return
        if sender.is_client:
            for frame in _frames(connection.written, data):
                self._request(sender, connection, frame)
        else:
            for frame in _frames(connection.responses, data):
                self._response(connection, frame)

    def arrived(self, sender: SimTransport, data: bytes) -> None:
        connection = self._connections.get(sender) if sender.is_client else None
        if connection is not None:
            for frame in _frames(connection.arrived, data):
                key, _, correlation_id = _REQUEST.unpack_from(frame)
                if key in connection.apis and correlation_id in connection.in_flight:
                    self._on_arrival(connection.in_flight[correlation_id])

    def _connection_of(self, client: SimTransport) -> ObservedConnection | None:
        connection = self._connections.get(client)
        port = client.get_extra_info("peername")[1]
        if connection is None and port in self._apis:
            for ended in [each for each in self._connections if each.closed and each.peer.closed]:
                del self._connections[ended]
            connection = self._connections[client] = ObservedConnection(self._apis[port])
        return connection

    def _request(self, sender: SimTransport, connection: ObservedConnection, frame: bytes) -> None:
        key, version, correlation_id = _REQUEST.unpack_from(frame)
        if key not in connection.apis:
            return
        _, position = decode_header(frame)
        message = decode(API[key].request, version, frame, position)[0]
        observed = ObservedRequest(sender.machine, sender.peer.machine, ApiKey(key), version, message, sender)
        connection.in_flight[correlation_id] = observed
        self._on_request(observed)

    def _response(self, connection: ObservedConnection, frame: bytes) -> None:
        observed = connection.in_flight.pop(_CORRELATION.unpack_from(frame)[0], None)
        if observed is not None:
            api = API[observed.api]
            _, position = decode_response_header(frame, api, observed.version)
            self._on_response(observed, decode(api.response, observed.version, frame, position)[0])


def _frames(buffer: bytearray, data: bytes) -> Iterator[bytes]:
    buffer += data
    while len(buffer) >= 4:
        (size,) = _SIZE.unpack_from(buffer)
        if len(buffer) < size + 4:
            return
        frame = bytes(buffer[4 : size + 4])
        del buffer[: size + 4]
        yield frame
