"""The bounded request queue and its handler slots: how much work is begun at once, and what waits.

A connection submits a `Call`; it runs at once if a slot is free and nobody is ahead of it, else it is queued, and the
connection asks `has_room` before it submits the next. A slot is held only while deciding: a handler about to wait for
others calls `call.park()`, which gives the slot back and counts the call against the separate limits for parked
requests. Without that, parked produces would starve the follower fetches that release them.

Work of controller listeners has a lane of its own, which is served first, has slots of its own and is never refused
for the bytes of others: clients that fill theirs must not keep a quorum from electing.

Invariants: held slots of a lane <= slots, except right after `resize` lowered them; while a call is queued, either all
slots of its lane are held or a step is due; calls of one lane begin in the order of submission; every submitted call is
released exactly once, by `server/dispatch`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from strandline.protocol.framing import RequestHeader
from strandline.runtime.clock import Clock
from strandline.runtime.file_slice import Part
from strandline.runtime.loop_lag import LoopLag
from strandline.runtime.metrics import Metrics
from strandline.runtime.tasks import TaskGroup
from strandline.server.settings import ServerSettings

if TYPE_CHECKING:
    from strandline.server.dispatch import Route

# One step of the event loop serves no more queued calls than this, nor goes on for longer.
CALLS_PER_STEP = 32
STEP_MS = 4


class Caller(Protocol):
    """The connection a call came from, as far as the call needs it."""

    def answered(self, call: Call, parts: list[Part] | None) -> None:
        """The call is over; None when it has no answer."""
        ...

    def moved(self) -> None:
        """A call of this connection was parked: the next one may be allowed now."""
        ...

    def close(self, reason: str) -> None: ...

    def on_connection_lost(self, purpose: str, tell: Callable[[], None]) -> None: ...


class Stage(Enum):
    RECEIVED = 0
    QUEUED = 1
    RUNNING = 2  # holds a slot
    PARKED = 3
    OVER = 4


# Looked up once: a member of an enum costs as much as a call, and every request goes through these.
RECEIVED, QUEUED, RUNNING, PARKED, OVER = Stage


class Call:
    """One request, from its frame to its answer. Handlers read the public attributes and may `park`."""

    __slots__ = (
        "_queue",
        "answer",
        "api_key",
        "body_position",
        "caller",
        "client_host",
        "client_id",
        "correlation_id",
        "frame",
        "has_answer",
        "lane",
        "listener",
        "offload_encoding",
        "principal",
        "received_ms",
        "route",
        "size_bytes",
        "stage",
        "task",
        "version",
    )

    def __init__(
        self,
        caller: Caller,
        queue: RequestQueue,
        route: Route,
        frame: bytearray,
        header: RequestHeader,
        body_position: int,
        received_ms: int,
    ) -> None:
        self.api_key = header.api_key
        self.version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.caller = caller
        self.route = route
        self.frame: bytearray | None = frame
        self.body_position = body_position
        self.size_bytes = len(frame)
        self.received_ms = received_ms
        self.principal = "User:ANONYMOUS"
        self.listener = ""
        self.client_host = ""
        self.stage = RECEIVED
        self.lane: _Lane
        self.task: asyncio.Task[Any] | None = None
        self.offload_encoding = False  # so many elements that the answer is encoded elsewhere; handlers may set it
        self.has_answer = False
        self.answer: list[Part] | None = None
        self._queue = queue

    def on_connection_lost(self, purpose: str, tell: Callable[[], None]) -> None:
        """Calls `tell` when the connection of this call ends, whoever ended it; the last `tell` of a purpose counts."""
        self.caller.on_connection_lost(purpose, tell)

    def park(self) -> None:
        """To be called right before an await that may take long: gives the handler slot back. Once is enough.

        For Produce it also says "my records are appended": the connection's next Produce may begin from here on, so
        a handler must not park before its append.
        """
        if self.stage is RUNNING:
            self._queue.park(self)

    def __repr__(self) -> str:
        # Goes into logs: nothing of the payload, and a client id that cannot forge a line.
        return (
            f"api {self.api_key} v{self.version} of client {self.client_id[:100]!r}, correlation {self.correlation_id}"
        )


class _Lane:
    """Calls of one kind of listener, with as many handler slots as the other: neither waits for the other's."""

    __slots__ = ("calls", "held", "wants_room")

    def __init__(self) -> None:
        self.calls: deque[Call] = deque()
        self.held = 0
        self.wants_room: deque[Callable[[], None]] = deque()


