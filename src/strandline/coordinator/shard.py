"""The shell of every coordinator machine, one per led partition: decide → append → replay → respond when committed.

- *Load*: before it serves anything the shard replays its partition up to the log end, and waits until all of that is
  committed: the high watermark of a new leader may be behind what its predecessor has acknowledged, and a committed
  offset must never go back. Requests are answered COORDINATOR_LOAD_IN_PROGRESS meanwhile.
- *Write*: a decision is made on the latest state, its records are replayed at once (the next decision sees them) and
  gathered into a batch. While no append is in flight one batch is appended per step of the event loop; otherwise
  records gather until the append is committed or `append_linger_ms` has passed, so thousands of commits per second cost
  few appends. The response is sent when the high watermark has passed the records. A decision without records rests on
  those before it and waits for them.
- *Failure*: when an append fails, the replicated state is reverted to the batch's first offset, `on_append_failed` of
  its decisions corrects the rest, and its requests get Kafka's error.
- *Unload*: when the partition leadership ends, everything that waits is answered NOT_COORDINATOR.

The shard is the only writer of its partition, so it knows the offset of a record before it is appended. Reads see the
committed state (`timeline.committed`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec

from strandline.coordinator.append_errors import coordinator_error
from strandline.coordinator.decision import Decision, Now, Token
from strandline.coordinator.loading import replay_log
from strandline.coordinator.log_port import CoordinatorLog
from strandline.coordinator.machine import Machine, Producer
from strandline.coordinator.records import CoordinatorRecord, RecordTypes, encode_record
from strandline.coordinator.uncommitted import PARKED, UncommittedDecision, uncommitted
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.records.batch import (
    Record,
    encode_batch,
    end_transaction_marker,
)
from strandline.runtime.clock import Clock
from strandline.runtime.tasks import yield_to_loop

logger = logging.getLogger(__name__)

# Fields of a record in a batch beside key and value, and the header of a batch: upper bounds.
_RECORD_OVERHEAD_BYTES: Final = 32
_BATCH_OVERHEAD_BYTES: Final = 128


class ShardSettings(msgspec.Struct, frozen=True):
    append_linger_ms: int
    write_timeout_ms: int


M = TypeVar("M", bound=Machine)
R = TypeVar("R")


class Shard(Generic[M]):
    def __init__(
        self,
        topic_partition: TopicPartition,
        log: CoordinatorLog,
        machine: M,
        types: RecordTypes,
        clock: Clock,
        settings: ShardSettings,
    ) -> None:
        self.topic_partition = topic_partition
        self.machine = machine
        self._log = log
        self._types = types
        self._clock = clock
        self._settings = settings
        self.perform: Callable[[object], None] | None = None
        """Carries out the effects of decisions whose records are committed."""
        self._unavailable: KafkaError | None = KafkaError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{topic_partition} is being loaded"
        )
        self._next_token = 0
        self._parked: dict[Token, asyncio.Future[Any]] = {}
        self._batch: list[Record] = []
        self._batch_base = 0
        self._batch_bytes = 0
        self._waiting: list[UncommittedDecision] = []
        self._in_flight = 0
        self._flush_handle: asyncio.Handle | None = None
        self._timer_handle: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None

    @property
    def leader_epoch(self) -> int:
        return self._log.leader_epoch

    @property
    def is_active(self) -> bool:
        return self._unavailable is None

    @property
    def is_loading(self) -> bool:
        return self._unavailable is not None and self._unavailable.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    async def load(self) -> None:
        """Replays the partition from its log start to its log end; serves when that is committed. Raises KafkaError."""
        started_ms = self._clock.now_ms()
        count = await replay_log(self._log, self.machine, self._types, lambda: self.is_loading)
        end_offset = self._log.log_end_offset
        if self.is_loading:
            await self._log.high_watermark.reached(end_offset)
        if not self.is_loading:
            return
        self._unavailable = None
        self.machine.timeline.commit(end_offset)
        logger.log(
            logging.INFO if count else logging.DEBUG,
            "%s is loaded: %d records in %d ms, leader epoch %d",
            self.topic_partition,
            count,
            self._clock.now_ms() - started_ms,
            self._log.leader_epoch,
        )
        self._apply(self._decide(self.machine.on_loaded), None)
        self._schedule_timers()

    def unload(self, why: KafkaError) -> None:
        """The leadership has ended: nothing is served any more, and whatever waits fails with `why`."""
        self._unavailable = why
        for handle in (self._flush_handle, self._timer_handle):
            if handle is not None:
                handle.cancel()
        self._flush_handle = self._timer_handle = None
        waiting, self._waiting, self._batch = self._waiting, [], []
        for each in waiting:
            self._fail(each, why)
        parked, self._parked = self._parked, {}
        for future in parked.values():
            _set_error(future, why)

    def check_active(self) -> None:
        if self._unavailable is not None:
            raise self._unavailable

    def read(self, query: Callable[[M, int], R]) -> R:
        """`query` gets the machine and the offset up to which its state is committed."""
        self.check_active()
        return query(self.machine, self.machine.timeline.committed)

    async def read_in_steps(self, query: Callable[[M, int], Generator[None, None, R]]) -> R:
        """As `read`, for a query that yields to the event loop. All of it sees one moment."""
        self.check_active()
        timeline = self.machine.timeline
        at = timeline.committed
        steps = query(self.machine, at)
        timeline.pin(at)
        try:
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                await yield_to_loop()
        finally:
            timeline.unpin(at)

    async def write(self, decide: Callable[[M, Token, Now], Decision[R | None]]) -> R:
        """Decides, appends, and returns the response when the records are committed. `decide` gets the machine, a token
        to park the request under, and the time."""
        self.check_active()
        token = self._new_token()
        decision = self._decide(partial(decide, self.machine, token))
        response = decision.response
        if response is not None and self._is_settled() and not decision.has_consequences:
            self._schedule_timers()
            return response
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        if response is None:
            self._parked[token] = future
        self._apply(decision, future)
        self._schedule_timers()
        if response is None:
            return await self._until_completed(token, future)
        return await future

    def apply(self, decide: Callable[[M, Now], Decision[None]]) -> None:
        """As `write`, where no response is waited for."""
        if self._unavailable is None:
            self._apply(self._decide(partial(decide, self.machine)), None)
            self._schedule_timers()

    async def write_in_transaction(self, producer: Producer, decide: Callable[[M, Now], Decision[R]]) -> R:
        """As `write`, for records of a transaction: they take effect when its COMMIT marker is written here."""
        self.check_active()
        self._flush_all()
        decision = self._decide(partial(decide, self.machine))
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        waiting = uncommitted(decision, future)
        if not decision.records:
            self._wait_for_commit(self._log.log_end_offset, [waiting])
            return await future
        base_offset = self._log.log_end_offset
        self._replay(decision, decision.records, base_offset, producer)
        wall_ms = self._clock.wall_ms()
        batch = encode_batch(
            [encode_record(record, wall_ms) for record in decision.records],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transactional=True,
        )
        self._append(batch, base_offset, [waiting])
        return await future

    async def end_transaction(self, producer: Producer, coordinator_epoch: int, *, commit: bool) -> None:
        """Writes a transaction marker; the transaction's records in this partition take effect or are dropped."""
        self.check_active()
        self._flush_all()
        base_offset = self._log.log_end_offset
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.machine.timeline.mark(base_offset)
        self.machine.replay_marker(producer, commit=commit)
        marker = end_transaction_marker(
            commit=commit,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=self._clock.wall_ms(),
        )
        self._append(marker, base_offset, [UncommittedDecision(None, future)])
        await future

    def _new_token(self) -> Token:
        self._next_token += 1
        return Token(self._next_token)

    async def _until_completed(self, token: Token, future: asyncio.Future[R]) -> R:
        try:
            return await future
        finally:
            self._parked.pop(token, None)

    def _decide(self, decide: Callable[[Now], Decision[R]]) -> Decision[R]:
        """What the machine changes while it decides belongs to the next record, and is reverted with it."""
        next_offset = self._batch_base + len(self._batch) if self._batch else self._log.log_end_offset
        self.machine.timeline.mark(next_offset)
        return decide(Now(self._clock.now_ms(), self._clock.wall_ms()))

    def _is_settled(self) -> bool:
        """Whether every record that a decision may rest on is committed."""
        return not self._batch and self._in_flight == 0

    def _apply(self, decision: Decision[Any], future: asyncio.Future[Any] | None) -> None:
        waiting = uncommitted(decision, future)
        if decision.records:
            self._add_to_batch(decision, waiting)
        elif self._batch:
            self._waiting.append(waiting)
        else:
            self._wait_for_commit(self._log.log_end_offset, [waiting])

    def _add_to_batch(self, decision: Decision[Any], waiting: UncommittedDecision) -> None:
        wall_ms = self._clock.wall_ms()
        encoded = [encode_record(record, wall_ms) for record in decision.records]
        sizes = [len(each.key or b"") + len(each.value or b"") + _RECORD_OVERHEAD_BYTES for each in encoded]
        start = 0
        while start < len(encoded):
            end = len(encoded) if decision.is_atomic else self._end_of_batch(sizes, start)
            size = sum(sizes[start:end])
            if self._batch and self._batch_bytes + size > self._log.max_batch_bytes:
                error = self._flush()
                if error is not None:
                    # The decision rests on records that could not be appended, so it fails with them.
                    self._on_append_failed(self._log.log_end_offset, [waiting], error)
                    return
            if not self._batch:
                self._batch_base = self._log.log_end_offset
                self._batch_bytes = _BATCH_OVERHEAD_BYTES
            self._replay(decision, decision.records[start:end], self._batch_base + len(self._batch), None)
            self._batch += encoded[start:end]
            self._batch_bytes += size
            start = end
        self._waiting.append(waiting)
        self._flush_soon()

    def _end_of_batch(self, sizes: list[int], start: int) -> int:
        """How many of the records fit in one batch, at least one."""
        room = self._log.max_batch_bytes - _BATCH_OVERHEAD_BYTES - sizes[start]
        end = start + 1
        while end < len(sizes) and room >= sizes[end]:
            room -= sizes[end]
            end += 1
        return end

    def _replay(
        self, decision: Decision[Any], records: list[CoordinatorRecord], offset: int, producer: Producer | None
    ) -> None:
        self.machine.timeline.mark(offset)
        if decision.is_applied:
            return
        try:
            for record in records:
                self.machine.replay(record, producer)
        except BaseException:
            self.machine.timeline.revert_to(offset)
            raise

    def _flush_soon(self) -> None:
        if self._flush_handle is not None:
            return
        loop = asyncio.get_running_loop()
        if self._in_flight == 0 or self._settings.append_linger_ms <= 0:
            self._flush_handle = loop.call_soon(self._flush)
        else:
            self._flush_handle = loop.call_later(self._settings.append_linger_ms / 1000, self._flush)

    def _flush_all(self) -> None:
        """Also what is decided because an append failed."""
        while self._batch:
            self._flush()

    def _flush(self) -> KafkaError | None:
        """Appends the gathered records as one batch. Returns the error if that failed."""
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        if not self._batch:
            return None
        batch, self._batch = self._batch, []
        waiting, self._waiting = self._waiting, []
        return self._append(encode_batch(batch), self._batch_base, waiting)

    def _append(self, batch: bytearray, base_offset: int, waiting: list[UncommittedDecision]) -> KafkaError | None:
        try:
            self._log.append(batch)
        except KafkaError as error:
            self._on_append_failed(base_offset, waiting, error)
            return error
        self._wait_for_commit(self._log.log_end_offset, waiting)
        return None

    def _on_append_failed(self, base_offset: int, waiting: list[UncommittedDecision], error: KafkaError) -> None:
        self.machine.timeline.revert_to(base_offset)
        logger.warning("%s: an append failed with %s: %s", self.topic_partition, error.code.name, error.why)
        for each in waiting:
            self._fail(each, KafkaError(coordinator_error(error.code, each.too_large), error.why))
        for each in waiting:
            if each.on_append_failed is not None:
                code = coordinator_error(error.code, each.too_large)
                self._apply(self._decide(partial(each.on_append_failed, code)), None)
        self._schedule_timers()

    def _wait_for_commit(self, end_offset: int, waiting: list[UncommittedDecision]) -> None:
        self._in_flight += 1
        timeout = None
        if self._log.high_watermark.value < end_offset and waiting:
            timeout_s = self._settings.write_timeout_ms / 1000
            timeout = asyncio.get_running_loop().call_later(timeout_s, self._on_write_timeout, waiting)
        self._log.high_watermark.call_when(end_offset, partial(self._on_high_watermark, end_offset, waiting, timeout))

    def _on_write_timeout(self, waiting: list[UncommittedDecision]) -> None:
        """The records may be committed later; their requests are not answered any more then."""
        why = KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{self.topic_partition} did not replicate the records in {self._settings.write_timeout_ms} ms",
        )
        for each in waiting:
            self._fail(each, why)

    def _on_high_watermark(
        self, end_offset: int, waiting: list[UncommittedDecision], timeout: asyncio.TimerHandle | None
    ) -> None:
        """Called when everything below `end_offset` is committed, or when the leadership is lost."""
        self._in_flight -= 1
        if timeout is not None:
            timeout.cancel()
        if self._log.high_watermark.value < end_offset:
            why = self._unavailable or KafkaError(
                ErrorCode.NOT_COORDINATOR, f"{self.topic_partition} has another leader"
            )
            for each in waiting:
                self._fail(each, why)
            return
        if end_offset > self.machine.timeline.committed:
            self.machine.timeline.commit(end_offset)
        for each in waiting:
            self._complete(each)
        if self._in_flight == 0 and self._batch:
            self._flush()

    def _complete(self, waiting: UncommittedDecision) -> None:
        if waiting.future is not None and waiting.error is not None:
            _set_error(waiting.future, waiting.error)
        elif waiting.future is not None and waiting.response is not PARKED and not waiting.future.done():
            waiting.future.set_result(waiting.response)
        for effect in waiting.effects:
            if self.perform is not None and self._unavailable is None:
                self.perform(effect)
        for completion in waiting.completed:
            parked = self._parked.get(completion.token)
            if parked is not None and not parked.done():
                parked.set_result(completion.response)
        if waiting.on_committed is not None and self._unavailable is None:
            self._apply(self._decide(waiting.on_committed), None)
            self._schedule_timers()

    def _fail(self, waiting: UncommittedDecision, why: KafkaError) -> None:
        if waiting.future is not None:
            _set_error(waiting.future, why)
        for completion in waiting.completed:
            parked = self._parked.get(completion.token)
            if parked is not None:
                _set_error(parked, why)

    def _schedule_timers(self) -> None:
        """Wakes the machine at its next deadline. A deadline that moved away only costs a wake-up too many."""
        next_ms = self.machine.timers.next_deadline_ms()
        if next_ms is None or self._unavailable is not None:
            return
        if self._timer_handle is not None:
            if self._timer_ms is not None and self._timer_ms <= next_ms:
                return
            self._timer_handle.cancel()
        delay_s = max(0, next_ms - self._clock.now_ms()) / 1000
        self._timer_ms = next_ms
        self._timer_handle = asyncio.get_running_loop().call_later(delay_s, self._on_timers)

    def _on_timers(self) -> None:
        self._timer_handle = self._timer_ms = None
        if self._unavailable is not None:
            return
        now_ms = self._clock.now_ms()
        while (key := self.machine.timers.pop_expired(now_ms)) is not None:
            self._apply(self._decide(partial(self.machine.on_timer, key)), None)
        self._schedule_timers()


def _set_error(future: asyncio.Future[Any], why: KafkaError) -> None:
    if not future.done():
        future.set_exception(why)
