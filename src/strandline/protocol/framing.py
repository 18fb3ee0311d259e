"""Frames and headers: where a message begins and ends on a connection.

A frame is four bytes of size and that many bytes of header and body. `FrameParser` cuts a stream into frames for the
server and the client alike; `decode_header`, `response_parts` and their counterparts for the client know the headers.
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
from strandline.protocol.varints import read_uvarint
from strandline.runtime.disk import Buffer
from strandline.runtime.file_slice import Part

RECEIVE_BUFFER_BYTES: Final = 64 * 1024
# Four bytes on the wire must not make us allocate what they promise: a large frame begins with as much room as this
# connection has filled before, up to here, and grows as its bytes arrive. So the ordinary produce requests of somebody
# who makes many are received in place.
FIRST_ROOM_BYTES: Final = 1024 * 1024
_GROWTH: Final = 2
# With less room than this at its end, what waits in the receive buffer is moved to its front.
_LEAST_ROOM_BYTES: Final = 4096

# The receive buffer of who has none. Nobody writes into it: it has no room.
_NOTHING: Final = bytearray()

# Each costs a step to skip.
MAX_HEADER_TAGS: Final = 100

_FLEXIBLE_FROM: Final = {int(api.key): api.flexible_from for api in API.values()}
_SIZE = Struct(">i")
_REQUEST_HEADER = Struct(">hhih")
_RESPONSE_HEADER = Struct(">i")
_TAGGED_RESPONSE_HEADER = Struct(">ix")  # with the byte that says that there are no tags


class InvalidFrameSize(MalformedMessage):
    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"a frame of {size} bytes: more than the {limit} allowed" if size > 0 else f"a frame of {size} bytes"
        )
        self.size = size


class FrameParser:
    """Bytes in, frames out, shaped for asyncio.BufferedProtocol.

    Small frames are cut out of one receive buffer; a frame that does not fit into it is received directly into a
    bytearray of its own. Frames are writable and belong to whoever took them: no later receive touches them. Call
    `next_frame` until it answers None after every `buffer_updated`.

    Thousands of connections can share a receive buffer, since between two reads they have mostly nothing in it: then
    `settle` must be called before anybody else reads."""

    __slots__ = (
        "_begin",
        "_end",
        "_filled",
        "_finished",
        "_first_room",
        "_frame",
        "_received",
        "_shared",
        "_size",
        "max_frame_bytes",
    )

    def __init__(self, max_frame_bytes: int, shared: bytearray | None = None) -> None:
        """`shared` has RECEIVE_BUFFER_BYTES."""
        self.max_frame_bytes = max_frame_bytes
        self._shared = shared
        self._received = _NOTHING
        self._begin = 0
        self._end = 0
        # The large frame under way: its buffer (perhaps shorter than its size), the bytes that arrived, its size.
        self._frame: bytearray | None = None
        self._filled = 0
        self._size = 0
        self._first_room = RECEIVE_BUFFER_BYTES
        # Large frames that are whole. They came before anything that is in the receive buffer.
        self._finished: list[bytearray] = []

    @property
    def waiting_bytes(self) -> int:
        """Bytes that arrived and have not been handed out."""
        waiting = self._end - self._begin + self._filled
        return waiting + sum(map(len, self._finished)) if self._finished else waiting

    @property
    def held_bytes(self) -> int:
        """The memory that these take, with the room for what they announce."""
        held = self._end - self._begin if self._received is self._shared else len(self._received)
        held += 0 if self._frame is None else len(self._frame)
        return held + sum(map(len, self._finished)) if self._finished else held

    @property
    def is_amid_frame(self) -> bool:
        """Whether a large frame is under way, and nothing else is there: what arrives next belongs to it."""
        return self._frame is not None and not self._finished

    def get_buffer(self, hint: int = -1) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame_with_room())[self._filled :]
        if self._begin == self._end:
            self._begin = self._end = 0
            if self._shared is not None:
                self._received = self._shared
        room = len(self._received) - self._end
        if room == 0 or (room < _LEAST_ROOM_BYTES and self._begin > 0) or len(self._received) > RECEIVE_BUFFER_BYTES:
            self._make_room()
        return memoryview(self._received)[self._end :]

    def buffer_updated(self, count: int) -> None:
        if self._frame is None:
            self._end += count
            return
        self._filled += count
        if self._filled == self._size:
            self._finished.append(self._frame)
            self._first_room = min(max(self._first_room, self._size), FIRST_ROOM_BYTES)
            self._frame = None
            self._filled = self._size = 0

    def settle(self) -> None:
        """What waits in the shared buffer moves out of it; who has nothing waiting holds no buffer."""
        if self._received is not self._shared:
            return
        if self._begin == self._end:
            self._received = _NOTHING
            self._begin = self._end = 0
        else:
            waiting = self._received[self._begin : self._end]
            self._received = bytearray(RECEIVE_BUFFER_BYTES)
            self._received[: len(waiting)] = waiting
            self._begin, self._end = 0, len(waiting)

    def drop(self) -> None:
        """Nobody will take what waits."""
        self._received, self._frame = _NOTHING, None
        self._begin = self._end = self._filled = self._size = 0
        self._finished.clear()

    def receive_data(self, data: Buffer) -> None:
        """For those who are handed bytes rather than asked for a buffer."""
        data = memoryview(data)
        while len(data) > 0:
            room = self.get_buffer(len(data))
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.buffer_updated(count)
            data = data[count:]
            if self._frame is None:
                self._begin_large_frame()

    def next_frame(self) -> bytearray | None:
        """The next whole frame without its size, or None; InvalidFrameSize when the stream cannot be followed."""
        if self._finished:
            return self._finished.pop(0)
        begin, available = self._begin, self._end - self._begin
        if available < 4:
            return None
        (size,) = _SIZE.unpack_from(self._received, begin)
        if not 0 <= size <= self.max_frame_bytes:
            raise InvalidFrameSize(size, self.max_frame_bytes)
        if available < size + 4:
            self._begin_large_frame()
            return None
        self._begin = begin + 4 + size
        return self._received[begin + 4 : self._begin]

    def _make_room(self) -> None:
        """Moves what waits to the front. A buffer full of frames that nobody took grows, for as long as it is."""
        waiting = self._received[self._begin : self._end]
        size = RECEIVE_BUFFER_BYTES if len(waiting) < RECEIVE_BUFFER_BYTES else 2 * len(waiting)
        if len(self._received) != size:
            self._received = bytearray(size)
        self._received[: len(waiting)] = waiting
        self._begin, self._end = 0, len(waiting)

    def _begin_large_frame(self) -> None:
        """Leaves the receive buffer when the frame at its front can never fit into it."""
        available = self._end - self._begin
        if available < 4:
            return
        (size,) = _SIZE.unpack_from(self._received, self._begin)
        if size + 4 <= max(RECEIVE_BUFFER_BYTES, available) or size > self.max_frame_bytes:
            return
        self._filled = available - 4
        self._frame = bytearray(min(size, max(self._first_room, self._filled)))
        self._size = size
        self._frame[: self._filled] = memoryview(self._received)[self._begin + 4 : self._end]
        self._begin = self._end = 0

    def _frame_with_room(self) -> bytearray:
        frame = self._frame
        assert frame is not None
        if self._filled == len(frame):
            # A new one rather than a resized one: whoever called us last may still hold a view of the old.
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
    """The header of a request, and where its body begins.

    An unknown key is read as an old header, which is all that can be known about it. A null client id reads as ""."""
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
            # Nobody has defined a tag yet, so there is one byte that says so.
            position = position + 1 if frame[position] == 0 else _skip_tags(frame, position)
    except (struct_error, IndexError):
        raise MalformedMessage("the frame ends inside its request header") from None
    except UnicodeDecodeError:
        raise MalformedMessage("the client id is not UTF-8") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def decode_response_header(frame: Buffer, api: Api, version: int) -> tuple[int, int]:
    """The correlation id of a response, and where its body begins."""
    try:
        (correlation_id,) = _RESPONSE_HEADER.unpack_from(frame)
        position = 4
        if api.response_header_version(version) == 1:
            position = _skip_tags(frame, position)
    except (struct_error, IndexError):
        raise MalformedMessage("the frame ends inside its response header") from None
    return correlation_id, position


def _skip_tags(frame: Buffer, position: int) -> int:
    count, position = read_uvarint(frame, position)
    if count > MAX_HEADER_TAGS:
        raise MalformedMessage(f"a header with {count} tags")
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise MalformedMessage("a tag of the header is larger than the frame")
    return position


def response_parts(correlation_id: int, api: Api, version: int, message: Message) -> list[Part]:
    """A whole response frame, its size first."""
    tagged = api.response_header_version(version) == 1
    header = _TAGGED_RESPONSE_HEADER if tagged else _RESPONSE_HEADER
    return _framed(header.pack(correlation_id), message, version)


def request_parts(api: Api, version: int, correlation_id: int, client_id: str | None, message: Message) -> list[Part]:
    """A whole request frame, its size first."""
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
        # To copy what is nearly always short costs less than to add up its pieces.
        whole = b"".join(out)
        return [_SIZE.pack(len(whole)) + whole]
    if out:
        parts.append(b"".join(out))
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = _SIZE.pack(sum(map(len, parts))) + first
    return parts
