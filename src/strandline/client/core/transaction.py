"""The transactions of one transactional id, as its producer sees them. A core; `transactional_producer` is its shell.

    UNINITIALIZED ──InitProducerId──▶ READY ──begin──▶ IN_TRANSACTION ──end──▶ COMMITTING or ABORTING ──▶ READY
    IN_TRANSACTION or COMMITTING ──an error──▶ ABORT_REQUIRED ──end──▶ ABORTING
    any state ──fenced, an end without a response, or an error that cannot be aborted──▶ FATAL

With transaction.version 2 (KIP-890) leaders and the group coordinator add partitions and offsets to the transaction by
themselves, and every end assigns a new producer epoch. Before it, the producer adds them by AddPartitionsToTxn and
AddOffsetsToTxn, and requests a new epoch only after an abort that left a gap in its sequence numbers (KIP-360).
Invariant: a request names the producer id and epoch of the transaction it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from strandline.client.core.accumulator import ProducerId
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.producers import InitProducerIdRequest
from strandline.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)


class State(Enum):
    UNINITIALIZED = "uninitialized"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    ABORT_REQUIRED = "abort required"
    COMMITTING = "committing"
    ABORTING = "aborting"
    FATAL = "fatal"


LEGAL_MOVES = {
    State.UNINITIALIZED: {State.READY},
    State.READY: {State.IN_TRANSACTION},
    State.IN_TRANSACTION: {State.COMMITTING, State.ABORTING, State.ABORT_REQUIRED},
    State.COMMITTING: {State.READY, State.ABORT_REQUIRED},
    State.ABORT_REQUIRED: {State.ABORTING},
    State.ABORTING: {State.READY, State.ABORT_REQUIRED},
    State.FATAL: set(),
}

_FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class Transaction:
    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.producer: ProducerId | None = None
        self.is_v2 = False
        self.error: KafkaError | None = None
        """Why the transaction has to be aborted, or why no other can follow."""
        self._timeout_ms = timeout_ms
        self._partitions: dict[TopicPartition, None] = {}
        self._groups: dict[str, None] = {}
        self._has_records = False

    def check_usable(self) -> None:
        """Raises the error after which this transaction takes no more records, or INVALID_TXN_STATE without one."""
        if self.error is not None:
            raise self.error
        self._check(State.IN_TRANSACTION)

    def init_request(self) -> InitProducerIdRequest:
        """The first one fences other producers of this transactional id and aborts their transaction; later ones
        resume the producer with a new epoch."""
        before = self.producer or ProducerId(-1, -1)
        return InitProducerIdRequest(self.transactional_id, self._timeout_ms, before.id, before.epoch)

    def on_initialized(self, producer: ProducerId, *, is_v2: bool) -> None:
        self.producer, self.is_v2 = producer, is_v2
        if self.state is State.UNINITIALIZED:
            self._become(State.READY)

    def begin(self) -> None:
        if self.error is not None:
            raise self.error
        self._check(State.READY)
        self._become(State.IN_TRANSACTION)

    def partitions_to_add(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that AddPartitionsToTxn has to add before records are produced to them."""
        if self.is_v2:
            return []
        return [each for each in partitions if each not in self._partitions]

    def add_partitions_request(self, partitions: Iterable[TopicPartition]) -> AddPartitionsToTxnRequest:
        producer = self._known_producer()
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for each in partitions:
            topics.setdefault(each.topic, AddPartitionsToTxnTopic(each.topic)).partitions.append(each.partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=list(topics.values()),
        )

    def on_partitions_added(self, partitions: Iterable[TopicPartition]) -> None:
        self._partitions.update(dict.fromkeys(partitions))

    def on_produce(self) -> None:
        """Records are sent: with transaction.version 2 the leader may have added their partition from now on."""
        self._has_records = True

    def add_group_request(self, group_id: str) -> AddOffsetsToTxnRequest | None:
        """None if the group is part of the transaction, or the group coordinator adds it."""
        if self.is_v2 or group_id in self._groups:
            return None
        producer = self._known_producer()
        return AddOffsetsToTxnRequest(self.transactional_id, producer.id, producer.epoch, group_id)

    def on_group_added(self, group_id: str) -> None:
        self._groups[group_id] = None

    def offsets_request(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, tuple[int, int, str]],
        member: tuple[str, int, str | None],
    ) -> TxnOffsetCommitRequest:
        """`offsets` are (offset, leader epoch, metadata); `member` is (member id, generation, instance id)."""
        producer = self._known_producer()
        self._has_records = True
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for partition, (offset, leader_epoch, metadata) in offsets.items():
            topics.setdefault(partition.topic, TxnOffsetCommitRequestTopic(partition.topic)).partitions.append(
                TxnOffsetCommitRequestPartition(partition.partition, offset, leader_epoch, metadata)
            )
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            generation_id=member[1],
            member_id=member[0],
            group_instance_id=member[2],
            topics=list(topics.values()),
        )

    @property
    def can_abort(self) -> bool:
        return self.state in (State.IN_TRANSACTION, State.ABORT_REQUIRED)

    def start_end(self, *, commit: bool) -> None:
        """From now on the transaction takes no more records. Raises the error that makes a commit impossible."""
        if commit:
            self.check_usable()
        elif self.state is State.FATAL and self.error is not None:
            raise self.error
        elif self.state is not State.ABORT_REQUIRED:
            self._check(State.IN_TRANSACTION)
        self._become(State.COMMITTING if commit else State.ABORTING)

    def end_request(self) -> EndTxnRequest | None:
        """None if the coordinator does not know of this transaction, so that there is nothing to end."""
        if not (self._partitions or self._groups or (self.is_v2 and self._has_records)):
            return None
        producer = self._known_producer()
        committed = self.state is State.COMMITTING
        return EndTxnRequest(self.transactional_id, producer.id, producer.epoch, committed)

    def on_ended(self, next_producer: ProducerId | None) -> None:
        """`next_producer` comes with the response since transaction.version 2."""
        if next_producer is not None:
            self.producer = next_producer
        self._partitions.clear()
        self._groups.clear()
        self._has_records = False
        self.error = None
        self._become(State.READY)

    def on_error(self, error: KafkaError) -> None:
        """A request of this transaction has failed for good."""
        if self.state is State.FATAL:
            return
        outcome_unknown = self.state in (State.COMMITTING, State.ABORTING) and error.code.retriable
        if error.code in _FATAL or outcome_unknown or self.state is State.UNINITIALIZED:
            self.error = error
            self.state = State.FATAL
        elif self.state is not State.READY:
            self.error = self.error or error
            if self.state is not State.ABORT_REQUIRED:
                self._become(State.ABORT_REQUIRED)

    def _known_producer(self) -> ProducerId:
        assert self.producer is not None, "initialized"
        return self.producer

    def _check(self, needed: State) -> None:
        if self.state is not needed:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"transactional id {self.transactional_id!r} is {self.state.value}, and this needs {needed.value}",
            )

    def _become(self, state: State) -> None:
        assert state in LEGAL_MOVES[self.state], f"{self.state} to {state}"
        self.state = state
