"""Produces records: the shell around `core/accumulator`. One sender task sends ready batches to their leaders.

    async with Producer(router) as producer:
        delivery = await producer.send("orders", b"value", key=b"key")   # waits only for metadata and buffer space
        print(await delivery)                                           # Delivered(topic, partition, offset, …)

Leaving the `async with` flushes; an exception inside it drops the records that are not delivered yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

import msgspec

from strandline.client.connection import Connection
from strandline.client.core.accumulator import Accumulator, Batch, ProducerId, record_size
from strandline.client.core.cluster_metadata import BrokerMetadata, TopicMetadata
from strandline.client.core.partitioner import Partitioner
from strandline.client.errors import ConnectionLost, RecordsRejected, RecordTooLarge, RequestTimedOut, error_of
from strandline.client.routing import WRONG_LEADER, Router
from strandline.client.settings import ProducerSettings
from strandline.model.errors import ErrorCode, KafkaError, code_of
from strandline.model.ids import ZERO_UUID, Endpoint, TopicPartition
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from strandline.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from strandline.records.batch import Record
from strandline.runtime.tasks import TaskGroup

BY_TOPIC_ID = 13
"""The first version of Produce that identifies topics by id."""


class Delivered(msgspec.Struct, frozen=True):
    """Offset -1: unknown (acks=0, or a duplicate whose offset the broker no longer has)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


Delivery = asyncio.Future[Delivered]


