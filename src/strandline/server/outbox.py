"""Responses on their way to one socket: buffers and file slices in order, read and written as the socket drains.

A connection puts in the parts of its responses and calls `pump` whenever the transport may take more. Invariant: beyond
the buffers of the responses, at most one chunk is read ahead of the transport's high-water mark, so a client that
stalls on a 50 MB response costs about half a mebibyte.

A chunk is read from the page cache if it is there, otherwise by a thread while only this connection waits. A slice that
cannot be read closes the connection: the size of the response is on the wire already.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from strandline.runtime.disk import Buffer
from strandline.runtime.file_slice import FileSlice, Part
from strandline.runtime.offload import Offload
from strandline.runtime.tasks import TaskGroup

CHUNK_BYTES = 256 * 1024
HIGH_WATER_BYTES = 256 * 1024
LOW_WATER_BYTES = 64 * 1024
JOIN_BYTES = 64 * 1024  # up to here a copy costs less than a list of buffers for the kernel
STEP_BYTES = 1024 * 1024  # then the event loop serves other connections


class UnsentBytes:
    """Bytes in the outboxes of all connections, for the metric."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class Outbox:
    __slots__ = (
        "_cold",
        "_fail",
        "_offload",
        "_on_empty",
        "_parts",
        "_pumping_soon",
        "_reading",
        "_tasks",
        "_transport",
        "_unsent",
        "bytes",
        "paused",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        offload: Offload,
        tasks: TaskGroup,
        unsent: UnsentBytes,
        fail: Callable[[str], None],
        on_empty: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._offload = offload
        self._tasks = tasks
        self._unsent = unsent
        self._fail = fail
        self._on_empty = on_empty  # called when it became empty outside a step of the connection
        self._parts: deque[Part] = deque()
        self._cold = False  # the first part is not in the page cache
        self._reading = False  # a thread is reading the next chunk
        self._pumping_soon = False
        self.bytes = 0  # not yet written to the transport
        self.paused = False  # the transport's buffer is full

    def put(self, parts: list[Part]) -> None:
        size = 0
        for part in parts:
            size += len(part)
        self._parts.extend(parts)
        self.bytes += size
        self._unsent.bytes += size

    def drop(self) -> None:
        self._parts.clear()
        self._unsent.bytes -= self.bytes
        self.bytes = 0

    def end(self) -> None:
        """The connection is lost. Drops the callbacks too, so that it is freed without the cyclic collector."""
        self.drop()
        self._fail = self._on_empty = _ignore

    def pump(self) -> None:
        """Writes as much as the transport takes without filling its buffer, a bounded amount in one step."""
        if len(self._parts) == 1 and not self.paused and not self._reading:
            alone = self._parts[0]
            if type(alone) is bytes:  # one response from memory, the usual case
                self._parts.clear()
                self._write([alone], self.bytes)
                return
        budget = STEP_BYTES
        while self._parts and not self.paused and not self._reading:
            if budget <= 0:
                self._pump_soon()
                return
            try:
                run, size = self._next_run()
            except OSError as error:
                self._read_failed(error)
                return
            if size:
                budget -= size
                self._write(run, size)
            if self._cold:
                self._read_front()

    def _read_failed(self, error: OSError) -> None:
        """Drops the rest: the client would take the bytes behind the gap for those that are missing."""
        self.drop()
        self._fail(f"a response could not be read from disk: {error}")

    def _pump_soon(self) -> None:
        if not self._pumping_soon:
            self._pumping_soon = True
            asyncio.get_running_loop().call_soon(self._pump_again)

    def _pump_again(self) -> None:
        self._pumping_soon = False
        self.pump()
        if not self._parts and not self._reading:
            self._on_empty()

    def _next_run(self) -> tuple[list[Buffer], int]:
        """Buffers and parts of slices from the front, about a chunk in total."""
        parts = self._parts
        run: list[Buffer] = []
        size = 0
        while parts and size < CHUNK_BYTES:
            part = parts.popleft()
            if isinstance(part, FileSlice):
                piece = part
                if part.size > CHUNK_BYTES - size:
                    piece, rest = part.split(CHUNK_BYTES - size)
                    parts.appendleft(rest)
                data = _cached(piece)
                if data is None:
                    parts.appendleft(piece)
                    self._cold = True
                    break
                part = data
            run.append(part)
            size += len(part)
        return run, size

    def _read_front(self) -> None:
        piece = self._parts.popleft()
        assert isinstance(piece, FileSlice)
        self._cold = False
        self._reading = True
        self._tasks.start_eagerly(self._read_cold(piece))

    async def _read_cold(self, piece: FileSlice) -> None:
        try:
            data = await self._offload.run(piece.read)
            if len(data) != piece.size:
                raise _ended_early(piece, len(data))
        except OSError as error:
            piece.failed(error)
            self._read_failed(error)
            return
        finally:
            self._reading = False
        if not self.bytes:
            return  # dropped during the read
        self._write([data], len(data))
        self._pump_soon()

    def _write(self, run: list[Buffer], size: int) -> None:
        self.bytes -= size
        self._unsent.bytes -= size
        if len(run) == 1:
            self._transport.write(run[0])
        elif size <= JOIN_BYTES:
            self._transport.write(b"".join(run))
        else:
            self._transport.writelines(run)


def _ignore(*_: object) -> None:
    return


def _cached(piece: FileSlice) -> Buffer | None:
    try:
        data = piece.file.read_cached(piece.position, piece.size)
    except OSError as error:
        piece.failed(error)
        raise
    if data is not None and len(data) != piece.size:
        raise _ended_early(piece, len(data))
    return data


def _ended_early(piece: FileSlice, got: int) -> OSError:
    return OSError(f"read {got} of {piece.size} bytes at {piece.position} of {piece.file.path}")
