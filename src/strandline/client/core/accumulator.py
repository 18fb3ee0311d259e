"""The producer's accumulator: gathers records into batches per partition and tracks their delivery and retries.

A core; `producer` is its shell. Guarantees:

- The batches of a partition are appended in the order in which they were filled, retries included: a batch that is
  retried goes back to the front, and no batch of its partition overtakes it.
- With a producer id, a batch keeps its sequence number across retries, so that the broker detects duplicates. Only when
  a sequence cannot be continued (a batch with unknown outcome has expired, or the broker has lost the producer state)
  does the partition start again with a new producer id, once no batch of the old one is in flight.
- A batch expires at its deadline, but never while it is in flight.

States of a batch: open (taking records) → sealed (waiting) → in flight → done, or back to sealed.
"""

from __future__ import annotations

from collections import deque

import msgspec

from strandline.client.settings import ProducerSettings
from strandline.model.errors import ErrorCode
from strandline.model.ids import TopicPartition
from strandline.records.batch import HEADER_SIZE, Record, encode_batch

RECORD_OVERHEAD_BYTES = 36
"""Upper bound of lengths, deltas and attributes of a record."""
BATCH_OVERHEAD_BYTES = HEADER_SIZE

# The broker has lost the sequence state of this producer.
_SEQUENCE_LOST = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
_NEVER_MS = 1 << 62


class ProducerId(msgspec.Struct, frozen=True):
    id: int
    epoch: int


class Batch(msgspec.Struct, eq=False):
    partition: TopicPartition
    order: tuple[int, ...]
    """Position among the batches of its partition; the halves of a split batch sort in its place."""
    opened_ms: int
    deadline_ms: int
    records: list[Record] = msgspec.field(default_factory=list)
    tokens: list[object] = msgspec.field(default_factory=list)
    size_bytes: int = BATCH_OVERHEAD_BYTES
    sealed: bool = False
    attempts: int = 0
    producer: ProducerId | None = None
    base_sequence: int = -1
    encoded: bytes | bytearray | None = None

    @property
    def next_sequence(self) -> int:
        return (self.base_sequence + len(self.records)) & 0x7FFF_FFFF


class _PartitionQueue(msgspec.Struct):
    """The batches of one partition, oldest first."""

    waiting: deque[Batch] = msgspec.field(default_factory=deque)
    in_flight: list[Batch] = msgspec.field(default_factory=list)
    producer: ProducerId | None = None
    next_sequence: int = 0
    opened: int = 0
    not_before_ms: int = 0
    needs_new_producer: bool = False
    is_known: bool = False
    """The broker has appended a batch of this producer id, so it accepts only the next sequence."""


