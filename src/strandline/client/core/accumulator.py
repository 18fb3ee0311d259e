"""The producer's memory: records gathered into batches per partition, batches sent, answered, retried in order.

A core; `producer` is its shell. Promises:

- Batches of one partition are appended in the order in which they were filled, retries included: a batch that must be
  sent again goes back in front, and nothing of its partition overtakes it.
- With a producer id, every batch keeps its sequence from try to try, so a broker that has it already says so. Only when
  a sequence can no longer be continued (a batch was given up, its fate unknown; or the broker has forgotten us) is the
  partition begun anew under a fresh producer id, and only once nothing of the old one is under way.
- A batch is given up at its deadline, never before it was answered or lost.

A batch's states: open (taking records) → sealed (waiting) → in flight → done, or back to sealed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from strandline.client.settings import ProducerSettings
from strandline.model.errors import ErrorCode
from strandline.model.ids import TopicPartition
from strandline.records.batch import HEADER_SIZE, Record, encode_batch

# What a record costs beyond its own bytes, at most: lengths, deltas, attributes.
RECORD_OVERHEAD_BYTES = 36
BATCH_OVERHEAD_BYTES = HEADER_SIZE

# The broker no longer knows where our sequence stands.
_LOST_TRACK = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
_NEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class ProducerId:
    id: int
    epoch: int


@dataclass(slots=True, eq=False)
class Batch:
    partition: TopicPartition
    # Where it stands among the batches of its partition: halves of a split batch sort in its place.
    order: tuple[int, ...]
    opened_ms: int
    deadline_ms: int
    records: list[Record] = field(default_factory=list)
    tokens: list[object] = field(default_factory=list)
    size_bytes: int = BATCH_OVERHEAD_BYTES
    sealed: bool = False
    attempts: int = 0
    producer: ProducerId | None = None
    base_sequence: int = -1
    encoded: bytes | bytearray | None = None

    @property
    def next_sequence(self) -> int:
        return (self.base_sequence + len(self.records)) & 0x7FFF_FFFF


@dataclass(slots=True)
class _Lane:
    """One partition's batches, oldest first."""

    waiting: deque[Batch] = field(default_factory=deque)
    in_flight: list[Batch] = field(default_factory=list)
    producer: ProducerId | None = None
    next_sequence: int = 0
    opened: int = 0
    not_before_ms: int = 0
    needs_new_producer: bool = False
    is_known: bool = False
    """The broker has something of this producer id, and so takes nothing but the next sequence."""


