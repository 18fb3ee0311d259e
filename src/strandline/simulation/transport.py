"""One end of a simulated TCP connection: an asyncio transport whose socket is the other end, behind a `Fabric`.

A program sees what asyncio and the kernel would give it: bytes in order, split and joined arbitrarily; a write buffer
that fills when the peer does not read (`pause_writing`, `resume_writing`); end-of-file after `close` of the peer, or an
error when the connection was terminated. A socket paused for reading does not notice the end of its peer until it reads
or writes.

Events of the network (`arrived`, `ended`, `reset`) happen to the socket even if its process is paused; those of the
program (`_readable`, `_acknowledged`, `_connection_lost`) run only while its process does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from typing import Any, Protocol

from strandline.runtime.disk import Buffer
from strandline.simulation.loop import VirtualLoop
from strandline.simulation.process import current_process

_READ_BYTES = 64 * 1024
_HIGH_WATER_BYTES = 64 * 1024

Address = tuple[str, int]


class Carrier(Protocol):
    """What a transport needs from the network."""

    loop: VirtualLoop

    def send(self, sender: SimTransport, data: bytes) -> None: ...
    def carry(self, sender: SimTransport, arrive: Callable[..., None], *arguments: Any) -> None: ...
    def is_abrupt(self) -> bool: ...


class SimTransport(asyncio.Transport):
    def __init__(self, carrier: Carrier, machine: str, local: Address, remote: Address, window_bytes: int) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self.machine = machine
        self.process = current_process()
        self.peer: SimTransport
        self.is_client = False
        """This end opened the connection."""
        self.last_arrival_us = 0
        """The arrival of what this end has sent: bytes never overtake each other."""
        self.closed = False
        """The socket is closed: data that arrives for it triggers a reset."""
        self._carrier = carrier
        self._context: Context = copy_context()
        self._protocol: asyncio.BaseProtocol | None = None
        self._window_bytes = window_bytes
        self._outgoing: deque[bytes] = deque()
        self._outgoing_bytes = 0
        self._unread_bytes = 0
        """Sent, and not yet read at the other end."""
        self._incoming = bytearray()
        self._incoming_ended = False
        self._eof_delivered = False
        self._reading = True
        self._closing = False
        self._eof_written = False
        self._eof_sent = False
        self._error: OSError | None = None
        self._high_bytes, self._low_bytes = _HIGH_WATER_BYTES, _HIGH_WATER_BYTES // 4
        self._writing_paused = False

    def __repr__(self) -> str:
        return f"<{self.get_extra_info('sockname')} to {self.get_extra_info('peername')}>"

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        self._read_soon()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    @property
    def is_receiving(self) -> bool:
        """Arriving data is accepted: not after a reset, since data before it may be missing."""
        return not self.closed and self._error is None

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            self._read_soon()

    def write(self, data: Buffer) -> None:
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or self.closed or len(data) == 0:
            return
        if self._error is not None:
            self._fail(self._error)
            return
        self._outgoing.append(bytes(data))
        self._outgoing_bytes += len(data)
        self._push()
        if self._outgoing_bytes > self._high_bytes and not self._writing_paused:
            self._writing_paused = True
            self.get_protocol().pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._closing and not self._eof_written:
            self._eof_written = True
            self._push()

    def get_write_buffer_size(self) -> int:
        return self._outgoing_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER_BYTES if low is None else 4 * low
        self._high_bytes, self._low_bytes = high, high // 4 if low is None else low

    def close(self) -> None:
        """Buffered data is still sent; nothing more is read."""
        if not self._closing:
            self._closing = True
            self._push()

    def abort(self) -> None:
        if not self.closed:
            self._closing = True
            self.terminate()
            self._soon(self._connection_lost, None)

    def terminate(self) -> None:
        """The process ended or aborted the socket: after the sent data the peer receives end-of-file or a reset."""
        self._drop_outgoing()
        if not self.closed:
            self.closed = True
            end = self.peer.reset if self._incoming or self._carrier.is_abrupt() else self.peer.ended
            self._carrier.carry(self, end)

    def arrived(self, data: bytes) -> None:
        if self.closed:
            self._carrier.carry(self, self.peer.reset)
            return
        self._incoming += data
        self._read_soon()

    def ended(self) -> None:
        if not self.closed:
            self._incoming_ended = True
            self._read_soon()

    def reset(self) -> None:
        if not self.closed and self._error is None:
            self._error = ConnectionResetError("Connection reset by peer")
            self._incoming.clear()
            self._read_soon()

    def _read_soon(self) -> None:
        if self._protocol is not None:
            self._soon(self._readable)

    def _soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        self._carrier.loop.call_soon(callback, *arguments, context=self._context)

    def _readable(self) -> None:
        if self.closed or self._closing or not self._reading:
            if self._error is not None and self._outgoing:
                self._fail(self._error)
            return
        if self._error is not None:
            self._fail(self._error)
        elif self._incoming:
            self._read()
        elif self._incoming_ended and not self._eof_delivered:
            self._eof_delivered = True
            protocol = self._protocol
            assert isinstance(protocol, (asyncio.Protocol, asyncio.BufferedProtocol))
            if not protocol.eof_received():
                self.close()

    def _read(self) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(_READ_BYTES)).cast("B")
            count = min(len(buffer), len(self._incoming))
            if count == 0:
                raise RuntimeError("get_buffer() returned an empty buffer")
            buffer[:count] = self._incoming[:count]
            buffer.release()
            del self._incoming[:count]
            protocol.buffer_updated(count)
        else:
            assert isinstance(protocol, asyncio.Protocol)
            data = bytes(self._incoming[:_READ_BYTES])
            count = len(data)
            del self._incoming[:count]
            protocol.data_received(data)
        self.peer.was_read(count)
        if self._incoming or self._incoming_ended:
            self._read_soon()

    def was_read(self, count: int) -> None:
        if self._outgoing:
            self._carrier.carry(self.peer, self._acknowledged_soon, count)
        else:
            self._unread_bytes -= count  # no write waits for the window

    def _acknowledged_soon(self, count: int) -> None:
        self._soon(self._acknowledged, count)

    def _acknowledged(self, count: int) -> None:
        self._unread_bytes -= count
        if self.closed:
            return
        self._push()
        if self._writing_paused and self._outgoing_bytes <= self._low_bytes:
            self._writing_paused = False
            self.get_protocol().resume_writing()

    def _push(self) -> None:
        """Sends from the write buffer as far as the window allows; then the end-of-file, if it was requested."""
        while self._outgoing and self._unread_bytes < self._window_bytes:
            data = self._outgoing.popleft()
            room = self._window_bytes - self._unread_bytes
            if len(data) > room:
                self._outgoing.appendleft(data[room:])
                data = data[:room]
            self._outgoing_bytes -= len(data)
            self._unread_bytes += len(data)
            self._carrier.send(self, data)
        if self._outgoing or self.closed:
            return
        if self._closing:
            self.closed = True
            # As on Linux: closing a socket with unread data resets the connection.
            self._carrier.carry(self, self.peer.reset if self._incoming else self.peer.ended)
            self._soon(self._connection_lost, None)
        elif self._eof_written and not self._eof_sent:
            self._eof_sent = True
            self._carrier.carry(self, self.peer.ended)

    def _fail(self, error: OSError) -> None:
        self._closing = True
        self.closed = True
        self._drop_outgoing()
        self._soon(self._connection_lost, error)

    def _drop_outgoing(self) -> None:
        self._outgoing.clear()
        self._outgoing_bytes = 0

    def _connection_lost(self, error: Exception | None) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)
