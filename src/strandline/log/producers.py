"""The state of a log's producers: the last five batches of each, their epochs, and open transactions.

A machine: `appending` calls `check` before an append and `replay` or `replay_batch` after it, on a leader, a follower
and in recovery alike, so the state is always a function of the log. It decides whether a batch is a duplicate, in order
or rejected, and below which offset every transaction is decided (`first_unstable_offset`).

Rules (KIP-98): a batch with the producer epoch and the first and last sequence of one of the last five batches is a
duplicate, and its response is that of the original; an older epoch is fenced; a newer epoch starts at sequence 0;
otherwise the sequence continues the last one, wrapping from 2147483647 to 0. An unknown producer may start anywhere.
"""

from __future__ import annotations

import struct

import msgspec

from strandline.log.transaction_index import AbortedTransaction
from strandline.model.errors import ErrorCode, KafkaError
from strandline.records.batch import CONTROL, BatchHeader, ControlType, CorruptBatch, control_record_type, decode_batch

WINDOW = 5
NO_SEQUENCE = -1
NO_EPOCH = -1
NO_OFFSET = -1
_MAX_SEQUENCE = 0x7FFF_FFFF
# Version and coordinator epoch: the value of a transaction marker.
_MARKER_VALUE = struct.Struct(">hi")


