"""Answers on their way to one socket: buffers and file slices in order, read and written as the socket drains.

A connection puts the parts of its answers in and calls `pump` whenever the transport may take more. Invariant: beyond
what answers already hold in memory, at most one chunk is read ahead of the transport's high-water mark, so a reader
that stalls on a 50 MB answer costs about half a mebibyte.

A chunk is tried from the page cache first; one that is not there is read by a thread, and the connection waits for it
alone. A slice that cannot be read ends the connection: the size of the answer is on the wire already.
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
JOIN_BYTES = 64 * 1024  # up to here one copy costs less than a list of buffers for the kernel
STEP_BYTES = 1024 * 1024  # then other connections have their turn


class Backlog:
    """Bytes of all answers not handed to a transport yet, for the metric."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class Outbox:
    __slots__ = (
        "_backlog",
        "_cold",
        "_emptied",
        "_fail",
        "_offload",
        "_parts",
        "_pumping_soon",
        "_reading",
        "_tasks",
        "_transport",
        "bytes",
        "paused",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        offload: Offload,
        tasks: TaskGroup,
        backlog: Backlog,
        fail: Callable[[str], None],
        emptied: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._offload = offload
        self._tasks = tasks
        self._backlog = backlog
        self._fail = fail
        self._emptied = emptied  # called when it ran empty in a step of its own, outside the connection's
        self._parts: deque[Part] = deque()
        self._cold = False  # the part in front is not in the page cache
        self._reading = False  # a thread is reading the chunk that comes next
        self._pumping_soon = False
        self.bytes = 0  # put in and not yet handed to the transport
        self.paused = False  # the transport holds enough for now

    def put(self, parts: list[Part]) -> None:
        size = 0
        for part in parts:
            size += len(part)
        self._parts.extend(parts)
        self.bytes += size
        self._backlog.bytes += size

    def drop(self) -> None:
        self._parts.clear()
        self._backlog.bytes -= self.bytes
        self.bytes = 0

    def end(self) -> None:
        """Nobody is there any more to take an answer, or to be told: who had this is freed without a collector."""
        self.drop()
        self._fail = self._emptied = _tell_nobody

    def pump(self) -> None:
        """Hands over as much as the transport takes without filling up, a bounded amount in one step."""
        if len(self._parts) == 1 and not self.paused and not self._reading:
            alone = self._parts[0]
            if type(alone) is bytes:  # one answer from memory, as most are
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
                self._give_up(error)
                return
            if size:
                budget -= size
                self._write(run, size)
            if self._cold:
                self._read_front()

    def _give_up(self, error: OSError) -> None:
        """What comes behind the gap must not be sent: it would be taken for what belongs into it."""
        self.drop()
        self._fail(f"an answer could not be read from disk: {error}")

    def _pump_soon(self) -> None:
        if not self._pumping_soon:
            self._pumping_soon = True
            asyncio.get_running_loop().call_soon(self._pump_again)

    def _pump_again(self) -> None:
        self._pumping_soon = False
        self.pump()
        if not self._parts and not self._reading:
            self._emptied()

    def _next_run(self) -> tuple[list[Buffer], int]:
        """Whole buffers and pieces of slices from the front, about a chunk of them."""
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
            self._give_up(error)
            return
        finally:
            self._reading = False
        if not self.bytes:
            return  # dropped meanwhile
        self._write([data], len(data))
        self._pump_soon()

    def _write(self, run: list[Buffer], size: int) -> None:
        self.bytes -= size
        self._backlog.bytes -= size
        if len(run) == 1:
            self._transport.write(run[0])
        elif size <= JOIN_BYTES:
            self._transport.write(b"".join(run))
        else:
            self._transport.writelines(run)


def _tell_nobody(*_: object) -> None:
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
    return OSError(f"{piece.file.path} gave {got} of {piece.size} bytes at {piece.position}")