class Accumulator:
    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._flushing = 0
        self.buffered_bytes = 0
        self.producer: ProducerId | None = None

    @property
    def is_empty(self) -> bool:
        return not any(lane.waiting or lane.in_flight for lane in self._lanes.values())

    def append(
        self, partition: TopicPartition, record: Record, token: object, now_ms: int, size_bytes: int | None = None
    ) -> bool:
        """Whether the partition has something to send now."""
        if size_bytes is None:
            size_bytes = record_size(record)
        lane = self._lanes.setdefault(partition, _Lane())
        batch = lane.waiting[-1] if lane.waiting else None
        if batch is None or batch.sealed or batch.size_bytes + size_bytes > self._settings.batch_bytes:
            if batch is not None:
                batch.sealed = True
            lane.opened += 1
            batch = Batch(partition, (lane.opened,), now_ms, now_ms + self._settings.delivery_timeout_ms)
            lane.waiting.append(batch)
        batch.records.append(record)
        batch.tokens.append(token)
        batch.size_bytes += size_bytes
        self.buffered_bytes += size_bytes
        if batch.size_bytes >= self._settings.batch_bytes:
            batch.sealed = True
        return batch.sealed or len(lane.waiting) > 1

    def begin_flush(self) -> None:
        """Until `end_flush`, nothing lingers."""
        self._flushing += 1

    def end_flush(self) -> None:
        self._flushing -= 1

    def ready(self, now_ms: int) -> list[TopicPartition]:
        """Partitions whose first waiting batch may be sent now."""
        return [partition for partition, lane in self._lanes.items() if self._ready_ms(lane, now_ms) <= now_ms]

    def next_ready_ms(self, now_ms: int) -> int | None:
        """When something will be ready, or will be given up, if nothing else happens before."""
        times = []
        for lane in self._lanes.values():
            if lane.waiting:
                times.append(lane.waiting[0].deadline_ms)
                ready_ms = self._ready_ms(lane, now_ms)
                if ready_ms < _NEVER_MS:
                    times.append(ready_ms)
        return min(times, default=None)

    def needs_producer_id(self) -> bool:
        """Whether a (fresh) producer id must be had before anything else is sent."""
        if not self._settings.idempotent:
            return False
        return self.producer is None or any(
            lane.needs_new_producer and lane.producer == self.producer for lane in self._lanes.values()
        )

    def take(self, partition: TopicPartition, now_ms: int) -> Batch | None:
        """Moves the first waiting batch to those in flight, with its sequence and bytes fixed."""
        lane = self._lanes[partition]
        if self._ready_ms(lane, now_ms) > now_ms:
            return None
        batch = lane.waiting[0]
        batch.sealed = True
        if self._settings.idempotent and not self._number(lane, batch):
            return None
        lane.waiting.popleft()
        lane.in_flight.append(batch)
        batch.attempts += 1
        if batch.encoded is None:
            batch.encoded = self._encode(batch)
        return batch

    def on_appended(self, batch: Batch) -> None:
        lane = self._lanes.get(batch.partition)
        if lane is not None and batch in lane.in_flight:
            lane.in_flight.remove(batch)
            lane.is_known = lane.is_known or batch.producer == lane.producer
            self._done(batch)

    def on_failed(self, batch: Batch, code: ErrorCode, now_ms: int, backoff_ms: int) -> bool:
        """Whether the batch will be sent again; if not, it is done with and its waiters are to be told."""
        lane = self._lanes.get(batch.partition)
        if lane is None or batch not in lane.in_flight:
            return False  # dropped while it was under way
        oldest = min(each.order for each in [*lane.in_flight, *lane.waiting])
        lane.in_flight.remove(batch)
        if code == ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1:
            for half in _halves(batch):
                _insert(lane.waiting, half)
            return True
        lost_track = self._settings.idempotent and code in _LOST_TRACK
        if now_ms >= batch.deadline_ms or not (lost_track or code.retriable):
            self._give_up(lane, batch)
            return False
        if lost_track and batch.order == oldest:
            # Nothing before it is unsettled, so the broker will never accept this sequence.
            lane.needs_new_producer = True
        _insert(lane.waiting, batch)
        lane.not_before_ms = now_ms + backoff_ms
        return True

    def expire(self, now_ms: int) -> list[Batch]:
        """Waiting batches whose deadline has passed; those in flight are waited for."""
        expired = []
        for lane in self._lanes.values():
            while lane.waiting and lane.waiting[0].deadline_ms <= now_ms:
                batch = lane.waiting.popleft()
                self._give_up(lane, batch)
                expired.append(batch)
        return expired

    def drop_all(self) -> list[Batch]:
        """Everything that was not delivered, when the producer is closed without waiting."""
        dropped = [batch for lane in self._lanes.values() for batch in [*lane.in_flight, *lane.waiting]]
        self._lanes.clear()
        self.buffered_bytes = 0
        return dropped

    def _ready_ms(self, lane: _Lane, now_ms: int) -> int:
        if not lane.waiting:
            return _NEVER_MS
        batch = lane.waiting[0]
        again = batch.attempts > 0
        # One at a time while something is being retried, and always when nobody numbers our batches. The first too: a
        # broker that does not know a producer takes whatever sequence comes first, also if the one before was refused.
        alone = again or not self._settings.idempotent or not lane.is_known
        limit = 1 if alone else self._settings.max_in_flight
        if len(lane.in_flight) >= limit or (lane.in_flight and self._must_drain(lane, batch)):
            return _NEVER_MS
        if again or lane.not_before_ms > now_ms:
            return lane.not_before_ms
        if batch.sealed or self._flushing or len(lane.waiting) > 1:
            return now_ms
        return batch.opened_ms + self._settings.linger_ms

    def _must_drain(self, lane: _Lane, batch: Batch) -> bool:
        """What is in flight must be answered first: it is a retry, or the producer id is about to change."""
        if lane.in_flight[0].attempts > 1 or lane.needs_new_producer:
            return True
        return self._settings.idempotent and batch.producer is None and lane.producer != self.producer

    def _number(self, lane: _Lane, batch: Batch) -> bool:
        """Gives the batch its sequence; False while a fresh producer id is needed first."""
        if self.producer is None or (lane.needs_new_producer and lane.producer == self.producer):
            return False
        if lane.needs_new_producer or (batch.producer is None and lane.producer != self.producer):
            lane.needs_new_producer = False
            lane.producer, lane.next_sequence, lane.is_known = self.producer, 0, False
            for each in lane.waiting:
                each.producer, each.base_sequence, each.encoded = None, -1, None
        if batch.producer is None:
            batch.producer, batch.base_sequence = lane.producer, lane.next_sequence
            lane.next_sequence = batch.next_sequence
        return True

    def _encode(self, batch: Batch) -> bytearray:
        return encode_batch(
            batch.records,
            codec=self._settings.codec,
            level=self._settings.compression_level,
            producer_id=batch.producer.id if batch.producer else -1,
            producer_epoch=batch.producer.epoch if batch.producer else -1,
            base_sequence=batch.base_sequence,
        )

    def _give_up(self, lane: _Lane, batch: Batch) -> None:
        if batch.attempts and self._settings.idempotent and batch.producer == lane.producer:
            # Its sequence numbers leave a hole that the broker will not jump over.
            lane.needs_new_producer = True
        self._done(batch)

    def _done(self, batch: Batch) -> None:
        self.buffered_bytes -= batch.size_bytes - BATCH_OVERHEAD_BYTES


def record_size(record: Record) -> int:
    """At most what the record takes in a batch before compression."""
    size_bytes = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size_bytes += 10 + 4 * len(name) + len(value or b"")
    return size_bytes


def _insert(waiting: deque[Batch], batch: Batch) -> None:
    """In front of everything that was filled after it: batches come back in any order."""
    index = 0
    while index < len(waiting) and waiting[index].order < batch.order:
        index += 1
    waiting.insert(index, batch)


def _halves(batch: Batch) -> list[Batch]:
    middle = len(batch.records) // 2
    halves = []
    for number, (begin, end) in enumerate(((0, middle), (middle, len(batch.records)))):
        half = Batch(batch.partition, (*batch.order, number), batch.opened_ms, batch.deadline_ms)
        half.records, half.tokens = batch.records[begin:end], batch.tokens[begin:end]
        half.size_bytes += sum(record_size(record) for record in half.records)
        half.sealed, half.attempts, half.producer = True, batch.attempts, batch.producer
        if batch.base_sequence >= 0:
            half.base_sequence = (batch.base_sequence + begin) & 0x7FFF_FFFF
        halves.append(half)
    return halves