class Accumulator:
    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._is_transactional = settings.transactional_id is not None
        self._queues: dict[TopicPartition, _PartitionQueue] = {}
        self._flushing = 0
        self.buffered_bytes = 0
        self.producer: ProducerId | None = None

    @property
    def is_empty(self) -> bool:
        return not any(queue.waiting or queue.in_flight for queue in self._queues.values())

    def append(
        self, partition: TopicPartition, record: Record, token: object, now_ms: int, size_bytes: int | None = None
    ) -> bool:
        """Whether the partition has a batch to send now."""
        if size_bytes is None:
            size_bytes = record_size(record)
        queue = self._queues.setdefault(partition, _PartitionQueue())
        batch = queue.waiting[-1] if queue.waiting else None
        if batch is None or batch.sealed or batch.size_bytes + size_bytes > self._settings.batch_bytes:
            if batch is not None:
                batch.sealed = True
            queue.opened += 1
            batch = Batch(partition, (queue.opened,), now_ms, now_ms + self._settings.delivery_timeout_ms)
            queue.waiting.append(batch)
        batch.records.append(record)
        batch.tokens.append(token)
        batch.size_bytes += size_bytes
        self.buffered_bytes += size_bytes
        if batch.size_bytes >= self._settings.batch_bytes:
            batch.sealed = True
        return batch.sealed or len(queue.waiting) > 1

    def begin_flush(self) -> None:
        """Makes all batches ready without linger, until `end_flush`."""
        self._flushing += 1

    def end_flush(self) -> None:
        self._flushing -= 1

    def ready(self, now_ms: int) -> list[TopicPartition]:
        """Partitions whose first waiting batch may be sent now."""
        return [partition for partition, queue in self._queues.items() if self._ready_ms(queue, now_ms) <= now_ms]

    def next_ready_ms(self, now_ms: int) -> int | None:
        """The time at which the next batch becomes ready or expires, if nothing else happens before."""
        times = []
        for queue in self._queues.values():
            if queue.waiting:
                times.append(queue.waiting[0].deadline_ms)
                ready_ms = self._ready_ms(queue, now_ms)
                if ready_ms < _NEVER_MS:
                    times.append(ready_ms)
        return min(times, default=None)

    def needs_producer_id(self) -> bool:
        """Whether a (new) producer id is needed before the next batch is sent."""
        if not self._settings.idempotent or self._is_transactional:
            return False  # the transaction provides the producer id
        return self.producer is None or any(
            queue.needs_new_producer and queue.producer == self.producer for queue in self._queues.values()
        )

    def take(self, partition: TopicPartition, now_ms: int) -> Batch | None:
        """Moves the first waiting batch to those in flight and fixes its sequence and bytes."""
        queue = self._queues[partition]
        if self._ready_ms(queue, now_ms) > now_ms:
            return None
        batch = queue.waiting[0]
        batch.sealed = True
        if self._settings.idempotent and not self._assign_sequence(queue, batch):
            return None
        queue.waiting.popleft()
        queue.in_flight.append(batch)
        batch.attempts += 1
        if batch.encoded is None:
            batch.encoded = self._encode(batch)
        return batch

    def on_appended(self, batch: Batch) -> None:
        queue = self._queues.get(batch.partition)
        if queue is not None and batch in queue.in_flight:
            queue.in_flight.remove(batch)
            queue.is_known = queue.is_known or batch.producer == queue.producer
            self._done(batch)

    def on_failed(self, batch: Batch, code: ErrorCode, now_ms: int, backoff_ms: int) -> bool:
        """Whether the batch will be retried; if not, it has failed and the caller completes its tokens."""
        queue = self._queues.get(batch.partition)
        if queue is None or batch not in queue.in_flight:
            return False  # dropped while it was in flight
        oldest = min(each.order for each in [*queue.in_flight, *queue.waiting])
        queue.in_flight.remove(batch)
        if code == ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1:
            for half in _halves(batch):
                _insert(queue.waiting, half)
            return True
        # In a transaction nothing can be skipped or repeated under another producer id: the transaction fails.
        sequence_lost = self._settings.idempotent and not self._is_transactional and code in _SEQUENCE_LOST
        if now_ms >= batch.deadline_ms or not (sequence_lost or code.retriable):
            self._abandon(queue, batch)
            return False
        if sequence_lost and batch.order == oldest:
            # No earlier batch is pending, so the broker will never accept this sequence.
            queue.needs_new_producer = True
        _insert(queue.waiting, batch)
        queue.not_before_ms = now_ms + backoff_ms
        return True

    def expire(self, now_ms: int) -> list[Batch]:
        """Removes and returns waiting batches whose deadline has passed; batches in flight stay."""
        expired = []
        for queue in self._queues.values():
            while queue.waiting and queue.waiting[0].deadline_ms <= now_ms:
                batch = queue.waiting.popleft()
                self._abandon(queue, batch)
                expired.append(batch)
        return expired

    def drop_all(self) -> list[Batch]:
        """Removes and returns every undelivered batch, when the producer is closed without a flush."""
        dropped = [batch for queue in self._queues.values() for batch in [*queue.in_flight, *queue.waiting]]
        self._queues.clear()
        self.buffered_bytes = 0
        return dropped

    def drop_waiting(self) -> list[Batch]:
        """Removes and returns every batch that is not in flight, when a transaction is aborted."""
        dropped = []
        for queue in self._queues.values():
            while queue.waiting:
                batch = queue.waiting.popleft()
                self._abandon(queue, batch)
                dropped.append(batch)
        return dropped

    @property
    def has_sequence_gaps(self) -> bool:
        """Whether brokers would reject the next batch of a partition, since one before it was not delivered."""
        return any(queue.needs_new_producer and queue.producer == self.producer for queue in self._queues.values())

    def _ready_ms(self, queue: _PartitionQueue, now_ms: int) -> int:
        if not queue.waiting:
            return _NEVER_MS
        batch = queue.waiting[0]
        is_retry = batch.attempts > 0
        # One batch in flight during retries, and always without sequence numbers. The first batch too: a broker without
        # state of a producer accepts any first sequence, even if the batch before it was rejected.
        one_at_a_time = is_retry or not self._settings.idempotent or not queue.is_known
        limit = 1 if one_at_a_time else self._settings.max_in_flight
        if len(queue.in_flight) >= limit or (queue.in_flight and self._must_drain(queue, batch)):
            return _NEVER_MS
        if is_retry or queue.not_before_ms > now_ms:
            return queue.not_before_ms
        if batch.sealed or self._flushing or len(queue.waiting) > 1:
            return now_ms
        return batch.opened_ms + self._settings.linger_ms

    def _must_drain(self, queue: _PartitionQueue, batch: Batch) -> bool:
        """Whether the batches in flight must complete first: one is a retry, or the producer id is about to change."""
        if queue.in_flight[0].attempts > 1 or queue.needs_new_producer:
            return True
        return self._settings.idempotent and batch.producer is None and queue.producer != self.producer

    def _assign_sequence(self, queue: _PartitionQueue, batch: Batch) -> bool:
        """Assigns the sequence of the batch; False while a new producer id is needed first."""
        if self.producer is None or (queue.needs_new_producer and queue.producer == self.producer):
            return False
        if queue.needs_new_producer or (batch.producer is None and queue.producer != self.producer):
            queue.needs_new_producer = False
            queue.producer, queue.next_sequence, queue.is_known = self.producer, 0, False
            for each in queue.waiting:
                each.producer, each.base_sequence, each.encoded = None, -1, None
        if batch.producer is None:
            batch.producer, batch.base_sequence = queue.producer, queue.next_sequence
            queue.next_sequence = batch.next_sequence
        return True

    def _encode(self, batch: Batch) -> bytearray:
        return encode_batch(
            batch.records,
            codec=self._settings.codec,
            level=self._settings.compression_level,
            producer_id=batch.producer.id if batch.producer else -1,
            producer_epoch=batch.producer.epoch if batch.producer else -1,
            base_sequence=batch.base_sequence,
            transactional=self._is_transactional,
        )

    def _abandon(self, queue: _PartitionQueue, batch: Batch) -> None:
        if batch.attempts and self._settings.idempotent and batch.producer == queue.producer:
            # Its sequence numbers leave a gap that the broker does not accept.
            queue.needs_new_producer = True
        self._done(batch)

    def _done(self, batch: Batch) -> None:
        self.buffered_bytes -= batch.size_bytes - BATCH_OVERHEAD_BYTES


def record_size(record: Record) -> int:
    """Upper bound of the size of the record in a batch, before compression."""
    size_bytes = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size_bytes += 10 + 4 * len(name) + len(value or b"")
    return size_bytes


def _insert(waiting: deque[Batch], batch: Batch) -> None:
    """Inserts a failed batch before all batches that were filled later: failed batches return in any order."""
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
