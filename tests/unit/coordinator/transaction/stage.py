"""The stage of the transaction transcripts: one machine, its records as bytes, its effects until they are carried out.

    init tx [producer:epoch] [timeout=MS]       InitProducerId
    add tx producer:epoch t-0 t-1 … [v2]        AddPartitionsToTxn; v2: from a partition leader, for the client
    verify tx producer:epoch t-0 …              the same, verify-only
    end tx producer:epoch commit|abort [v2]     EndTxn
    markers written tx                          the shell has written the markers of the prepared transaction
    wait MS                                     time passes; timers fire
    append fails                                the records of the next decision cannot be appended
    failover                                    another broker loads the records
    describe tx / list [state]                  what is committed
    epoch tx NUMBER                             the producer epoch is set, to test the end of the range

Producer ids are 1000, 1001 and so on. `transaction.version` is 2 unless the scenario begins with `version 0`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from strandline.coordinator.decision import Decision, Now
from strandline.coordinator.records import TRANSACTION_RECORDS, CoordinatorRecord, decode_record, encode_record
from strandline.coordinator.transaction import describe, ending, partitions, producers
from strandline.coordinator.transaction.ending import RetryCompletion, WriteMarkers
from strandline.coordinator.transaction.machine import TransactionMachine
from strandline.coordinator.transaction.state import State
from strandline.coordinator.transaction.store import NeedsProducerId, TransactionSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.producers import InitProducerIdRequest
from strandline.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from strandline.protocol.messages.transactions import EndTxnRequest, ListTransactionsRequest
from strandline.records.batch import Record

WALL_MS = 1_000_000


class Stage:
    def __init__(self) -> None:
        self.version = 2
        self.now_ms = 0
        self.next_producer_id = 1000
        self.log: list[Record] = []
        self.markers: dict[str, WriteMarkers] = {}
        self.append_fails = False
        self.coordinator_epoch = 0
        self.machine = self._machine()

    def step(self, verb: str) -> Iterator[str]:
        name, *words = verb.split()
        yield from getattr(self, f"_{name}")(*words)

    def _machine(self) -> TransactionMachine:
        return TransactionMachine(
            lambda: TransactionSettings(
                max_timeout_ms=900_000,
                abort_timed_out_interval_ms=10_000,
                transactional_id_expiration_ms=604_800_000,
                remove_expired_interval_ms=3_600_000,
                transaction_version=self.version,
            ),
            self.coordinator_epoch,
        )

    @property
    def _now(self) -> Now:
        return Now(self.now_ms, WALL_MS + self.now_ms)

    def _version(self, version: str) -> Iterator[str]:
        self.version = int(version)
        yield from ()

    def _init(self, transactional_id: str, *words: str) -> Iterator[str]:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        for word in words:
            if word.startswith("timeout="):
                request.transaction_timeout_ms = int(word.removeprefix("timeout="))
            else:
                request.producer_id, request.producer_epoch = map(int, word.split(":"))
        yield from self._decide(
            lambda new: producers.init_producer_id(self.machine.transactions, request, new, self._now)
        )

    def _add(self, transactional_id: str, producer: str, *words: str) -> Iterator[str]:
        producer_id, epoch = map(int, producer.split(":"))
        version = 2 if "v2" in words else 0
        added = [_partition(word) for word in words if word != "v2"]
        yield from self._decide(
            lambda new: partitions.add_partitions(
                self.machine.transactions, transactional_id, producer_id, epoch, added, version, self._now
            )
        )

    def _verify(self, transactional_id: str, producer: str, *words: str) -> Iterator[str]:
        producer_id, epoch = map(int, producer.split(":"))
        try:
            results = partitions.verify_partitions(
                self.machine.transactions,
                transactional_id,
                producer_id,
                epoch,
                [_partition(word) for word in words],
                self.machine.timeline.committed,
            )
        except KafkaError as error:
            yield error.code.name
        else:
            yield ", ".join(f"{each} {code.name}" for each, code in results.items())

    def _end(self, transactional_id: str, producer: str, result: str, *words: str) -> Iterator[str]:
        producer_id, epoch = map(int, producer.split(":"))
        request = EndTxnRequest(transactional_id, producer_id, epoch, result == "commit")
        version = 2 if "v2" in words else 0
        yield from self._decide(
            lambda new: ending.end_transaction(self.machine.transactions, request, version, new, self._now)
        )

    def _markers(self, _: str, transactional_id: str) -> Iterator[str]:
        markers = self.markers.pop(transactional_id)
        yield from self._decide(lambda new: ending.complete(self.machine.transactions, markers, self._now))

    def _wait(self, timeout_ms: str) -> Iterator[str]:
        end_ms = self.now_ms + int(timeout_ms)
        while (deadline_ms := self.machine.timers.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            key = self.machine.timers.pop_expired(self.now_ms)
            yield from self._decide(lambda new, key=key: self.machine.on_timer(key, self._now))  # type: ignore[misc]
        self.now_ms = end_ms

    def _append(self, _: str) -> Iterator[str]:
        self.append_fails = True
        yield from ()

    def _failover(self) -> Iterator[str]:
        self.coordinator_epoch += 1
        self.markers.clear()
        machine = self.machine = self._machine()
        for offset, each in enumerate(self.log):
            machine.timeline.mark(offset)
            decoded = decode_record(TRANSACTION_RECORDS, each.key, each.value)
            assert decoded is not None
            machine.replay(decoded, None)
        machine.timeline.commit(len(self.log))
        yield from self._decide(lambda new: machine.on_loaded(self._now))

    def _describe(self, transactional_id: str) -> Iterator[str]:
        try:
            found = describe.describe_transaction(
                self.machine.transactions, self.machine.timeline.committed, transactional_id
            )
        except KafkaError as error:
            yield error.code.name
        else:
            taking_part = ", ".join(f"{each.topic} {each.partitions}" for each in found.topics)
            yield (
                f"{found.transaction_state} {found.producer_id}:{found.producer_epoch} timeout "
                f"{found.transaction_timeout_ms} start {found.transaction_start_time_ms} [{taking_part}]"
            )

    def _list(self, *states: str) -> Iterator[str]:
        request = ListTransactionsRequest(state_filters=list(states))
        committed = self.machine.timeline.committed
        for each in describe.list_transactions(self.machine.transactions, committed, request, self._now.wall_ms):
            yield f"{each.transactional_id} {each.producer_id} {each.transaction_state}"

    def _epoch(self, transactional_id: str, epoch: str) -> Iterator[str]:
        known = self.machine.transactions.find(transactional_id)
        assert known is not None
        self.machine.timeline.mark(len(self.log))
        changed = msgspec.structs.replace(known, producer_epoch=int(epoch))
        self.machine.transactions.put(changed)
        self._write([self.machine.transactions.record(changed)])
        yield from ()

    def _decide(self, decide: Callable[[int | None], Decision[object]]) -> Iterator[str]:
        machine, offset = self.machine, len(self.log)
        machine.timeline.mark(offset)
        try:
            try:
                decision = decide(None)
            except NeedsProducerId:
                decision = decide(self.next_producer_id)
                self.next_producer_id += 1
        except KafkaError as error:
            yield error.code.name
            return
        if decision.records and self.append_fails:
            self.append_fails = False
            machine.timeline.revert_to(offset)
            yield "the append failed"
            if decision.on_append_failed is not None:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                yield from self._effects(decision.on_append_failed(code, self._now).effects)
            return
        if not decision.is_applied:
            for record in decision.records:
                machine.replay(record, None)
        self._write(decision.records)
        yield from (_told(each) for each in decision.records)
        if decision.error is not None:
            yield decision.error.code.name
        elif decision.response is not None:
            yield _answer(decision.response)
        yield from self._effects(decision.effects)

    def _write(self, records: list[CoordinatorRecord]) -> None:
        self.log += [encode_record(each, self._now.wall_ms) for each in records]
        self.machine.timeline.commit(len(self.log))

    def _effects(self, effects: list[object]) -> Iterator[str]:
        for effect in effects:
            if isinstance(effect, RetryCompletion):
                self.markers[effect.markers.transactional_id] = effect.markers
                yield f"→ complete {effect.markers.transactional_id} later"
                continue
            assert isinstance(effect, WriteMarkers)
            self.markers[effect.transactional_id] = effect
            result = "COMMIT" if effect.commit else "ABORT"
            where = " ".join(map(str, effect.partitions)) or "no partition"
            yield (
                f"→ {result} markers of {effect.producer_id}:{effect.producer_epoch} to {where}, coordinator epoch "
                f"{effect.coordinator_epoch}"
            )


def _partition(word: str) -> TopicPartition:
    topic, _, index = word.rpartition("-")
    return TopicPartition(topic, int(index))


def _told(record: CoordinatorRecord) -> str:
    assert isinstance(record.key, TransactionLogKey)
    value = record.value
    if value is None:
        return f"{record.key.transactional_id}: removed"
    assert isinstance(value, TransactionLogValue)
    parts = [f"{record.key.transactional_id}: {State(value.transaction_status).wire_name}"]
    parts.append(f"{value.producer_id}:{value.producer_epoch}")
    if value.previous_producer_id not in (-1, value.producer_id):
        parts.append(f"previous {value.previous_producer_id}")
    if value.next_producer_id != -1:
        parts.append(f"next {value.next_producer_id}")
    topics = value.transaction_partitions or ()
    parts += [f"{each.topic}{each.partition_ids}" for each in topics]
    if value.client_transaction_version:
        parts.append(f"client version {value.client_transaction_version}")
    return " ".join(parts)


def _answer(response: object) -> str:
    if isinstance(response, ErrorCode):
        return response.name
    producer_id = getattr(response, "producer_id", -1)
    if producer_id == -1:
        return "NONE"
    return f"NONE, producer {producer_id}:{getattr(response, 'producer_epoch', -1)}"
