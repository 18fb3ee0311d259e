"""One connection's conversation, without a socket: requests become bytes, bytes become answers.

A core: `connection` feeds it what arrives and sends what it returns. Invariant: a broker answers in the order of the
questions, so an answer whose correlation id is not that of the oldest open question means that the peer is not to be
understood any more.
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


class _Asked(msgspec.Struct, frozen=True):
    correlation_id: int
    api: Api
    version: int


class RequestCodec:
    def __init__(self, client_id: str, max_response_bytes: int) -> None:
        self._client_id = client_id
        self._frames = FrameParser(max_response_bytes)
        self._asked: deque[_Asked] = deque()
        self._correlation_id = 0

    @property
    def in_flight(self) -> int:
        return len(self._asked)

    def ask(self, request: Message, version: int, *, answered: bool = True) -> tuple[int, list[Part]]:
        """The bytes of a request, and the correlation id its answer will carry (a produce with acks=0 has none)."""
        assert request.api_key is not None
        api = API[request.api_key]
        correlation_id = self._correlation_id
        parts = request_parts(api, version, correlation_id, self._client_id, request)
        self._correlation_id = (correlation_id + 1) & 0x7FFF_FFFF
        if answered:
            self._asked.append(_Asked(correlation_id, api, version))
        return correlation_id, parts

    def get_buffer(self, hint: int = -1) -> memoryview:
        """Room for what arrives next: large answers are received in place."""
        return self._frames.get_buffer(hint)

    def buffer_updated(self, count: int) -> list[tuple[int, Message]]:
        """The answers that these bytes complete, oldest first."""
        try:
            self._frames.buffer_updated(count)
            answers = []
            while (frame := self._frames.next_frame()) is not None:
                answers.append(self._answer(frame))
            return answers
        except MalformedMessage as error:
            raise ProtocolViolation(f"the answer cannot be understood: {error}") from error

    def _answer(self, frame: bytearray) -> tuple[int, Message]:
        if not self._asked:
            raise ProtocolViolation("an answer came to a question that was never asked")
        asked = self._asked.popleft()
        correlation_id, position = decode_response_header(frame, asked.api, asked.version)
        if correlation_id != asked.correlation_id:
            raise ProtocolViolation(f"expected the answer to question {asked.correlation_id}, got {correlation_id}")
        version = asked.version
        if asked.api.key == ApiKey.API_VERSIONS and _refuses_version(frame, position):
            version = 0  # a broker that finds our version too new answers in the oldest form
        return correlation_id, decode(asked.api.response, version, frame, position)[0]


def _refuses_version(frame: bytearray, position: int) -> bool:
    code = int.from_bytes(frame[position : position + 2], "big", signed=True)
    return code == ErrorCode.UNSUPPORTED_VERSION
