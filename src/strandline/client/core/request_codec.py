"""Encodes the requests of one connection and decodes their responses, without a socket.

A core; `connection` is its shell. Invariant: a broker responds in the order of the requests, so a response whose
correlation id is not that of the oldest request in flight is a protocol violation.
"""

from __future__ import annotations

from collections import deque

import msgspec

from strandline.client.errors import ProtocolViolation
from strandline.model.errors import ErrorCode
from strandline.protocol.apis import API, Api, ApiKey
from strandline.protocol.codec import MalformedMessage, decode
from strandline.protocol.framing import FrameParser, decode_response_header, request_parts
from strandline.protocol.types import Message
from strandline.runtime.file_slice import Part


class _InFlight(msgspec.Struct, frozen=True):
    correlation_id: int
    api: Api
    version: int


class RequestCodec:
    def __init__(self, client_id: str, max_response_bytes: int) -> None:
        self._client_id = client_id
        self._frames = FrameParser(max_response_bytes)
        self._in_flight: deque[_InFlight] = deque()
        self._correlation_id = 0

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def encode_request(
        self, request: Message, version: int, *, expects_response: bool = True
    ) -> tuple[int, list[Part]]:
        """The correlation id and the bytes of a request. A produce with acks=0 expects no response."""
        assert request.api_key is not None
        api = API[request.api_key]
        correlation_id = self._correlation_id
        parts = request_parts(api, version, correlation_id, self._client_id, request)
        self._correlation_id = (correlation_id + 1) & 0x7FFF_FFFF
        if expects_response:
            self._in_flight.append(_InFlight(correlation_id, api, version))
        return correlation_id, parts

    def get_buffer(self, hint: int = -1) -> memoryview:
        """The buffer for the next bytes: large responses are received in place."""
        return self._frames.get_buffer(hint)

    def buffer_updated(self, count: int) -> list[tuple[int, Message]]:
        """The responses that these bytes complete, oldest first."""
        try:
            self._frames.buffer_updated(count)
            responses = []
            while (frame := self._frames.next_frame()) is not None:
                responses.append(self._decode_response(frame))
            return responses
        except MalformedMessage as error:
            raise ProtocolViolation(f"the response is malformed: {error}") from error

    def _decode_response(self, frame: bytearray) -> tuple[int, Message]:
        if not self._in_flight:
            raise ProtocolViolation("a response arrived without a request in flight")
        request = self._in_flight.popleft()
        correlation_id, position = decode_response_header(frame, request.api, request.version)
        if correlation_id != request.correlation_id:
            raise ProtocolViolation(f"expected the response to request {request.correlation_id}, got {correlation_id}")
        version = request.version
        if request.api.key == ApiKey.API_VERSIONS and _is_unsupported_version(frame, position):
            version = 0  # a broker that does not support the version responds in version 0
        return correlation_id, decode(request.api.response, version, frame, position)[0]


def _is_unsupported_version(frame: bytearray, position: int) -> bool:
    code = int.from_bytes(frame[position : position + 2], "big", signed=True)
    return code == ErrorCode.UNSUPPORTED_VERSION
