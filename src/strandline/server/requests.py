"""The bounded request queue and its handler slots: how many requests run at once, and which wait.

A connection submits a `Call`; it runs at once if a slot is free and no call is queued before it, else it is queued, and
the connection checks `has_room` before it submits the next. A call holds its slot only while it runs: a handler that is
about to wait (for replicas, for new records) calls `call.park()`, which frees the slot and counts the call against the
separate limits for parked requests. Otherwise parked produces would starve the follower fetches that complete them.

Requests of controller listeners have their own queue and slots, are served first and do not count against the limit of
bytes: clients that fill the other queue must not keep the quorum from electing a leader.

Invariants: running calls of a queue <= slots, except right after `resize` lowered them; while a call is queued, either
all slots are taken or a step is scheduled; calls of one queue start in the order of submission; every submitted call is
released exactly once, by `server/dispatch`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any, Protocol

from strandline.protocol.framing import RequestHeader
from strandline.runtime.clock import Clock
from strandline.runtime.file_slice import Part
from strandline.runtime.loop_lag import LoopLag
from strandline.runtime.metrics import Metrics
from strandline.runtime.tasks import TaskGroup
from strandline.server.settings import ServerSettings

# Limits of one step of the event loop: the queued calls that it starts, and its duration.
CALLS_PER_STEP = 32
STEP_MS = 4


class Caller(Protocol):
    """The connection that a call came from."""

    def respond(self, call: Call, parts: list[Part] | None) -> None:
        """Ends the call; None when it has no response (acks=0)."""
        ...

    def on_parked(self) -> None:
        """A call of this connection was parked: the next one may be allowed to start."""
        ...

    def close(self, reason: str) -> None: ...

    def on_connection_lost(self, purpose: str, callback: Callable[[], None]) -> None: ...


class CallRoute(Protocol):
    """What a listener's table says about the API of a call; implemented by `server/dispatch`."""

    pipelined: bool
    """The call may start while earlier ones of its connection are parked."""
    cancelled_on_disconnect: bool
    serve: Callable[[Call], Coroutine[Any, Any, None]]


class Stage(Enum):
    RECEIVED = 0
    QUEUED = 1
    RUNNING = 2  # holds a slot
    PARKED = 3
    DONE = 4


# Looked up once: access to a member of an enum costs as much as a call, and every request needs these.
RECEIVED, QUEUED, RUNNING, PARKED, DONE = Stage


