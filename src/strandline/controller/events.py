"""The controller's event queue: decide → replay → append → respond when committed. Contains no decisions.

Events are handled one at a time. An event waits for its turn and decides on the latest view; its records are replayed,
so that the next event sees them, and appended, and the next event begins. The response follows when the log has
committed the records, so any number of events may wait for their commit at the same time.

Every event belongs to one *activation* of this controller, which is one leadership of the metadata log. An event
captures the activation before it queues and compares it after every pause: if the activation has ended, the event fails
with NOT_CONTROLLER and has written nothing. Responses that wait for a commit fail with the activation's own watermark,
which the log declares lost. Records that were replayed but not committed are reverted by the log before it calls
`deactivate`, because only the log knows how far the image is committed. A leadership that is lost and regained is
another activation, however short the interruption.

The offset of an event's first record is reserved before the decision, because a broker epoch is an offset. Until the
records are appended nothing else, not even the quorum itself, appends to the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from strandline.controller.decisions import MAX_RECORDS_PER_DECISION, Decision, Steps
from strandline.controller.metrics import CONTROLLER
from strandline.metadata.image import Image
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.types import Message
from strandline.runtime.clock import Clock
from strandline.runtime.metrics import Metrics
from strandline.runtime.tasks import yield_to_loop
from strandline.runtime.watermark import Watermark

A = TypeVar("A")

# About two milliseconds of replay.
_RECORDS_PER_YIELD: Final = 500
# A decision that is not atomic is appended in batches of this size: one batch is committed in one step of the loop.
_RECORDS_PER_BATCH: Final = 2_000
# Records that a machine may add to those of one request (a broker's registration and its partitions' changes).
_MARGIN: Final = 1000

_QUEUE: Final = "kafka.controller:type=ControllerEventManager,name="


class MetadataLog(Protocol):
    """The port to the log of metadata records, implemented by the quorum (`raft`)."""

    @property
    def is_leader(self) -> bool:
        """Whether this node may append now."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch of the current leadership."""
        ...

    @property
    def former_leader(self) -> tuple[int, int] | None:
        """The id of the node that led before this one, and the time (`now_ms`) of the last contact, if known."""
        ...

    @property
    def kraft_version(self) -> int:
        """The level of the feature kraft.version: 1 when the log itself holds the voter set, 0 otherwise."""
        ...

    @property
    def end_offset(self) -> int: ...

    @property
    def committed(self) -> Watermark:
        """The first offset that is not committed. The watermark belongs to one leadership, and is lost with it."""
        ...

    def reserve(self) -> int:
        """Returns the offset of the next append; until `append` or `release` nothing else is appended to the log.

        An append without a reservation is allowed, and returns its offset.
        """
        ...

    def release(self) -> None:
        """Ends the reservation, if there is one, without an append."""
        ...

    def append(self, records: Sequence[Message]) -> int:
        """Appends one atomic batch and returns the offset of its last record before it is durable.

        Ends the reservation. Raises NOT_CONTROLLER when this node is no longer the leader.
        """
        ...

    async def upgrade_kraft_version(self, level: int) -> Message:
        """Raises kraft.version and returns an UpdateFeaturesResponse: when the change is committed, or at once if it
        is rejected. Not to be called while an offset is reserved, because the quorum appends a record of its own."""
        ...


class Activation(msgspec.Struct):
    """One period in which this controller is active."""

    epoch: int
    committed: Watermark
    end_offset: int
    """The offset after the last record of this activation: a response depends on records below it only."""
    last_append_ms: int


