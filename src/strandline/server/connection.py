"""One connection: frames in, responses out, in the order of the requests.

Requests are served one at a time, as in Kafka, with one exception: a Produce may start while earlier Produces of the
same connection wait for their acknowledgements. So a long poll blocks its own connection only.

A complete request that may not start yet is kept in `_next`, and meanwhile nothing more is read (the connection is
muted). It may not start while

- an earlier request has no response (or, for a Produce behind Produces, has not parked);
- `pipelined` requests are in flight, or the node's limit of parked requests leaves one to each connection;
- the request queue is full, by number or by bytes, or the connection exceeds the connection creation rate;
- the client does not read its responses.

A connection is also muted until the next step when its buffer has more requests than one step serves, and at the start
of a frame while the node holds too many bytes of requests.

A connection therefore holds at most a receive buffer with an incomplete frame, one complete frame, the calls in flight,
and what `Outbox` allows for responses; an idle connection holds nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from strandline.protocol.codec import MalformedMessage
from strandline.protocol.framing import FrameParser, InvalidFrameSize
from strandline.runtime.clock import Clock
from strandline.runtime.file_slice import Part
from strandline.runtime.loop_lag import LoopLag
from strandline.runtime.metrics import Metrics
from strandline.runtime.network import no_delay
from strandline.runtime.offload import Offload
from strandline.runtime.tasks import TaskGroup
from strandline.server.disconnect_log import DisconnectLog
from strandline.server.dispatch import Dispatch, RejectedFrame, Routes
from strandline.server.metrics_page import GET_AS_FRAME_SIZE, metrics_page
from strandline.server.outbox import HIGH_WATER_BYTES, LOW_WATER_BYTES, Outbox, UnsentBytes
from strandline.server.requests import DONE, PARKED, Call, RequestQueue
from strandline.server.settings import ListenerSpec, ServerSettings

FRAMES_PER_STEP = 32  # then the event loop serves other connections
MAX_UNSENT_RESPONSE_BYTES = 64 * 1024  # responses gathered in one step before the socket must take them
LINGER_MS = 5_000  # how long a closed connection may take to send its last responses
MIN_FRAME_BYTES_PER_MS = 64  # the rate at which a frame must arrive after `frame_timeout_ms`


class Admission(Protocol):
    """Enforces the limits on connections; implemented by the acceptor."""

    def admit(self, connection: Connection) -> bool: ...
    def on_admitted_lost(self, connection: Connection) -> None: ...


class SharedByConnections(Protocol):
    """What the connections of a node share; implemented by `server/processor`."""

    clock: Clock
    offload: Offload
    tasks: TaskGroup
    settings: ServerSettings
    metrics: Metrics
    lag: LoopLag
    queue: RequestQueue
    dispatch: Dispatch
    unsent: UnsentBytes
    receive_buffer: bytearray
    disconnects: DisconnectLog
    draining: bool


class Connection(asyncio.BufferedProtocol):
    _transport: asyncio.Transport
    _outbox: Outbox

    def __init__(
        self, processor: SharedByConnections, listener: ListenerSpec, routes: Routes, admission: Admission
    ) -> None:
        self._processor = processor
        self._admission = admission
        self._routes = routes
        self._parser = FrameParser(processor.settings.max_request_bytes, processor.receive_buffer)
        self._pending: deque[Call] = deque()  # submitted, and the response not yet in the outbox
        self._next: Call | None = None  # received completely, and not allowed to start yet
        self._proceeding = False
        self._waking = False
        self._more = False  # the buffer may have more frames than one step serves
        self._wants_room = False
        self._wants_bytes = False
        self._muted = False
        self._throttled = False  # above the connection creation rate
        self._admitted = False
        self._ended = False  # the client will send no more
        self._closing_ms = -1
        self._frame_since_ms = -1  # when the first bytes of the incomplete frame arrived
        self._active_ms = processor.clock.now_ms()
        self._arriving_bytes = 0  # of the frame not submitted yet, as counted by the request queue
        self._lost = False
        self._lost_callbacks: dict[str, Callable[[], None]] = {}
        self.listener = listener
        self.client_host = ""
        self.closed = False

    def __repr__(self) -> str:
        return f"{self.client_host} on {self.listener.name}"

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in shape only.
        transport = self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else ""
        transport.set_write_buffer_limits(HIGH_WATER_BYTES, LOW_WATER_BYTES)
        processor = self._processor
        self._outbox = Outbox(
            transport, processor.offload, processor.tasks, processor.unsent, self.close, self._wake_soon
        )
        self._admitted = self._admission.admit(self)
        if not self._admitted:
            self.abort()
            return
        with contextlib.suppress(OSError):  # some systems fail when the client has disconnected already
            no_delay(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._parser.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        processor, parser = self._processor, self._parser
        self._active_ms = processor.clock.now_ms()
        parser.buffer_updated(nbytes)
        if parser.is_amid_frame and self._frame_since_ms >= 0:
            # More bytes of a large frame that is admitted: no request can start before its end.
            self._account_for_arriving(parser.held_bytes)
            return
        begin = processor.lag.begin()
        try:
            self._proceed()
        finally:
            parser.release_shared_buffer()
        processor.lag.end(begin)

    def eof_received(self) -> bool:
        """Earlier requests are still served (acks=0 producers send and disconnect); long polls are cancelled."""
        self._ended = True
        self._cancel_long_polls()
        self._wake_soon()
        return True

    def pause_writing(self) -> None:
        self._outbox.paused = True

    def resume_writing(self) -> None:
        self._outbox.paused = False
        self._active_ms = self._processor.clock.now_ms()
        self._wake_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._outbox.end()
        self._next = None
        self._account_for_arriving(0)
        self._cancel_long_polls()
        self._parser.drop()  # references to this connection that remain keep no frame alive
        self._pending.clear()
        if self._admitted:
            self._admission.on_admitted_lost(self)
        self._lost = True
        for callback in self._lost_callbacks.values():
            callback()

    # Called for the calls of this connection (`server/requests`).

    def respond(self, call: Call, parts: list[Part] | None) -> None:
        call.has_response = True
        call.response = parts
        if self.closed:
            return
        pending = self._pending
        while pending and pending[0].has_response:
            response = pending.popleft().response
            if response is not None:
                self._outbox.put(response)
        if not self._proceeding:
            self._active_ms = self._processor.clock.now_ms()
            self._wake_soon()

    def on_parked(self) -> None:
        if self._next is not None and not self._proceeding:
            self._wake_soon()

    def on_connection_lost(self, purpose: str, callback: Callable[[], None]) -> None:
        self._lost_callbacks[purpose] = callback
        if self._lost:
            callback()

    def close(self, reason: str) -> None:
        """Closes after a protocol violation, or for a request that ends in a disconnect; logs the reason."""
        if not self.closed:
            # Disconnecting during a long poll is no violation.
            self._log_disconnect(logging.DEBUG if self._ended else logging.WARNING, reason)
            self.close_quietly()

    def _log_disconnect(self, level: int, reason: str) -> None:
        processor = self._processor
        processor.disconnects.add(level, self.client_host, self.listener.name, reason, processor.clock.now_ms())

    # Called by the processor and the acceptor.

    def close_quietly(self) -> None:
        """Closes without a log line. Responses in the outbox are still sent, as far as the client reads them."""
        if not self.closed:
            self.closed = True
            self._closing_ms = self._processor.clock.now_ms()
            self._outbox.pump()
            self._outbox.drop()
            self._transport.close()

    def abort(self) -> None:
        self.closed = True
        self._transport.abort()

    def drain(self) -> None:
        """The server stops: requests in flight get their responses, long polls are cancelled, no request starts."""
        self._cancel_long_polls()
        self._wake_soon()

    def throttle(self) -> None:
        self._throttled = True

    def unthrottle(self) -> None:
        self._throttled = False
        self._wake_soon()

    def check(self, now_ms: int) -> None:
        """Closes the connection if it is idle, or if a frame or the last responses take too long. About once a
        second."""
        if self.closed:
            if now_ms - self._closing_ms >= LINGER_MS:
                self._transport.abort()
            return
        if self._frame_since_ms >= 0 and not self._muted:
            allowed_ms = self._processor.settings.frame_timeout_ms
            allowed_ms += self._parser.waiting_bytes // MIN_FRAME_BYTES_PER_MS
            if now_ms - self._frame_since_ms >= allowed_ms:
                self.close(f"an incomplete frame did not arrive within {allowed_ms} ms")
                return
        idle_ms = now_ms - self._active_ms
        if idle_ms >= self._processor.settings.max_idle_ms and not self._pending:
            self._log_disconnect(logging.INFO, f"idle for {idle_ms} ms")
            self.close_quietly()

    # The order of requests.

    def _proceed(self) -> None:
        """Submits every request that may start, then sends the responses together."""
        if self._proceeding or self.closed:
            return
        self._proceeding = True
        self._more = False
        try:
            for _ in range(FRAMES_PER_STEP):
                call = self._next or self._receive()
                if call is None:
                    break
                if not self._may_start(call):
                    self._next = call
                    break
                self._next = None
                if self._arriving_bytes:
                    self._account_for_arriving(0)
                self._pending.append(call)
                self._processor.queue.submit(call, self.listener.controller)
            else:
                self._more = True
                self._wake_soon()
        finally:
            self._proceeding = False
        if not self.closed:
            self._outbox.pump()
            self._settle()

    def _receive(self) -> Call | None:
        try:
            frame = self._parser.next_frame()
            if frame is None:
                return None
            self._frame_since_ms = -1
            processor = self._processor
            call = processor.dispatch.parse_call(self._routes, self, frame, self._active_ms)
        except (MalformedMessage, RejectedFrame) as error:
            self._reject(error)
            return None
        call.listener = self.listener.name
        call.client_host = self.client_host
        return call

    def _reject(self, error: MalformedMessage | RejectedFrame) -> None:
        """Closes the connection; a client that speaks HTTP gets the metrics page first."""
        processor = self._processor
        is_http = isinstance(error, InvalidFrameSize) and error.size == GET_AS_FRAME_SIZE
        if is_http and processor.settings.metrics_page:
            self._outbox.put([metrics_page(processor.metrics.snapshot(processor.clock.now_ms()))])
            self.close_quietly()
        else:
            self.close(str(error))

    def _may_start(self, call: Call) -> bool:
        if self._outbox.bytes >= MAX_UNSENT_RESPONSE_BYTES or self.closed or self._throttled:
            return False
        processor = self._processor
        if processor.draining:
            return False
        pending = self._pending
        if pending:
            last = pending[-1]
            if not (call.route.pipelined and last.route.pipelined):
                return False
            if last.stage is not PARKED and last.stage is not DONE:
                return False
            if len(pending) >= processor.settings.pipelined or processor.queue.over_parked_limit:
                return False
        queue = processor.queue
        if not queue.has_room(self.listener.controller):
            if not self._wants_room:
                self._wants_room = True
                queue.notify_when_room(self.listener.controller, self._on_room)
            return False
        return True

    def _settle(self) -> None:
        """Ends a step: mutes or unmutes, admits an incomplete frame, and closes when all responses are sent."""
        kept = self._next
        if kept is not None:
            if self._may_start(kept):
                self._wake_soon()  # the outbox was full and has been emptied
            self._mute()
        elif self._more:
            self._mute()
        elif self._admit_arriving() and self._muted and not self._ended:
            self._muted = False
            self._transport.resume_reading()
        if (self._ended or self._processor.draining) and self._is_done():
            self.close_quietly()

    def _admit_arriving(self) -> bool:
        """Whether reading may continue: an incomplete frame must be admitted by the queue's limit of bytes.

        Only admitted frames are counted, and they are read to their end, so no two frames can wait for each other.
        """
        arriving = self._parser.held_bytes if self._parser.waiting_bytes else 0
        if not arriving:
            if self._arriving_bytes:
                self._account_for_arriving(0)
            return True
        if self._frame_since_ms < 0:
            queue = self._processor.queue
            if not queue.may_receive(self.listener.controller):
                self._mute()
                if not self._wants_bytes:
                    self._wants_bytes = True
                    queue.notify_when_may_receive(self._on_bytes_free)
                return False
            self._frame_since_ms = self._processor.clock.now_ms()
        elif self._muted:
            self._frame_since_ms = self._processor.clock.now_ms()  # the time while muted does not count
        self._account_for_arriving(arriving)
        return True

    def _mute(self) -> None:
        if not self._muted:
            self._muted = True
            self._transport.pause_reading()

    def _on_room(self) -> None:
        self._wants_room = False
        self._proceed()

    def _on_bytes_free(self) -> None:
        self._wants_bytes = False
        self._proceed()

    def _is_done(self) -> bool:
        if self._pending or self._outbox.bytes:
            return False
        return self._processor.draining or (self._next is None and not self._more)

    def _wake_soon(self) -> None:
        if not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        lag = self._processor.lag
        begin = lag.begin()
        self._waking = False
        self._proceed()
        lag.end(begin)

    def _cancel_long_polls(self) -> None:
        for call in self._pending:
            if call.stage is PARKED and call.route.cancelled_on_disconnect and call.task is not None:
                call.task.cancel()

    def _account_for_arriving(self, size_bytes: int) -> None:
        if size_bytes != self._arriving_bytes:
            self._processor.queue.receiving(size_bytes - self._arriving_bytes)
            self._arriving_bytes = size_bytes
