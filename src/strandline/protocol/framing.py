"""Frames and headers of requests and responses.

A frame is four bytes of size and that many bytes of header and body. `FrameParser` splits a stream into frames, for the
server and the client; `decode_header` and `response_parts` are the server's side of headers, `request_parts` and
`decode_response_header` the client's.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Any, Final

import msgspec

from strandline.protocol.apis import API, Api
from strandline.protocol.codec import encode_into
from strandline.protocol.errors import EncodeError, MalformedMessage
from strandline.protocol.types import Message
from strandline.records.errors import OverlongVarint
from strandline.records.varint import read_uvarint
from strandline.runtime.disk import Buffer
from strandline.runtime.file_slice import Part

RECEIVE_BUFFER_BYTES: Final = 64 * 1024
# The size of a frame is not trusted: the buffer of a large frame starts with the size of the largest earlier frame of
# the connection, up to this limit, and grows as bytes arrive. So the usual produce requests are received without
# copying.
MAX_INITIAL_BUFFER_BYTES: Final = 1024 * 1024
_GROWTH: Final = 2
# With less free space than this at its end, the content of the receive buffer is moved to its front.
_MIN_FREE_BYTES: Final = 4096

# The receive buffer of a parser without one.
_EMPTY: Final = bytearray()

# Tags that a header may have; they are skipped one by one.
MAX_HEADER_TAGS: Final = 100

_FLEXIBLE_FROM: Final = {int(api.key): api.flexible_from for api in API.values()}
_SIZE = Struct(">i")
_REQUEST_HEADER = Struct(">hhih")
_RESPONSE_HEADER = Struct(">i")
_TAGGED_RESPONSE_HEADER = Struct(">ix")  # with an empty tag section


class InvalidFrameSize(MalformedMessage):
    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"a frame of {size} bytes exceeds the limit of {limit}" if size > 0 else f"a frame of {size} bytes"
        )
        self.size = size


class FrameParser:
    """Splits received bytes into frames; made for asyncio.BufferedProtocol.

    Small frames are copied out of a receive buffer; a frame that does not fit into it is received directly into a
    bytearray of its own. Frames are writable and belong to the caller: later receives do not change them. After every
    `buffer_updated`, `next_frame` must be called until it returns None.

    Connections may share a receive buffer, since most have nothing in it between two reads: then
    `release_shared_buffer` must be called before another connection reads."""

    __slots__ = (
        "_begin",
        "_end",
        "_filled",
        "_finished",
        "_frame",
        "_initial_bytes",
        "_received",
        "_shared",
        "_size",
        "max_frame_bytes",
    )

    def __init__(self, max_frame_bytes: int, shared: bytearray | None = None) -> None:
        """`shared` is a receive buffer of RECEIVE_BUFFER_BYTES."""
        self.max_frame_bytes = max_frame_bytes
        self._shared = shared
        self._received = _EMPTY
        self._begin = 0
        self._end = 0
        self._frame: bytearray | None = None
        """The buffer of the incomplete large frame; it may be smaller than the frame."""
        self._filled = 0
        """How many bytes of the incomplete large frame have arrived."""
        self._size = 0
        self._initial_bytes = RECEIVE_BUFFER_BYTES
        self._finished: list[bytearray] = []
        """Complete large frames. They arrived before the content of the receive buffer."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes that have arrived and were not returned by `next_frame`."""
        waiting = self._end - self._begin + self._filled
        return waiting + sum(map(len, self._finished)) if self._finished else waiting

    @property
    def held_bytes(self) -> int:
        """The memory of the buffers, including space for bytes that have not arrived."""
        held = self._end - self._begin if self._received is self._shared else len(self._received)
        held += 0 if self._frame is None else len(self._frame)
        return held + sum(map(len, self._finished)) if self._finished else held

    @property
    def is_amid_frame(self) -> bool:
        """Whether the next bytes belong to an incomplete large frame, with no complete frame before it."""
        return self._frame is not None and not self._finished

    def get_buffer(self, hint: int = -1) -> memoryview:
        if self._frame is not None:
            return memoryview(self._growing_frame())[self._filled :]
        if self._begin == self._end:
            self._begin = self._end = 0
            if self._shared is not None:
                self._received = self._shared
        room = len(self._received) - self._end
        if room == 0 or (room < _MIN_FREE_BYTES and self._begin > 0) or len(self._received) > RECEIVE_BUFFER_BYTES:
            self._compact()
        return memoryview(self._received)[self._end :]

    def buffer_updated(self, count: int) -> None:
        if self._frame is None:
            self._end += count
            return
        self._filled += count
        if self._filled == self._size:
            self._finished.append(self._frame)
            self._initial_bytes = min(max(self._initial_bytes, self._size), MAX_INITIAL_BUFFER_BYTES)
            self._frame = None
            self._filled = self._size = 0

    def release_shared_buffer(self) -> None:
        """Moves the content of the shared buffer to a buffer of its own, if there is any."""
        if self._received is not self._shared:
            return
        if self._begin == self._end:
            self._received = _EMPTY
            self._begin = self._end = 0
        else:
            waiting = self._received[self._begin : self._end]
            self._received = bytearray(RECEIVE_BUFFER_BYTES)
            self._received[: len(waiting)] = waiting
            self._begin, self._end = 0, len(waiting)

    def drop(self) -> None:
        """Drops all bytes and buffers."""
        self._received, self._frame = _EMPTY, None
        self._begin = self._end = self._filled = self._size = 0
        self._finished.clear()

    def receive_data(self, data: Buffer) -> None:
        """Like `get_buffer` and `buffer_updated`, for callers that receive bytes."""
        data = memoryview(data)
        while len(data) > 0:
            room = self.get_buffer(len(data))
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.buffer_updated(count)
            data = data[count:]
            if self._frame is None:
                self._start_large_frame()

    def next_frame(self) -> bytearray | None:
        """The next complete frame without its size, or None. Raises InvalidFrameSize."""
        if self._finished:
            return self._finished.pop(0)
        begin, available = self._begin, self._end - self._begin
        if available < 4:
            return None
        (size,) = _SIZE.unpack_from(self._received, begin)
        if not 0 <= size <= self.max_frame_bytes:
            raise InvalidFrameSize(size, self.max_frame_bytes)
        if available < size + 4:
            self._start_large_frame()
            return None
        self._begin = begin + 4 + size
        return self._received[begin + 4 : self._begin]

    def _compact(self) -> None:
        """Moves the content to the front. A buffer that is full of frames grows until they are taken."""
        waiting = self._received[self._begin : self._end]
        size = RECEIVE_BUFFER_BYTES if len(waiting) < RECEIVE_BUFFER_BYTES else 2 * len(waiting)
        if len(self._received) != size:
            self._received = bytearray(size)
        self._received[: len(waiting)] = waiting
        self._begin, self._end = 0, len(waiting)

    def _start_large_frame(self) -> None:
        """Gives the frame at the front of the receive buffer its own buffer if it is too large."""
        available = self._end - self._begin
        if available < 4:
            return
        (size,) = _SIZE.unpack_from(self._received, self._begin)
        if size + 4 <= max(RECEIVE_BUFFER_BYTES, available) or size > self.max_frame_bytes:
            return
        self._filled = available - 4
        self._frame = bytearray(min(size, max(self._initial_bytes, self._filled)))
        self._size = size
        self._frame[: self._filled] = memoryview(self._received)[self._begin + 4 : self._end]
        self._begin = self._end = 0

    def _growing_frame(self) -> bytearray:
        frame = self._frame
        assert frame is not None
        if self._filled == len(frame):
            # A new bytearray, since one cannot be resized while the caller holds a view of it.
            self._frame = bytearray(min(self._size, len(frame) * _GROWTH))
            self._frame[: len(frame)] = frame
            return self._frame
        return frame