class EventQueue:
    def __init__(self, image: Image, log: MetadataLog, clock: Clock, metrics: Metrics) -> None:
        self._image = image
        self._log = log
        self._clock = clock
        self._turn = asyncio.Lock()
        self._activation: Activation | None = None
        self.next_offset = -1
        """During a decision: the offset of its first record."""
        self._queue_time = metrics.window(_QUEUE + "EventQueueTimeMs")
        self._processing_time = metrics.window(_QUEUE + "EventQueueProcessingTimeMs")
        self._operations = metrics.counter(CONTROLLER + "EventQueueOperationsStartedCount")
        self._timed_out = metrics.counter(CONTROLLER + "EventQueueOperationsTimedOutCount")
        self._errors = metrics.counter(CONTROLLER + "MetadataErrorCount")

    @property
    def activation(self) -> Activation | None:
        """The current activation; None while this controller is not active."""
        current = self._activation
        return current if current is not None and self._is_current(current) else None

    def activate(self) -> Activation | None:
        """Called when this node leads the log and has replayed all committed records.

        Returns None if the leadership has been lost in the meantime.
        """
        if not self._log.is_leader:
            return None
        committed = self._log.committed
        self._activation = Activation(self._log.epoch, committed, committed.value, self._clock.now_ms())
        return self._activation

    def deactivate(self) -> None:
        """The leadership is lost, and the image has been reverted to the committed records."""
        self._activation = None

    async def decide(self, decide: Callable[[], Decision[A] | Steps[A]], timeout_ms: int | None = None) -> A:
        """Handles one event and returns its response.

        `timeout_ms` bounds the time in the queue; after the decision only the commit or the end of the activation ends
        the wait.
        """
        queued_ms = self._clock.now_ms()
        activation = self._activation
        if activation is None:
            raise _not_controller()
        async with self._turn:
            self._check(activation)
            now_ms = self._clock.now_ms()
            self._queue_time.record(now_ms - queued_ms, now_ms)
            if timeout_ms is not None and now_ms - queued_ms >= timeout_ms:
                self._timed_out.add()
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the request timed out in the controller's event queue")
            self._operations.add()
            decision = await self._decided(decide, activation)
            self._processing_time.record(self._clock.now_ms() - now_ms, now_ms)
            # A decision without records was made on the records of earlier ones, so its response waits for these.
            until = activation.end_offset
        await activation.committed.reached(until)
        return decision.response

    async def _decided(self, decide: Callable[[], Decision[A] | Steps[A]], activation: Activation) -> Decision[A]:
        self.next_offset = self._log.reserve()
        try:
            decided = decide()
            decision = decided if isinstance(decided, Decision) else await self._run(decided, activation)
            await self._apply(decision, activation)
        except (KafkaError, asyncio.CancelledError):
            raise
        except BaseException:
            self._errors.add()
            raise
        finally:
            self._log.release()
        return decision

    async def _run(self, steps: Steps[A], activation: Activation) -> Decision[A]:
        """Runs a long decision, yielding to the event loop after each of its steps."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            await self._yield(activation)

    async def _apply(self, decision: Decision[Any], activation: Activation) -> None:
        records = decision.records
        if decision.atomic and len(records) > MAX_RECORDS_PER_DECISION + _MARGIN:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{len(records)} records are too many for one decision")
        size = len(records) if decision.atomic else _RECORDS_PER_BATCH
        for first in range(0, len(records), size or 1):
            base_offset = self._log.reserve() if first else self.next_offset
            await self._append(records[first : first + size], base_offset, activation)
        if decision.on_appended is not None:
            decision.on_appended(activation.end_offset - 1)

    async def _append(self, records: Sequence[Message], base_offset: int, activation: Activation) -> None:
        """Replays, then appends: a record that cannot be replayed must not be written."""
        self._image.mark(base_offset)
        try:
            for index, record in enumerate(records):
                self._image.replay(record, base_offset + index)
                if index % _RECORDS_PER_YIELD == _RECORDS_PER_YIELD - 1:
                    await self._yield(activation)
            activation.end_offset = self._log.append(records) + 1
            activation.last_append_ms = self._clock.now_ms()
        except BaseException:
            # If the activation has ended, the log has reverted the image already.
            if self._activation is activation:
                self._image.revert_to_committed(base_offset)
            raise

    async def _yield(self, activation: Activation) -> None:
        await yield_to_loop()
        self._check(activation)

    def _check(self, activation: Activation) -> None:
        if not self._is_current(activation):
            raise _not_controller()

    def _is_current(self, activation: Activation) -> bool:
        return self._activation is activation and self._log.is_leader and self._log.epoch == activation.epoch


def _not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