class Call:
    """One request, from its frame to its response. Handlers read the public attributes and may `park`."""

    __slots__ = (
        "_queue",
        "api_key",
        "body_position",
        "caller",
        "client_host",
        "client_id",
        "correlation_id",
        "frame",
        "has_response",
        "listener",
        "listener_queue",
        "offload_encoding",
        "principal",
        "received_ms",
        "response",
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
        route: CallRoute,
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
        self.listener_queue: _ListenerQueue
        self.task: asyncio.Task[Any] | None = None
        self.offload_encoding = False  # encode the response in a thread: it is large; handlers may set it
        self.has_response = False
        self.response: list[Part] | None = None
        self._queue = queue

    def on_connection_lost(self, purpose: str, callback: Callable[[], None]) -> None:
        """Calls `callback` when the connection of this call ends for any reason. It replaces an earlier callback of
        the same purpose."""
        self.caller.on_connection_lost(purpose, callback)

    def park(self) -> None:
        """Frees the handler slot. To be called right before an await that may take long; repeating it does nothing.

        From here on the connection's next Produce may start, so a Produce must not park before its append.
        """
        if self.stage is RUNNING:
            self._queue.park(self)

    def __repr__(self) -> str:
        # Appears in logs: nothing of the payload, and a client id that cannot forge a line.
        return (
            f"api {self.api_key} v{self.version} of client {self.client_id[:100]!r}, correlation {self.correlation_id}"
        )


class _ListenerQueue:
    """The queue of client listeners or of controller listeners. Each has its own handler slots."""

    __slots__ = ("calls", "running", "waiting_for_room")

    def __init__(self) -> None:
        self.calls: deque[Call] = deque()
        self.running = 0
        self.waiting_for_room: deque[Callable[[], None]] = deque()


class RequestQueue:
    def __init__(
        self,
        tasks: TaskGroup,
        clock: Clock,
        settings: ServerSettings,
        metrics: Metrics,
        lag: LoopLag,
    ) -> None:
        self._tasks = tasks
        self._clock = clock
        self._lag = lag
        self._slots = settings.handlers
        self._max_calls = settings.queued_max_requests
        self._max_bytes = settings.queued_bytes_limit
        self._max_parked = settings.parked_max_requests
        self._max_parked_bytes = settings.parked_max_bytes
        self._client_queue = _ListenerQueue()
        self._controller_queue = _ListenerQueue()
        self._stepping = False
        self._waiting_for_bytes: deque[Callable[[], None]] = deque()
        self.bytes = 0  # of calls queued and running
        self.arriving_bytes = 0  # of frames being received, or waiting for room in the queue
        self.parked = 0
        self.parked_bytes = 0
        channel = "kafka.network:type=RequestChannel"
        metrics.gauge(f"{channel},name=RequestQueueSize", self.queued)
        metrics.gauge("strandline.server:type=Requests,name=ParkedRequests", lambda: self.parked)
        metrics.gauge("strandline.server:type=Requests,name=ParkedBytes", lambda: self.parked_bytes)
        metrics.gauge("strandline.server:type=Requests,name=QueuedBytes", lambda: self.bytes + self.arriving_bytes)
        pool = "kafka.server:type=KafkaRequestHandlerPool"
        metrics.gauge(
            f"{pool},name=RequestHandlerAvgIdlePercent", lambda: max(0.0, 1 - self._client_queue.running / self._slots)
        )

    def queued(self) -> int:
        return len(self._client_queue.calls) + len(self._controller_queue.calls)

    @property
    def over_parked_limit(self) -> bool:
        """Whether so much is parked that each connection may have only one request in flight."""
        return self.parked >= self._max_parked or self.parked_bytes >= self._max_parked_bytes

    def resize(self, handlers: int) -> None:
        """num.io.threads changed. Slots above a lower number are removed as their calls end."""
        self._slots = handlers
        self._step_soon()

    def has_room(self, controller: bool) -> bool:
        if controller:
            return len(self._controller_queue.calls) < self._max_calls
        return len(self._client_queue.calls) < self._max_calls and self.bytes < self._max_bytes

    def notify_when_room(self, controller: bool, wake: Callable[[], None]) -> None:
        """Calls `wake` once when there may be room again; it has to check `has_room`."""
        (self._controller_queue if controller else self._client_queue).waiting_for_room.append(wake)

    def may_receive(self, controller: bool) -> bool:
        """Whether the rest of an incomplete frame may be read."""
        return controller or self.bytes + self.arriving_bytes < self._max_bytes

    def notify_when_may_receive(self, wake: Callable[[], None]) -> None:
        self._waiting_for_bytes.append(wake)

    def receiving(self, size_bytes: int) -> None:
        """Adds the bytes of a frame that have arrived; negative when it was submitted or dropped."""
        self.arriving_bytes += size_bytes
        if size_bytes < 0 and self._waiting_for_bytes:
            self._step_soon()

    def submit(self, call: Call, controller: bool) -> None:
        self.bytes += call.size_bytes
        queue = call.listener_queue = self._controller_queue if controller else self._client_queue
        if queue.running < self._slots and not queue.calls:
            self._run(call)
            return
        call.stage = QUEUED
        queue.calls.append(call)

    def park(self, call: Call) -> None:
        call.stage = PARKED
        call.listener_queue.running -= 1
        self.parked += 1
        self.parked_bytes += call.size_bytes
        self._freed(call.size_bytes)
        call.caller.on_parked()

    def release(self, call: Call) -> None:
        """The call has ended, with a response or without."""
        stage, call.stage = call.stage, DONE
        if stage is RUNNING:
            call.listener_queue.running -= 1
            self._freed(call.size_bytes)
        elif stage is PARKED:
            self.parked -= 1
            self.parked_bytes -= call.size_bytes

    def _freed(self, size_bytes: int) -> None:
        self.bytes -= size_bytes
        client = self._client_queue
        if client.calls or self._controller_queue.calls or client.waiting_for_room or self._waiting_for_bytes:
            self._step_soon()

    def _run(self, call: Call) -> None:
        call.stage = RUNNING
        call.listener_queue.running += 1
        try:
            call.task = self._tasks.start_eagerly(call.route.serve(call))
        except asyncio.CancelledError:
            # The handler was cancelled while it waited; dispatch has closed the connection already.
            call.task = None

    def _ready_queue(self) -> _ListenerQueue | None:
        """The queue whose next call may start, that of the controller listeners first."""
        for queue in (self._controller_queue, self._client_queue):
            if queue.calls and queue.running < self._slots:
                return queue
        return None

    def _step_soon(self) -> None:
        if not self._stepping:
            self._stepping = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        """Runs queued calls while slots are free, then wakes connections that wait for room. Never inside a handler."""
        begin = self._lag.begin()
        self._stepping = False
        until_ms = self._clock.now_ms() + STEP_MS
        for _ in range(CALLS_PER_STEP):
            queue = self._ready_queue()
            if queue is None:
                break
            self._run(queue.calls.popleft())
            if self._clock.now_ms() >= until_ms:
                break
        self._wake_waiting(self._controller_queue.waiting_for_room, lambda: self.has_room(True), until_ms)
        self._wake_waiting(self._client_queue.waiting_for_room, lambda: self.has_room(False), until_ms)
        self._wake_waiting(self._waiting_for_bytes, lambda: self.may_receive(False), until_ms)
        if self._ready_queue() is not None:
            self._step_soon()
        self._lag.end(begin)

    def _wake_waiting(self, waiting: deque[Callable[[], None]], may: Callable[[], bool], until_ms: int) -> None:
        for _ in range(CALLS_PER_STEP):
            if not waiting or not may():
                return
            waiting.popleft()()
            if self._clock.now_ms() >= until_ms:
                break
        if waiting and may():
            self._step_soon()
