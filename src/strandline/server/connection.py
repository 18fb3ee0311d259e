"""One connection: frames in, answers out, in the order of the requests.

Requests are served one at a time, as Kafka does it, with one exception: a Produce may begin while earlier Produces of
the same connection wait for their acknowledgements. So a long poll holds its own connection and nobody else's.

A request that is complete but may not begin is kept, and while one is kept nothing more is read (the connection is
muted). It may not begin when

- an earlier one has not been answered (or, for a Produce behind Produces, has not parked yet);
- `pipelined` requests are in work, or the node has too many parked requests for anybody to have more than one;
- the request queue is full, by number or by bytes, or new connections come faster than they may;
- the client does not read its answers.

Besides, a connection is muted for a turn when its buffer has more requests than one step may take, and for as long as
the node holds too many bytes when it has begun a frame.

What a connection can hold is therefore a receive buffer while a frame is incomplete, one complete frame, the calls in
work, and what `Outbox` allows for answers; one that is idle holds nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from strandline.protocol.codec import MalformedMessage
from strandline.protocol.framing import FrameParser, InvalidFrameSize
from strandline.runtime.file_slice import Part
from strandline.runtime.network import no_delay
from strandline.server.dispatch import RejectedFrame, Routes
from strandline.server.metrics_page import GET_AS_FRAME_SIZE, metrics_page
from strandline.server.outbox import HIGH_WATER_BYTES, LOW_WATER_BYTES, Outbox
from strandline.server.requests import OVER, PARKED, Call
from strandline.server.settings import ListenerSpec

if TYPE_CHECKING:
    from strandline.server.processor import Processor

log = logging.getLogger(__name__)

FRAMES_PER_STEP = 32  # then other connections have their turn
MAX_UNSENT_RESPONSE_BYTES = 64 * 1024  # answers gathered in one step before the socket must take them
LINGER_MS = 5_000  # how long a closed connection may take to hand over its last answers
SLOWEST_BYTES_PER_MS = 64  # what a frame must arrive at, once its first allowance of time is used up


class Admission(Protocol):
    """Who counts connections: asked when one is made, told when an admitted one is lost."""

    def admit(self, connection: Connection) -> bool: ...
    def left(self, connection: Connection) -> None: ...


class Connection(asyncio.BufferedProtocol):
    _transport: asyncio.Transport
    _outbox: Outbox

    def __init__(self, processor: Processor, listener: ListenerSpec, routes: Routes, admission: Admission) -> None:
        self._processor = processor
        self._admission = admission
        self._routes = routes
        self._parser = FrameParser(processor.settings.max_request_bytes, processor.receive_buffer)
        self._pending: deque[Call] = deque()  # begun and not answered, or answered behind one that is not
        self._next: Call | None = None  # complete, and not allowed to begin yet
        self._proceeding = False
        self._waking = False
        self._more = False  # there may be more frames in the buffer than one step may take
        self._wants_room = False
        self._wants_bytes = False
        self._muted = False
        self._held = False  # not its turn yet to be served
        self._admitted = False
        self._ended = False  # the client will send no more
        self._closing_ms = -1
        self._frame_since_ms = -1  # when the frame that is arriving was begun
        self._active_ms = processor.clock.now_ms()
        self._arriving_bytes = 0  # of a frame not submitted yet, as the queue knows it
        self._lost = False
        self._when_lost: dict[str, Callable[[], None]] = {}
        self.listener = listener
        self.client_host = ""
        self.closed = False

    def __repr__(self) -> str:
        return f"{self.client_host} on {self.listener.name}"

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in shape only.
        transport = self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else ""
        transport.set_write_buffer_limits(HIGH_WATER_BYTES, LOW_WATER_BYTES)
        processor = self._processor
        self._outbox = Outbox(
            transport, processor.offload, processor.tasks, processor.backlog, self.close, self._wake_soon
        )
        self._admitted = self._admission.admit(self)
        if not self._admitted:
            self.abort()
            return
        with contextlib.suppress(OSError):  # some systems refuse when the client has gone already
            no_delay(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._parser.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        processor, parser = self._processor, self._parser
        self._active_ms = processor.clock.now_ms()
        parser.buffer_updated(nbytes)
        if parser.is_amid_frame and self._frame_since_ms >= 0:
            # More of a large frame that was let in: nothing can begin before its end.
            self._account_for_arriving(parser.held_bytes)
            return
        begin = processor.lag.begin()
        try:
            self._proceed()
        finally:
            parser.settle()
        processor.lag.end(begin)

    def eof_received(self) -> bool:
        """What was sent before is still served (acks=0 producers send and leave); long polls are not."""
        self._ended = True
        self._abandon_long_polls()
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
        self._abandon_long_polls()
        self._parser.drop()  # whoever still knows this connection keeps no frame with it
        self._pending.clear()
        if self._admitted:
            self._admission.left(self)
        self._lost = True
        for tell in self._when_lost.values():
            tell()

    # What the calls tell.

    def answered(self, call: Call, parts: list[Part] | None) -> None:
        call.has_answer = True
        call.answer = parts
        if self.closed:
            return
        pending = self._pending
        while pending and pending[0].has_answer:
            answer = pending.popleft().answer
            if answer is not None:
                self._outbox.put(answer)
        if not self._proceeding:
            self._active_ms = self._processor.clock.now_ms()
            self._wake_soon()

    def moved(self) -> None:
        if self._next is not None and not self._proceeding:
            self._wake_soon()

    def on_connection_lost(self, purpose: str, tell: Callable[[], None]) -> None:
        self._when_lost[purpose] = tell
        if self._lost:
            tell()

    def close(self, reason: str) -> None:
        """For a peer that broke a rule, or a request that ends in a disconnect: the reason is logged, once."""
        if not self.closed:
            # A client that said goodbye in mid-poll broke no rule.
            log.log(logging.DEBUG if self._ended else logging.WARNING, "closing the connection of %r: %s", self, reason)
            self.shut()

    # What the processor tells.

    def shut(self) -> None:
        """Closes without a word; answers given so far still leave, as far as the client takes them."""
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
        """The server stops: what is in work is answered, long polls are let go, nothing new begins."""
        self._abandon_long_polls()
        self._wake_soon()

    def hold(self) -> None:
        self._held = True

    def unhold(self) -> None:
        self._held = False
        self._wake_soon()

    def check(self, now_ms: int) -> None:
        """Looked at about once a second: is anybody there, and does what was begun make progress?"""
        if self.closed:
            if now_ms - self._closing_ms >= LINGER_MS:
                self._transport.abort()
            return
        if self._frame_since_ms >= 0 and not self._muted:
            allowed_ms = self._processor.settings.frame_timeout_ms
            allowed_ms += self._parser.waiting_bytes // SLOWEST_BYTES_PER_MS
            if now_ms - self._frame_since_ms >= allowed_ms:
                self.close(f"a frame was begun and not finished within {allowed_ms} ms")
                return
        idle_ms = now_ms - self._active_ms
        if idle_ms >= self._processor.settings.max_idle_ms and not self._pending:
            log.info("closing the connection of %r: idle for %d ms", self, idle_ms)
            self.shut()

    # Order.

    def _proceed(self) -> None:
        """Begins every request that may begin, then hands the answers over together."""
        if self._proceeding or self.closed:
            return
        self._proceeding = True
        self._more = False
        try:
            for _ in range(FRAMES_PER_STEP):
                call = self._next or self._receive()
                if call is None:
                    break
                if not self._may_begin(call):
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
            call = processor.dispatch.open(self._routes, self, frame, self._active_ms)
        except (MalformedMessage, RejectedFrame) as error:
            self._refuse(error)
            return None
        call.listener = self.listener.name
        call.client_host = self.client_host
        return call

    def _refuse(self, error: MalformedMessage | RejectedFrame) -> None:
        """What cannot be followed; but who speaks HTTP is shown the metrics before the connection ends."""
        processor = self._processor
        is_http = isinstance(error, InvalidFrameSize) and error.size == GET_AS_FRAME_SIZE
        if is_http and processor.settings.metrics_page:
            self._outbox.put([metrics_page(processor.metrics.snapshot(processor.clock.now_ms()))])
            self.shut()
        else:
            self.close(str(error))

    def _may_begin(self, call: Call) -> bool:
        if self._outbox.bytes >= MAX_UNSENT_RESPONSE_BYTES or self.closed or self._held:
            return False
        processor = self._processor
        if processor.draining:
            return False
        pending = self._pending
        if pending:
            last = pending[-1]
            if not (call.route.pipelined and last.route.pipelined):
                return False
            if last.stage is not PARKED and last.stage is not OVER:
                return False
            if len(pending) >= processor.settings.pipelined or processor.queue.over_parked_limit:
                return False
        queue = processor.queue
        if not queue.has_room(self.listener.controller):
            if not self._wants_room:
                self._wants_room = True
                queue.notify_when_room(self.listener.controller, self._room)
            return False
        return True

    def _settle(self) -> None:
        """After a step: mute or not, note a frame that has begun, and go when all is said."""
        kept = self._next
        if kept is not None:
            if self._may_begin(kept):
                self._wake_soon()  # the outbox was in the way and is no more
            self._mute()
        elif self._more:
            self._mute()
        elif self._may_go_on_reading() and self._muted and not self._ended:
            self._muted = False
            self._transport.resume_reading()
        if (self._ended or self._processor.draining) and self._is_done():
            self.shut()

    def _may_go_on_reading(self) -> bool:
        """Notes a frame that has begun to arrive; one that would be too much for the node has to wait.

        Only frames that were let in are counted, and those are read to their end: nobody waits for bytes of somebody
        who waits for bytes.
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
                    queue.notify_when_may_receive(self._bytes)
                return False
            self._frame_since_ms = self._processor.clock.now_ms()
        elif self._muted:
            self._frame_since_ms = self._processor.clock.now_ms()  # the time in which we did not listen is not its own
        self._account_for_arriving(arriving)
        return True

    def _mute(self) -> None:
        if not self._muted:
            self._muted = True
            self._transport.pause_reading()

    def _room(self) -> None:
        self._wants_room = False
        self._proceed()

    def _bytes(self) -> None:
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

    def _abandon_long_polls(self) -> None:
        for call in self._pending:
            if call.stage is PARKED and call.route.cancelled_on_disconnect and call.task is not None:
                call.task.cancel()

    def _account_for_arriving(self, size_bytes: int) -> None:
        if size_bytes != self._arriving_bytes:
            self._processor.queue.receiving(size_bytes - self._arriving_bytes)
            self._arriving_bytes = size_bytes
