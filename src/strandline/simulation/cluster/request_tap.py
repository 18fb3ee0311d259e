"""Listens to what nodes say to each other: requests and answers of a few APIs, decoded at the moment they are written.

What is said is what counts: a promise is broken when it leaves the node, whether or not the message arrives. When a
request arrived matters too: what the one who answers could know then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct

from strandline.protocol.apis import API, ApiKey
from strandline.protocol.codec import decode
from strandline.protocol.framing import decode_header, decode_response_header
from strandline.protocol.types import Message
from strandline.simulation.network import Fabric
from strandline.simulation.transport import SimTransport

_SIZE = Struct(">i")
_REQUEST = Struct(">hhi")  # key, version, correlation id
_CORRELATION = Struct(">i")


@dataclass(slots=True, weakref_slot=True, eq=False)
class ObservedRequest:
    """A request of interest."""

    source: str
    target: str
    api: ApiKey
    version: int
    message: Message
    connection: SimTransport | None = None

    @property
    def is_over(self) -> bool:
        """No answer would reach anybody."""
        connection = self.connection
        return connection is None or connection.closed or connection.peer.closed


@dataclass(slots=True)
class ObservedConnection:
    """One connection: bytes that do not make a frame yet, and questions without an answer."""

    apis: frozenset[ApiKey]
    asking: bytearray = field(default_factory=bytearray)
    arriving: bytearray = field(default_factory=bytearray)
    answering: bytearray = field(default_factory=bytearray)
    open: dict[int, ObservedRequest] = field(default_factory=dict)


class RequestTap:
    """Installed as the tap of a fabric. Connections to listeners on these ports only; other APIs cost a glance."""

    def __init__(
        self,
        fabric: Fabric,
        apis: Mapping[int, Collection[ApiKey]],
        *,
        on_request: Callable[[ObservedRequest], None],
        on_arrival: Callable[[ObservedRequest], None],
        on_response: Callable[[ObservedRequest, Message], None],
    ) -> None:
        """`apis` by port."""
        self._apis = {port: frozenset(some) for port, some in apis.items()}
        self._on_request = on_request
        self._on_arrival = on_arrival
        self._on_response = on_response
        self._conversations: dict[SimTransport, ObservedConnection] = {}
        fabric.tap = self

    def written(self, sender: SimTransport, data: bytes) -> None:
        conversation = self._conversation(sender if sender.is_client else sender.peer)
        if conversation is None:
            return
        if sender.is_client:
            for frame in _frames(conversation.asking, data):
                self._request(sender, conversation, frame)
        else:
            for frame in _frames(conversation.answering, data):
                self._response(conversation, frame)

    def arrived(self, sender: SimTransport, data: bytes) -> None:
        conversation = self._conversations.get(sender) if sender.is_client else None
        if conversation is not None:
            for frame in _frames(conversation.arriving, data):
                key, _, correlation_id = _REQUEST.unpack_from(frame)
                if key in conversation.apis and correlation_id in conversation.open:
                    self._on_arrival(conversation.open[correlation_id])

    def _conversation(self, asker: SimTransport) -> ObservedConnection | None:
        conversation = self._conversations.get(asker)
        port = asker.get_extra_info("peername")[1]
        if conversation is None and port in self._apis:
            for ended in [each for each in self._conversations if each.closed and each.peer.closed]:
                del self._conversations[ended]
            conversation = self._conversations[asker] = ObservedConnection(self._apis[port])
        return conversation

    def _request(self, sender: SimTransport, conversation: ObservedConnection, frame: bytes) -> None:
        key, version, correlation_id = _REQUEST.unpack_from(frame)
        if key not in conversation.apis:
            return
        _, position = decode_header(frame)
        message = decode(API[key].request, version, frame, position)[0]
        asked = ObservedRequest(sender.machine, sender.peer.machine, ApiKey(key), version, message, sender)
        conversation.open[correlation_id] = asked
        self._on_request(asked)

    def _response(self, conversation: ObservedConnection, frame: bytes) -> None:
        asked = conversation.open.pop(_CORRELATION.unpack_from(frame)[0], None)
        if asked is not None:
            api = API[asked.api]
            _, position = decode_response_header(frame, api, asked.version)
            self._on_response(asked, decode(api.response, asked.version, frame, position)[0])


def _frames(waiting: bytearray, data: bytes) -> Iterator[bytes]:
    waiting += data
    while len(waiting) >= 4:
        (size,) = _SIZE.unpack_from(waiting)
        if len(waiting) < size + 4:
            return
        frame = bytes(waiting[4 : size + 4])
        del waiting[: size + 4]
        yield frame
