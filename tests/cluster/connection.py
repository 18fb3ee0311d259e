"""One blocking connection to a node over a real socket, in any version of any API; the node is ours or Apache Kafka."""

from __future__ import annotations

import itertools
import socket
import struct
from typing import Any

from strandline.protocol.apis import API
from strandline.protocol.codec import decode
from strandline.protocol.framing import decode_response_header, request_parts
from strandline.protocol.types import Message

TIMEOUT_S = 60


class ConnectionClosed(Exception):
    """The node closed the connection instead of responding."""


class Connection:
    def __init__(self, host: str, port: int, timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket.create_connection((host, port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_ids = itertools.count(1)

    def call(self, request: Message, version: int, client_id: str | None = "script") -> Any:
        """Sends a request and returns its response."""
        correlation_id = self.send(request, version, client_id)
        return self.receive(request, version, correlation_id)

    def send(self, request: Message, version: int, client_id: str | None = "script") -> int:
        """Returns the correlation id of the request."""
        correlation_id = next(self._correlation_ids)
        try:
            self.socket.sendall(frame_request(request, version, correlation_id, client_id))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionClosed from error
        return correlation_id

    def receive(self, request: Message, version: int, correlation_id: int) -> Any:
        """The next response on this connection, which must be the response to this request."""
        assert request.api_key is not None
        api = API[request.api_key]
        frame = self.frame()
        received, position = decode_response_header(frame, api, version)
        assert received == correlation_id, f"response {received} to request {correlation_id}"
        message, end = decode(api.response, version, frame, position)
        assert end == len(frame), f"{len(frame) - end} bytes are left after {type(message).__name__} v{version}"
        return message

    def frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            try:
                chunk = self.socket.recv(min(size - len(received), 1 << 20))
            except ConnectionResetError as error:
                raise ConnectionClosed from error
            if not chunk:
                raise ConnectionClosed
            received += chunk
        return bytes(received)

    def close(self) -> None:
        self.socket.close()


def frame_request(request: Message, version: int, correlation_id: int = 1, client_id: str | None = "script") -> bytes:
    assert request.api_key is not None
    parts = request_parts(API[request.api_key], version, correlation_id, client_id, request)
    return b"".join(part for part in parts if isinstance(part, bytes | bytearray | memoryview))