class RequestHeader(msgspec.Struct, frozen=True):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str


def decode_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a request, and the position of its body.

    The header of an unknown API key is read as version 1. A null client id is read as ""."""
    try:
        api_key, api_version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
        position = 10
        client_id = ""
        if length > 0:
            position += length
            if position > len(frame):
                raise MalformedMessage("the client id is longer than the frame")
            client_id = str(frame[10:position], "utf-8")
        flexible_from = _FLEXIBLE_FROM.get(api_key)
        if flexible_from is not None and api_version >= flexible_from:
            # No tags are defined for request headers, so the tag section is usually one zero byte.
            position = position + 1 if frame[position] == 0 else _skip_tags(frame, position)
    except (struct_error, IndexError):
        raise MalformedMessage("the frame ends inside its request header") from None
    except OverlongVarint as error:
        raise MalformedMessage(f"the request header: {error}") from None
    except UnicodeDecodeError:
        raise MalformedMessage("the client id is not UTF-8") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def decode_response_header(frame: Buffer, api: Api, version: int) -> tuple[int, int]:
    """The correlation id of a response, and the position of its body."""
    try:
        (correlation_id,) = _RESPONSE_HEADER.unpack_from(frame)
        position = 4
        if api.response_header_version(version) == 1:
            position = _skip_tags(frame, position)
    except (struct_error, IndexError):
        raise MalformedMessage("the frame ends inside its response header") from None
    except OverlongVarint as error:
        raise MalformedMessage(f"the response header: {error}") from None
    return correlation_id, position


def _skip_tags(frame: Buffer, position: int) -> int:
    count, position = read_uvarint(frame, position)
    if count > MAX_HEADER_TAGS:
        raise MalformedMessage(f"the header has {count} tags")
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise MalformedMessage("a tag of the header is larger than the frame")
    return position


def response_parts(correlation_id: int, api: Api, version: int, message: Message) -> list[Part]:
    """A response frame, including its size."""
    tagged = api.response_header_version(version) == 1
    header = _TAGGED_RESPONSE_HEADER if tagged else _RESPONSE_HEADER
    return _framed(header.pack(correlation_id), message, version)


def request_parts(api: Api, version: int, correlation_id: int, client_id: str | None, message: Message) -> list[Part]:
    """A request frame, including its size."""
    name = b"" if client_id is None else client_id.encode()
    if len(name) > 32767:
        raise EncodeError("the client id is too long for a string")
    length = -1 if client_id is None else len(name)
    header = _REQUEST_HEADER.pack(api.key, version, correlation_id, length) + name
    if api.request_header_version(version) == 2:
        header += b"\0"
    return _framed(header, message, version)


def _framed(header: bytes, message: Message, version: int) -> list[Part]:
    out: list[Any] = [header]
    parts: list[Part] = []
    encode_into(message, version, out, parts)
    if not parts:
        # Joining short buffers costs less than adding up their sizes.
        whole = b"".join(out)
        return [_SIZE.pack(len(whole)) + whole]
    if out:
        parts.append(b"".join(out))
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = _SIZE.pack(sum(map(len, parts))) + first
    return parts
