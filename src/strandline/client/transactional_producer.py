"""Produces records and commits offsets in transactions: the shell around `core/transaction`, over `producer`.

    async with client.transactional_producer("copier-1") as producer:
        async with producer.transaction():                     # commits; an exception inside aborts
            await producer.send("copies", b"value")
            await producer.send_offsets({partition: CommittedOffset(7)}, "copier", consumer.membership)

A record that cannot be delivered fails the whole transaction: `commit` raises its error, and `abort` makes the producer
usable again. A second producer with the same transactional id fences the first.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, TypeVar

from strandline.client.admin.committed_offsets import CommittedOffset, Committer
from strandline.client.coordinators import Coordinators, KeyType
from strandline.client.core.accumulator import Batch, ProducerId
from strandline.client.core.transaction import State, Transaction
from strandline.client.errors import error_of
from strandline.client.producer import Delivery, Producer
from strandline.client.routing import Router
from strandline.client.settings import ProducerSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.producers import InitProducerIdResponse
from strandline.protocol.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    TxnOffsetCommitResponse,
)
from strandline.protocol.types import Message

logger = logging.getLogger(__name__)
R = TypeVar("R", bound=Message)
T = TypeVar("T")

FEATURE = "transaction.version"
VERSION_2 = 2
_NEWEST_PRODUCE_V1 = 11
_NEWEST_END_V1 = 4
_NEWEST_OFFSETS_V1 = 4
_NEWEST_ADD_PARTITIONS = 3
"""Of clients; later versions are between brokers."""


class TransactionalProducer(Producer):
    def __init__(self, router: Router, coordinators: Coordinators, settings: ProducerSettings) -> None:
        if settings.transactional_id is None:
            raise ValueError("a transactional producer needs a transactional id")
        super().__init__(router, settings)
        self._coordinators = coordinators
        self._id = settings.transactional_id
        self._transaction = Transaction(settings.transactional_id, settings.transaction_timeout_ms)
        self._is_adding = False
        """AddPartitionsToTxn is in flight."""

    async def __aenter__(self) -> Self:
        await self._initialize()
        return await super().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._transaction.can_abort:
                await self.abort()
        except KafkaError as failed:
            logger.warning("transactional id %s: could not abort: %s", self._id, failed)
        finally:
            await super().__aexit__(kind, error, trace)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begins; commits at the end of the block, or aborts after an exception in it."""
        self.begin()
        try:
            yield
            await self.commit()
        except BaseException:
            if self._transaction.can_abort:
                await self.abort()
            raise

    def begin(self) -> None:
        self._transaction.begin()

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
        self._transaction.check_usable()
        return await super().send(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset], group_id: str, member: Committer | None = None
    ) -> None:
        """Commits offsets of a group with this transaction. With `member`, of a member of that group, the group
        coordinator rejects them after a rebalance (KIP-447)."""
        transaction = self._transaction
        transaction.check_usable()
        committer = member or Committer()
        add = transaction.add_group_request(group_id)
        if add is not None:
            await self._call(add, AddOffsetsToTxnResponse)
            transaction.on_group_added(group_id)
        request = transaction.offsets_request(
            group_id,
            {each: (found.offset, found.leader_epoch, found.metadata) for each, found in offsets.items()},
            (committer.member_id, committer.generation, committer.instance_id),
        )

        async def attempt() -> None:
            response = await self._coordinators.call(
                KeyType.GROUP,
                group_id,
                request,
                TxnOffsetCommitResponse,
                newest=None if transaction.is_v2 else _NEWEST_OFFSETS_V1,
                errors=lambda response: [each.error_code for topic in response.topics for each in topic.partitions],
            )
            for topic in response.topics:
                for each in topic.partitions:
                    if each.error_code:
                        raise error_of(each.error_code, f"offsets of group {group_id!r} in {self._id!r}")

        await self._noting_errors(self._router.retrying(attempt, self._router.deadline_ms()))

    async def commit(self) -> None:
        """Returns when the commit is decided. Raises the error of a record that was not delivered; then abort."""
        self._accumulator.begin_flush()
        self._wake.set()
        try:
            while not self._accumulator.is_empty and self._transaction.error is None:
                await self._wait_for_progress()
        finally:
            self._accumulator.end_flush()
        self._transaction.start_end(commit=True)
        await self._end()

    async def abort(self) -> None:
        """Drops records that are not sent yet; those that were sent become invisible to `read_committed` readers."""
        self._transaction.start_end(commit=False)
        dropped = KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the transaction was aborted")
        while True:
            self._drop_waiting(dropped)
            if self._accumulator.is_empty and not self._is_adding:
                break
            # Records in flight must not reach a leader after the marker that ends this transaction.
            await self._wait_for_progress()
        await self._end()
        if not self._transaction.is_v2 and self._accumulator.has_sequence_gaps:
            await self._initialize()

    async def _end(self) -> None:
        transaction = self._transaction
        following: ProducerId | None = None
        request = transaction.end_request()
        if request is not None:
            newest = None if transaction.is_v2 else _NEWEST_END_V1
            response = await self._call(request, EndTxnResponse, newest=newest)
            if response.producer_id >= 0:
                following = ProducerId(response.producer_id, response.producer_epoch)
        transaction.on_ended(following)
        self._accumulator.producer = transaction.producer

    async def _initialize(self) -> None:
        response = await self._call(self._transaction.init_request(), InitProducerIdResponse)
        connection = await self._coordinators.connection(KeyType.TRANSACTION, self._id)
        finalized = connection.versions.finalized_features.get(FEATURE, 0)
        producer = ProducerId(response.producer_id, response.producer_epoch)
        self._transaction.on_initialized(producer, is_v2=finalized >= VERSION_2)
        self._accumulator.producer = producer
        if not self._transaction.is_v2:
            self._newest_produce_version = _NEWEST_PRODUCE_V1

    async def _before_sending(self, partitions: Iterable[TopicPartition]) -> bool:
        transaction = self._transaction
        if transaction.error is not None:
            return False
        new = transaction.partitions_to_add(partitions)
        if new:
            self._is_adding = True
            try:
                await self._call(
                    transaction.add_partitions_request(new), AddPartitionsToTxnResponse, newest=_NEWEST_ADD_PARTITIONS
                )
            except KafkaError as error:
                self._drop_waiting(error)
                return False
            finally:
                self._is_adding = False
                self._made_progress()
            transaction.on_partitions_added(new)
        transaction.on_produce()
        return True

    def _on_undelivered(self, batch: Batch, error: KafkaError) -> None:
        """One record that is not delivered fails the whole transaction."""
        if self._transaction.state is not State.ABORTING:
            self._transaction.on_error(error)
        self._fail(batch, error)
        self._drop_waiting(error)

    def _failed(self, batch: Batch, code: ErrorCode, error: KafkaError) -> None:
        super()._failed(batch, code, error)
        if self._transaction.error is not None:
            self._drop_waiting(self._transaction.error)

    def _drop_waiting(self, error: KafkaError) -> None:
        for batch in self._accumulator.drop_waiting():
            self._fail(batch, error)

    async def _call(self, request: Message, response_type: type[R], newest: int | None = None) -> R:
        """The response of the transaction coordinator; also retried while the previous transaction still ends."""

        async def attempt() -> R:
            response = await self._coordinators.call(
                KeyType.TRANSACTION, self._id, request, response_type, newest=newest, errors=_codes
            )
            for number in _codes(response):
                if number:
                    raise error_of(number, f"transactional id {self._id!r}")
            return response

        return await self._noting_errors(self._router.retrying(attempt, self._router.deadline_ms()))

    async def _noting_errors(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except KafkaError as error:
            self._transaction.on_error(error)
            raise


def _codes(response: Message) -> list[int]:
    if isinstance(response, AddPartitionsToTxnResponse):
        return [
            each.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for each in topic.results_by_partition
            if each.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED
        ]
    code: int = getattr(response, "error_code", 0)
    return [code]