class SentBatch(msgspec.Struct, frozen=True, gc=False):
    """What is needed of a producer's batch to recognise a duplicate of it and to respond to that."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & _MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerState(msgspec.Struct):
    """One producer in one partition. `batches` is replaced, never changed in place, so that snapshots can share it."""

    producer_id: int
    producer_epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    last_seen_ms: int = -1
    transaction_first_offset: int = NO_OFFSET
    batches: tuple[SentBatch, ...] = ()

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def find(self, header: BatchHeader) -> SentBatch | None:
        if header.producer_epoch != self.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for sent in self.batches:
            if sent.last_sequence == last_sequence and sent.offset_delta == header.last_offset_delta:
                return sent
        return None

    def move_to_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.batches = ()
            self.producer_epoch = producer_epoch


class Verification(msgspec.Struct, eq=False):
    """A transaction of a producer that the transaction coordinator is asked to confirm before the first append.
    Compared by identity: a marker removes it, and a later one is another (KIP-890)."""

    producer_epoch: int
    lowest_sequence: int
    """Of the batches that wait: none may be appended before the one with it."""


class Marker(msgspec.Struct, frozen=True):
    """The content of a transaction marker."""

    aborts: bool
    coordinator_epoch: int


class CompletedTransaction(msgspec.Struct, frozen=True):
    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerStates:
    """All producers of one log. `map_end_offset` is the offset up to which a snapshot or a replay covers the log."""

    __slots__ = ("_completed", "_open", "_states", "_verifications", "map_end_offset")

    def __init__(self, map_end_offset: int = 0) -> None:
        self.map_end_offset = map_end_offset
        self._states: dict[int, ProducerState] = {}
        self._open: dict[int, int] = {}
        """First offset -> producer id of open transactions, ascending."""
        self._completed: dict[int, int] = {}
        """First offset -> marker offset of transactions whose marker is not below the high watermark."""
        self._verifications: dict[int, Verification] = {}
        """By producer id; not part of the log's state."""

    def __len__(self) -> int:
        return len(self._states)

    def get(self, producer_id: int) -> ProducerState | None:
        return self._states.get(producer_id)

    def all(self) -> list[ProducerState]:
        return list(self._states.values())

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        state = self._states.get(producer_id)
        return state is not None and state.transaction_first_offset >= 0 and state.producer_epoch == producer_epoch

    def verification(self, producer_id: int) -> Verification | None:
        return self._verifications.get(producer_id)

    def start_verification(self, producer_id: int, producer_epoch: int, sequence: int) -> Verification:
        """Shared by all batches of this producer epoch that wait."""
        known = self._verifications.get(producer_id)
        if known is None or known.producer_epoch < producer_epoch:
            known = self._verifications[producer_id] = Verification(producer_epoch, sequence)
        known.lowest_sequence = min(known.lowest_sequence, sequence)
        return known

    def check(self, header: BatchHeader) -> SentBatch | None:
        """Checks a client's batch before its append; returns the original of a duplicate. Raises KafkaError."""
        state = self._states.get(header.producer_id)
        if state is None:
            return None
        sequence = header.base_sequence
        if header.producer_epoch == state.producer_epoch:
            if state.batches:
                expected = (state.batches[-1].last_sequence + 1) & _MAX_SEQUENCE
            else:
                expected = 0
            if sequence != expected:
                duplicate = state.find(header)
                if duplicate is not None:
                    return duplicate
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {header.producer_id} sent sequence {sequence} after {state.last_sequence}",
                )
        elif header.producer_epoch < state.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {header.producer_epoch}, the last was {state.producer_epoch}",
            )
        elif sequence != 0 and state.producer_epoch != NO_EPOCH:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} starts epoch {header.producer_epoch} with sequence {sequence}, not 0",
            )
        if state.transaction_first_offset >= 0:
            self.check_transaction(header)
        return None

    def check_coordinator_batch(self, header: BatchHeader) -> None:
        """Before offsets of a transaction are appended: they have no sequences."""
        state = self._states.get(header.producer_id)
        if state is not None and header.producer_epoch < state.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {header.producer_epoch}, the last was {state.producer_epoch}",
            )
        self.check_transaction(header)

    def check_transaction(self, header: BatchHeader) -> None:
        state = self._states.get(header.producer_id)
        if state is not None and state.transaction_first_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction and sent a batch outside of it",
            )

    def check_marker(self, header: BatchHeader, coordinator_epoch: int) -> None:
        """Checks a coordinator's marker before it is appended. Raises KafkaError to reject it."""
        state = self._states.get(header.producer_id)
        if state is None:
            return
        if header.producer_epoch < state.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker of producer {header.producer_id} has epoch {header.producer_epoch}, "
                f"the last seen is {state.producer_epoch}",
            )
        if coordinator_epoch < state.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} is older than {state.coordinator_epoch}",
            )

    def replay(self, header: BatchHeader, base_offset: int, seen_ms: int) -> None:
        """A data batch with a producer id is in the log, at `base_offset` (the header may be the client's)."""
        _, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, _ = header
        state = self._states.get(producer_id)
        if state is None:
            state = self._states[producer_id] = ProducerState(producer_id, epoch)
        elif state.producer_epoch != epoch:
            state.move_to_epoch(epoch)
        if sequence >= 0:
            sent = SentBatch((sequence + delta) & _MAX_SEQUENCE, base_offset + delta, delta, timestamp)
            state.batches = (*state.batches[1 - WINDOW :], sent)
        state.last_timestamp = timestamp
        state.last_seen_ms = seen_ms
        if attributes & 0x10 and state.transaction_first_offset < 0:
            state.transaction_first_offset = base_offset
            self._open[base_offset] = producer_id
            self._verifications.pop(producer_id, None)

    def replay_marker(
        self, header: BatchHeader, base_offset: int, *, aborted: bool, coordinator_epoch: int, seen_ms: int
    ) -> CompletedTransaction | None:
        """A marker is in the log: the transaction it ends, if one was open here."""
        state = self._states.get(header.producer_id)
        if state is None:
            state = self._states[header.producer_id] = ProducerState(header.producer_id, header.producer_epoch)
        self._verifications.pop(header.producer_id, None)
        state.move_to_epoch(header.producer_epoch)
        state.coordinator_epoch = coordinator_epoch
        state.last_timestamp = header.max_timestamp
        state.last_seen_ms = seen_ms
        first_offset = state.transaction_first_offset
        if first_offset < 0:
            return None
        state.transaction_first_offset = NO_OFFSET
        self._open.pop(first_offset, None)
        last_offset = base_offset + header.last_offset_delta
        self._completed[first_offset] = last_offset
        return CompletedTransaction(header.producer_id, first_offset, last_offset, aborted)

    def replay_batch(
        self, batch: memoryview | None, header: BatchHeader, base_offset: int, seen_ms: int
    ) -> AbortedTransaction | None:
        """A batch with a producer id, data or control, is in the log; the transaction it aborts, if it does."""
        if not header.attributes & CONTROL:
            self.replay(header, base_offset, max(seen_ms, header.max_timestamp))
            return None
        marker = None if batch is None else read_marker(batch)
        if marker is None:
            return None
        completed = self.replay_marker(
            header, base_offset, aborted=marker.aborts, coordinator_epoch=marker.coordinator_epoch, seen_ms=seen_ms
        )
        return self.aborted_entry(completed) if completed is not None and marker.aborts else None

    def aborted_entry(self, completed: CompletedTransaction) -> AbortedTransaction:
        """An entry of the transaction index; its last stable offset is as if only the open transactions counted."""
        stable = min(self._open) if self._open else completed.last_offset + 1
        return AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Transactions whose marker is below the high watermark are decided."""
        if self._completed:
            self._completed = {first: last for first, last in self._completed.items() if last >= high_watermark}

    @property
    def first_unstable_offset(self) -> int | None:
        if not self._open and not self._completed:
            return None
        return min((*self._open, *self._completed))

    def install(self, state: ProducerState) -> None:
        """Installs a producer's state from a snapshot."""
        self._states[state.producer_id] = state
        if state.transaction_first_offset >= 0:
            self._open[state.transaction_first_offset] = state.producer_id

    def expire(self, wall_ms: int, expiration_ms: int) -> int:
        """Removes producers without an open transaction that sent nothing for `expiration_ms`; returns how many."""
        expired = [
            state.producer_id
            for state in self._states.values()
            if state.transaction_first_offset < 0 and wall_ms - state.last_seen_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._states[producer_id]
            self._verifications.pop(producer_id, None)
        return len(expired)

    def adopt(self, other: ProducerStates) -> None:
        """Takes over the state of `other`, which a truncation has rebuilt."""
        self.map_end_offset = other.map_end_offset
        self._states = other._states
        self._open = other._open
        self._completed = other._completed
        self._verifications = other._verifications


def read_marker(batch: memoryview) -> Marker | None:
    """The transaction marker in a control batch; None for control batches of other types."""
    try:
        record = decode_batch(batch)[0]
        kind = control_record_type(record.key)
        if kind not in (ControlType.ABORT, ControlType.COMMIT) or record.value is None:
            return None
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    except (CorruptBatch, IndexError, struct.error):
        return None
    return Marker(kind == ControlType.ABORT, coordinator_epoch)