class Producer:
    def __init__(self, router: Router, settings: ProducerSettings | None = None) -> None:
        self._router = router
        self._settings = settings or ProducerSettings()
        self._accumulator = Accumulator(self._settings)
        self._partitioner = Partitioner(router.world.random, self._settings.batch_bytes)
        self._tasks = TaskGroup()
        self._wake = asyncio.Event()
        self._progress: asyncio.Future[None] | None = None
        self._fatal_error: KafkaError | None = None
        self._sleeps_until_ms: int | None = None
        self._newest_produce_version = ProduceRequest.versions[1]
        self.last_error: KafkaError | None = None
        """Why the last batch has to be retried; None after a delivery."""

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.start(self._run(), name="producer")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            self._tasks.cancel()
            dropped = ConnectionLost("the producer was closed before the record was delivered")
            for batch in self._accumulator.drop_all():
                self._fail(batch, dropped)
            await self._tasks.__aexit__(None, None, None)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Buffers the record. The returned future has its partition and offset, or the error."""
        if self._fatal_error is not None:
            raise self._fatal_error
        # Stale metadata is sufficient here: the sender refreshes it before it looks up leaders.
        known = self._router.metadata.topics.get(topic)
        if known is None or known.error:
            known = await self._router.topic(topic, create=True, timeout_ms=self._settings.max_block_ms)
        timestamp = self._router.world.clock.wall_ms() if timestamp_ms is None else timestamp_ms
        record = Record(-1, timestamp, key, value, headers)
        size_bytes = record_size(record)
        if size_bytes > self._settings.max_record_bytes:
            raise RecordTooLarge(size_bytes, self._settings.max_record_bytes)
        if not self._has_space_for(size_bytes):
            await self._wait_for_space(size_bytes)
        if partition is None:
            partition = self._choose(known, key, size_bytes)
        elif partition not in known.partitions:
            await self._refresh_until_known(topic, partition)
        delivery: Delivery = asyncio.get_running_loop().create_future()
        now_ms = self._router.now_ms()
        ready = self._accumulator.append(TopicPartition(topic, partition), record, delivery, now_ms, size_bytes)
        if ready or self._sleeps_too_long(now_ms):
            self._wake.set()
        return delivery

    async def flush(self) -> None:
        """Returns when every record sent so far was delivered or has failed."""
        self._accumulator.begin_flush()
        self._wake.set()
        try:
            while not self._accumulator.is_empty:
                await self._wait_for_progress()
        finally:
            self._accumulator.end_flush()

    def _choose(self, topic: TopicMetadata, key: bytes | None, size_bytes: int) -> int:
        available = [] if key is not None else [each.index for each in topic.partitions.values() if each.leader >= 0]
        return self._partitioner.partition(topic.name, key, size_bytes, len(topic.partitions), available)

    async def _refresh_until_known(self, topic: str, partition: int) -> None:
        """The topic may have more partitions since the last refresh."""
        self._router.metadata.on_wrong_leader(topic)
        known = await self._router.topic(topic, timeout_ms=self._settings.max_block_ms)
        if partition not in known.partitions:
            why = f"topic {topic!r} has partitions 0 to {len(known.partitions) - 1}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)

    def _has_space_for(self, size_bytes: int) -> bool:
        """A record larger than the whole buffer is sent while the buffer is empty."""
        buffered_bytes = self._accumulator.buffered_bytes
        return buffered_bytes == 0 or buffered_bytes + size_bytes <= self._settings.buffer_bytes

    async def _wait_for_space(self, size_bytes: int) -> None:
        deadline_ms = self._router.deadline_ms(self._settings.max_block_ms)
        while not self._has_space_for(size_bytes):
            if self._router.now_ms() >= deadline_ms:
                raise RequestTimedOut(
                    f"no buffer space for the record within {self._settings.max_block_ms} ms: nothing is delivered"
                )
            self._wake.set()
            await self._wait_for_progress(deadline_ms)

    def _sleeps_too_long(self, now_ms: int) -> bool:
        """Whether the sender sleeps beyond the time at which this record becomes ready."""
        return self._sleeps_until_ms is None or now_ms + self._settings.linger_ms < self._sleeps_until_ms

    async def _run(self) -> None:
        while True:
            now_ms = self._router.now_ms()
            for batch in self._accumulator.expire(now_ms):
                why = f"not delivered to {batch.partition} within {self._settings.delivery_timeout_ms} ms"
                self._on_undelivered(batch, RequestTimedOut(why))
            pause_ms = await self._send_ready(now_ms)
            await self._sleep(pause_ms)

    async def _send_ready(self, now_ms: int) -> int | None:
        """Sends the ready batches; returns the longest sleep before the next try, None if there is nothing to retry."""
        ready = self._accumulator.ready(now_ms)
        if not ready:
            return None
        try:
            if self._accumulator.needs_producer_id():
                await self._new_producer_id()
            leaders = await self._router.leaders(ready)
            if not await self._before_sending(leaders):
                return self._router.settings.retry_backoff_ms
        except KafkaError as error:
            if not error.code.retriable:
                self._fail_all(error)
            return self._router.settings.retry_backoff_ms
        by_leader: dict[int, list[Batch]] = {}
        for partition in ready:
            if partition in leaders and (batch := self._accumulator.take(partition, self._router.now_ms())) is not None:
                by_leader.setdefault(leaders[partition], []).append(batch)
        for leader, batches in by_leader.items():
            for request in self._requests(batches):
                self._tasks.start(self._produce(leader, request), name=f"produce to {leader}")
        return None if len(leaders) == len(ready) else self._router.settings.retry_backoff_ms

    async def _before_sending(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether batches of these partitions may be sent now; a transactional producer adds them first."""
        return True

    async def _sleep(self, pause_ms: int | None) -> None:
        now_ms = self._router.now_ms()
        next_ms = self._accumulator.next_ready_ms(now_ms)
        if pause_ms is not None:
            next_ms = now_ms + pause_ms
        elif next_ms is not None and next_ms <= now_ms:
            return
        timer = None
        if next_ms is not None:
            timer = asyncio.get_running_loop().call_later((next_ms - now_ms) / 1000, self._wake.set)
        self._sleeps_until_ms = next_ms
        try:
            await self._wake.wait()
        finally:
            self._wake.clear()
            if timer is not None:
                timer.cancel()

    def _requests(self, batches: list[Batch]) -> list[list[Batch]]:
        """Groups batches into as few requests as the size limit allows, each with at most one batch per partition."""
        requests: list[list[Batch]] = []
        space_bytes = 0
        for batch in batches:
            size_bytes = len(batch.encoded or b"")
            if not requests or size_bytes > space_bytes:
                requests.append([])
                space_bytes = self._settings.max_request_bytes
            requests[-1].append(batch)
            space_bytes -= size_bytes
        return requests

    async def _produce(self, leader: int, batches: list[Batch]) -> None:
        try:
            connection = await self._router.broker(leader)
            response = await self._send(connection, batches)
        except KafkaError as error:
            for batch in batches:
                self._router.metadata.on_wrong_leader(batch.partition.topic)
                self._failed(batch, error.code, error)
        else:
            self._on_response(batches, response)
        finally:
            self._wake.set()
            self._made_progress()

    async def _send(self, connection: Connection, batches: list[Batch]) -> ProduceResponse | None:
        metadata = self._router.metadata
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name = batch.partition.topic
            topic = topics.setdefault(name, TopicProduceData(name=name, topic_id=metadata.id_of(name)))
            topic.partition_data.append(PartitionProduceData(index=batch.partition.partition, records=batch.encoded))
        by_id = all(topic.topic_id != ZERO_UUID for topic in topics.values())
        newest = min(self._newest_produce_version, ProduceRequest.versions[1] if by_id else BY_TOPIC_ID - 1)
        version = connection.versions.newest_common_version(ProduceRequest, newest)
        request = ProduceRequest(
            transactional_id=self._settings.transactional_id,
            acks=self._settings.acks,
            timeout_ms=self._router.settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        if self._settings.acks == 0:
            await connection.send_without_response(request, version)
            return None
        return await connection.call(request, ProduceResponse, version=version)

    def _on_response(self, batches: list[Batch], response: ProduceResponse | None) -> None:
        if response is None:
            for batch in batches:
                self._succeed(batch, -1, -1)
            return
        results: dict[TopicPartition, PartitionProduceResponse] = {}
        for topic in response.responses:
            name = topic.name or self._router.metadata.names.get(topic.topic_id, "")
            for result in topic.partition_responses:
                results[TopicPartition(name, result.index)] = result
        for endpoint in response.node_endpoints:
            known = BrokerMetadata(endpoint.node_id, Endpoint(endpoint.host, endpoint.port), endpoint.rack)
            self._router.metadata.brokers[endpoint.node_id] = known
        for batch in batches:
            found = results.get(batch.partition)
            if found is None:
                self._failed(batch, ErrorCode.UNKNOWN_TOPIC_ID, error_of(ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                self._settle(batch, found)

    def _settle(self, batch: Batch, result: PartitionProduceResponse) -> None:
        code = code_of(result.error_code)
        if code == ErrorCode.NONE:
            self._succeed(batch, result.base_offset, result.log_append_time_ms)
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._succeed(batch, -1, -1)
        else:
            leader = result.current_leader
            hinted = self._router.metadata.on_leader_hint(batch.partition, leader.leader_id, leader.leader_epoch, None)
            if code in WRONG_LEADER and not hinted:
                self._router.metadata.on_wrong_leader(batch.partition.topic)
            errors = {each.batch_index: each.batch_index_error_message or "" for each in result.record_errors}
            self._failed(batch, code, RecordsRejected(code, result.error_message or f"for {batch.partition}", errors))

    def _succeed(self, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        self._accumulator.on_appended(batch)
        self.last_error = None
        topic, partition = batch.partition
        for index, (delivery, record) in enumerate(zip(batch.tokens, batch.records, strict=True)):
            assert isinstance(delivery, asyncio.Future)
            if not delivery.done():
                offset = base_offset + index if base_offset >= 0 else -1
                timestamp_ms = append_time_ms if append_time_ms >= 0 else record.timestamp
                delivery.set_result(Delivered(topic, partition, offset, timestamp_ms))

    def _failed(self, batch: Batch, code: ErrorCode, error: KafkaError) -> None:
        backoff_ms = self._router.settings.retry_backoff_ms
        if self._accumulator.on_failed(batch, code, self._router.now_ms(), backoff_ms):
            self.last_error = error
        else:
            self._on_undelivered(batch, error)

    def _on_undelivered(self, batch: Batch, error: KafkaError) -> None:
        self._fail(batch, error)

    def _fail(self, batch: Batch, error: KafkaError) -> None:
        for delivery in batch.tokens:
            assert isinstance(delivery, asyncio.Future)
            if not delivery.done():
                delivery.set_exception(error)
                delivery.exception()  # marks it as retrieved: the caller need not await it
        self._made_progress()

    async def _new_producer_id(self) -> None:
        response = await self._router.call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
            InitProducerIdResponse,
            timeout_ms=self._router.settings.request_timeout_ms,
        )
        if response.error_code:
            raise error_of(response.error_code, "the broker did not assign a producer id")
        self._accumulator.producer = ProducerId(response.producer_id, response.producer_epoch)

    def _fail_all(self, error: KafkaError) -> None:
        """Fails all records for good, for example if brokers do not assign producer ids."""
        self._fatal_error = error
        for batch in self._accumulator.drop_all():
            self._fail(batch, error)

    async def _wait_for_progress(self, deadline_ms: int | None = None) -> None:
        loop = asyncio.get_running_loop()
        if self._progress is None or self._progress.done():
            self._progress = loop.create_future()
        timer = None
        if deadline_ms is not None:
            timer = loop.call_later(max(0, deadline_ms - self._router.now_ms()) / 1000, self._made_progress)
        try:
            await asyncio.shield(self._progress)
        finally:
            if timer is not None:
                timer.cancel()

    def _made_progress(self) -> None:
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)
