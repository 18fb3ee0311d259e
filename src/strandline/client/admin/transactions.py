"""Transactions: list and describe them, find hanging ones on partitions, and abort those (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from strandline.client.connection import Connection
from strandline.client.coordinators import Coordinators, KeyType
from strandline.client.core.hanging_transactions import OpenTransaction, TransactionDescription
from strandline.client.errors import error_of
from strandline.client.routing import Router
from strandline.model.errors import KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from strandline.protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class TransactionListing(msgspec.Struct, frozen=True):
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class TransactionAdmin:
    def __init__(self, router: Router, coordinators: Coordinators) -> None:
        self._router = router
        self._coordinators = coordinators

    async def list(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int = -1,
    ) -> Sequence[TransactionListing]:
        """The transactional ids of every broker, by id; filters that are empty or -1 match all."""
        await self._router.retrying(lambda: self._router.refresh([]), self._router.deadline_ms())
        request = ListTransactionsRequest(sorted(states), sorted(producer_ids), min_duration_ms)
        found: Sequence[TransactionListing] = ()
        for broker_id in sorted(self._router.metadata.brokers):
            found = [*found, *await self._list_of(broker_id, request)]
        return sorted(found, key=lambda each: each.transactional_id)

    async def _list_of(self, broker_id: int, request: ListTransactionsRequest) -> Sequence[TransactionListing]:
        async def attempt() -> ListTransactionsResponse:
            response = await (await self._router.broker(broker_id)).call(request, ListTransactionsResponse)
            if response.error_code:
                raise error_of(response.error_code, f"listing the transactions of broker {broker_id}")
            return response

        response = await self._router.retrying(attempt, self._router.deadline_ms())
        return [
            TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, broker_id)
            for each in response.transaction_states
        ]

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """Raises KafkaError(TRANSACTIONAL_ID_NOT_FOUND) if the coordinator does not know the id."""
        response = await self._coordinators.call(
            KeyType.TRANSACTION,
            transactional_id,
            DescribeTransactionsRequest([transactional_id]),
            DescribeTransactionsResponse,
            errors=lambda response: [each.error_code for each in response.transaction_states],
        )
        found = response.transaction_states[0]
        if found.error_code:
            raise error_of(found.error_code, f"transactional id {transactional_id!r}")
        return TransactionDescription(
            transactional_id,
            found.transaction_state,
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms,
            tuple(TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions),
            await self._coordinators.find(KeyType.TRANSACTION, transactional_id),
        )

    async def open_on(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Sequence[OpenTransaction] | KafkaError]:
        """The transactions that are open on these partitions, as their leaders know them."""

        async def attempt(
            connection: Connection, led: Sequence[TopicPartition]
        ) -> dict[TopicPartition, Sequence[OpenTransaction] | KafkaError]:
            topics: dict[str, TopicRequest] = {}
            for each in led:
                topics.setdefault(each.topic, TopicRequest(each.topic)).partition_indexes.append(each.partition)
            request = DescribeProducersRequest(topics=[*topics.values()])
            return _open_transactions(await connection.call(request, DescribeProducersResponse))

        return await self._router.per_leader(partitions, attempt)

    async def abort(self, transaction: OpenTransaction) -> None:
        """Writes the abort marker of a hanging transaction at the partition leader. The transaction coordinator is not
        involved, so this must not be used for a transaction that it knows as ongoing."""
        partition = transaction.partition
        marker = WritableTxnMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            False,
            [WritableTxnMarkerTopic(partition.topic, [partition.partition])],
            max(0, transaction.coordinator_epoch),
        )

        async def attempt(
            connection: Connection, led: Sequence[TopicPartition]
        ) -> dict[TopicPartition, KafkaError | None]:
            response = await connection.call(WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse)
            for result in response.markers:
                for topic in result.topics:
                    for each in topic.partitions:
                        if each.error_code:
                            return {partition: error_of(each.error_code, f"aborting on {partition}")}
            return {partition: None}

        result = (await self._router.per_leader([partition], attempt))[partition]
        if isinstance(result, KafkaError):
            raise result


def _open_transactions(
    response: DescribeProducersResponse,
) -> dict[TopicPartition, Sequence[OpenTransaction] | KafkaError]:
    found: dict[TopicPartition, Sequence[OpenTransaction] | KafkaError] = {}
    for topic in response.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                found[partition] = error_of(each.error_code, each.error_message or f"producers of {partition}")
                continue
            found[partition] = [
                OpenTransaction(
                    partition,
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.coordinator_epoch,
                    producer.current_txn_start_offset,
                    producer.last_timestamp,
                )
                for producer in each.active_producers
                if producer.current_txn_start_offset >= 0
            ]
    return found