class RequestQueue:
    def __init__(
        self,
        serve: Callable[[Call], Coroutine[Any, Any, None]],
        tasks: TaskGroup,
        clock: Clock,
        settings: ServerSettings,
        metrics: Metrics,
        lag: LoopLag,
    ) -> None:
        self._serve = serve
        self._tasks = tasks
        self._clock = clock
        self._lag = lag
        self._slots = settings.handlers
        self._max_calls = settings.queued_max_requests
        self._max_bytes = settings.queued_bytes_limit
        self._max_parked = settings.parked_max_requests
        self._max_parked_bytes = settings.parked_max_bytes
        self._client_lane = _Lane()
        self._controller_lane = _Lane()
        self._stepping = False
        self._wants_bytes: deque[Callable[[], None]] = deque()
        self.bytes = 0  # of calls queued and being decided
        self.arriving_bytes = 0  # of frames being received, or waiting for room
        self.parked = 0
        self.parked_bytes = 0
        channel = "kafka.network:type=RequestChannel"
        metrics.gauge(f"{channel},name=RequestQueueSize", self.queued)
        metrics.gauge("strandline.server:type=Requests,name=ParkedRequests", lambda: self.parked)
        metrics.gauge("strandline.server:type=Requests,name=ParkedBytes", lambda: self.parked_bytes)
        metrics.gauge("strandline.server:type=Requests,name=QueuedBytes", lambda: self.bytes + self.arriving_bytes)
        pool = "kafka.server:type=KafkaRequestHandlerPool"
        metrics.gauge(
            f"{pool},name=RequestHandlerAvgIdlePercent", lambda: max(0.0, 1 - self._client_lane.held / self._slots)
        )

    def queued(self) -> int:
        return len(self._client_lane.calls) + len(self._controller_lane.calls)

    @property
    def over_parked_limit(self) -> bool:
        """So much is parked that a connection may hold only one request."""
        return self.parked >= self._max_parked or self.parked_bytes >= self._max_parked_bytes

    def resize(self, handlers: int) -> None:
        """num.io.threads changed. Slots above a lowered number go as their calls end."""
        self._slots = handlers
        self._step_soon()

    def has_room(self, controller: bool) -> bool:
        if controller:
            return len(self._controller_lane.calls) < self._max_calls
        return len(self._client_lane.calls) < self._max_calls and self.bytes < self._max_bytes

    def notify_when_room(self, controller: bool, wake: Callable[[], None]) -> None:
        """Calls `wake` once when there may be room again; it has to ask anew."""
        (self._controller_lane if controller else self._client_lane).wants_room.append(wake)

    def may_receive(self, controller: bool) -> bool:
        """Whether a frame that has begun may be read on."""
        return controller or self.bytes + self.arriving_bytes < self._max_bytes

    def notify_when_may_receive(self, wake: Callable[[], None]) -> None:
        self._wants_bytes.append(wake)

    def receiving(self, size_bytes: int) -> None:
        """So many more bytes of a frame have arrived; negative when it was submitted or given up."""
        self.arriving_bytes += size_bytes
        if size_bytes < 0 and self._wants_bytes:
            self._step_soon()

    def submit(self, call: Call, controller: bool) -> None:
        self.bytes += call.size_bytes
        lane = call.lane = self._controller_lane if controller else self._client_lane
        if lane.held < self._slots and not lane.calls:
            self._run(call)
            return
        call.stage = QUEUED
        lane.calls.append(call)

    def park(self, call: Call) -> None:
        call.stage = PARKED
        call.lane.held -= 1
        self.parked += 1
        self.parked_bytes += call.size_bytes
        self._freed(call.size_bytes)
        call.caller.moved()

    def release(self, call: Call) -> None:
        """The call is over, however it ended."""
        stage, call.stage = call.stage, OVER
        if stage is RUNNING:
            call.lane.held -= 1
            self._freed(call.size_bytes)
        elif stage is PARKED:
            self.parked -= 1
            self.parked_bytes -= call.size_bytes

    def _freed(self, size_bytes: int) -> None:
        self.bytes -= size_bytes
        client = self._client_lane
        if client.calls or self._controller_lane.calls or client.wants_room or self._wants_bytes:
            self._step_soon()

    def _run(self, call: Call) -> None:
        call.stage = RUNNING
        call.lane.held += 1
        try:
            call.task = self._tasks.start_eagerly(self._serve(call))
        except asyncio.CancelledError:
            # What the handler waited for was cancelled under it; dispatch has closed the connection already.
            call.task = None

    def _ready_lane(self) -> _Lane | None:
        """Whose next call may begin: the controller listeners' first."""
        for lane in (self._controller_lane, self._client_lane):
            if lane.calls and lane.held < self._slots:
                return lane
        return None

    def _step_soon(self) -> None:
        if not self._stepping:
            self._stepping = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        """Runs what is queued while slots are free, then lets in who waits for room. Never from inside a handler."""
        begin = self._lag.begin()
        self._stepping = False
        until_ms = self._clock.now_ms() + STEP_MS
        for _ in range(CALLS_PER_STEP):
            lane = self._ready_lane()
            if lane is None:
                break
            self._run(lane.calls.popleft())
            if self._clock.now_ms() >= until_ms:
                break
        self._let_in(self._controller_lane.wants_room, lambda: self.has_room(True), until_ms)
        self._let_in(self._client_lane.wants_room, lambda: self.has_room(False), until_ms)
        self._let_in(self._wants_bytes, lambda: self.may_receive(False), until_ms)
        if self._ready_lane() is not None:
            self._step_soon()
        self._lag.end(begin)

    def _let_in(self, waiting: deque[Callable[[], None]], may: Callable[[], bool], until_ms: int) -> None:
        for _ in range(CALLS_PER_STEP):
            if not waiting or not may():
                return
            waiting.popleft()()
            if self._clock.now_ms() >= until_ms:
                break
        if waiting and may():
            self._step_soon()
