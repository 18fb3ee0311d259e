"""One event at a time: decide → replay → append → answer when committed.

The controller's heart, without a word about what is decided. An event waits for its turn, decides on the latest view,
has its records replayed (so that the next event sees them) and appended, and gives the turn away; its answer follows
when the log has committed them. So one decision is made at a time while any number of them wait for their commit.

Everything belongs to one *leadership* of the log. An event captures it before it waits in line, and compares after
every pause: whoever finds another one, or none, answers NOT_CONTROLLER and has written nothing. Answers that wait for a
commit fail with the leadership's own watermark, which its log declares lost. What was replayed but is not committed is
taken back by the log, before it calls for the `end`: it alone knows how far the image is committed. A leadership that
ends and comes back is another one, however short the break.

The offset of a decision's first record is reserved before it is made, for a broker's epoch is an offset; until the
records are appended nobody else, not even the quorum itself, writes to the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from strandline.controller.decisions import MAX_RECORDS_PER_DECISION, Decision, Steps
from strandline.controller.metadata_log import MetadataLog
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
_RECORDS_PER_BREATH: Final = 500
# Where a decision may be written in several batches: so many records are committed in one step of the loop.
_RECORDS_PER_PORTION: Final = 2_000
# What a machine may add to the records of one request (a broker's registration with the partitions it leaves).
_MARGIN: Final = 1000

_QUEUE: Final = "kafka.controller:type=ControllerEventManager,name="


class Activation(msgspec.Struct):
    """One term of office."""

    epoch: int
    committed: Watermark
    end_offset: int
    """Behind the last record that this leadership appended: what an answer rests on stands below."""
    last_append_ms: int


class Events:
    def __init__(self, image: Image, log: MetadataLog, clock: Clock, metrics: Metrics) -> None:
        self._image = image
        self._log = log
        self._clock = clock
        self._turn = asyncio.Lock()
        self._leadership: Activation | None = None
        self.next_offset = -1
        """While a decision is made: where its first record will stand."""
        self._queue_time = metrics.window(_QUEUE + "EventQueueTimeMs")
        self._processing_time = metrics.window(_QUEUE + "EventQueueProcessingTimeMs")
        self._operations = metrics.counter(CONTROLLER + "EventQueueOperationsStartedCount")
        self._timed_out = metrics.counter(CONTROLLER + "EventQueueOperationsTimedOutCount")
        self._errors = metrics.counter(CONTROLLER + "MetadataErrorCount")

    @property
    def leadership(self) -> Activation | None:
        """The current one, if this controller is active."""
        mine = self._leadership
        return mine if mine is not None and self._is_current(mine) else None

    def begin(self) -> Activation | None:
        """The log is ours and everything committed is replayed. None if it has been lost again meanwhile."""
        if not self._log.is_leader:
            return None
        committed = self._log.committed
        self._leadership = Activation(self._log.epoch, committed, committed.value, self._clock.now_ms())
        return self._leadership

    def end(self) -> None:
        """The log is another's, and the image is as committed again."""
        self._leadership = None

    async def decide(self, decide: Callable[[], Decision[A] | Steps[A]], timeout_ms: int | None = None) -> A:
        """One event. A long line may cost the deadline; once decided, only the commit or a lost leadership ends it."""
        asked_ms = self._clock.now_ms()
        leadership = self._leadership
        if leadership is None:
            raise _not_controller()
        async with self._turn:
            self._check(leadership)
            now_ms = self._clock.now_ms()
            self._queue_time.record(now_ms - asked_ms, now_ms)
            if timeout_ms is not None and now_ms - asked_ms >= timeout_ms:
                self._timed_out.add()
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the controller was too busy to decide in time")
            self._operations.add()
            decision = await self._decided(decide, leadership)
            self._processing_time.record(self._clock.now_ms() - now_ms, now_ms)
            # Without records of its own an answer rests on those of decisions before it, so it waits for these.
            until = leadership.end_offset
        await leadership.committed.reached(until)
        return decision.answer

    async def _decided(self, decide: Callable[[], Decision[A] | Steps[A]], leadership: Activation) -> Decision[A]:
        self.next_offset = self._log.reserve()
        try:
            decided = decide()
            decision = decided if isinstance(decided, Decision) else await self._at_ease(decided, leadership)
            await self._apply(decision, leadership)
        except (KafkaError, asyncio.CancelledError):
            raise
        except BaseException:
            self._errors.add()
            raise
        finally:
            self._log.release()
        return decision

    async def _at_ease(self, steps: Steps[A], leadership: Activation) -> Decision[A]:
        """Runs a long decision, letting the loop breathe where it yields."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            await self._breathe(leadership)

    async def _apply(self, decision: Decision[Any], leadership: Activation) -> None:
        records = decision.records
        if decision.atomic and len(records) > MAX_RECORDS_PER_DECISION + _MARGIN:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{len(records)} records are too many for one decision")
        portion = len(records) if decision.atomic else _RECORDS_PER_PORTION
        for first in range(0, len(records), portion or 1):
            base_offset = self._log.reserve() if first else self.next_offset
            await self._append(records[first : first + portion], base_offset, leadership)
        if decision.appended is not None:
            decision.appended(leadership.end_offset - 1)

    async def _append(self, records: Sequence[Message], base_offset: int, leadership: Activation) -> None:
        """Replays, then appends: what cannot be replayed must not be written."""
        self._image.mark(base_offset)
        try:
            for index, record in enumerate(records):
                self._image.replay(record, base_offset + index)
                if index % _RECORDS_PER_BREATH == _RECORDS_PER_BREATH - 1:
                    await self._breathe(leadership)
            leadership.end_offset = self._log.append(records) + 1
            leadership.last_append_ms = self._clock.now_ms()
        except BaseException:
            # Unless the leadership ended, which has taken all of it back.
            if self._leadership is leadership:
                self._image.revert_to_committed(base_offset)
            raise

    async def _breathe(self, leadership: Activation) -> None:
        await yield_to_loop()
        self._check(leadership)

    def _check(self, leadership: Activation) -> None:
        if not self._is_current(leadership):
            raise _not_controller()

    def _is_current(self, leadership: Activation) -> bool:
        return self._leadership is leadership and self._log.is_leader and self._log.epoch == leadership.epoch


def _not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
