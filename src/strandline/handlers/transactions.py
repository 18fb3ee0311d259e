"""The transaction coordinator's APIs: AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), DescribeTransactions
(65), ListTransactions (66), and InitProducerId (22) with a transactional id.

Versions of AddPartitionsToTxn: 0-3 from clients, 4-5 from partition leaders, for several transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from strandline.coordinator.partitioning import GROUP_TOPIC
from strandline.coordinator.transaction import describe, ending, partitions, producers
from strandline.coordinator.transaction.state import EPOCH_BUMP_VERSION
from strandline.coordinator.transaction.store import NeedsProducerId
from strandline.handlers.context import BrokerContext, Call
from strandline.handlers.internal_topics import ensure_internal_topic
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from strandline.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from strandline.runtime.tasks import YieldCounter, yield_to_loop

R = TypeVar("R")

_FIRST_VERSION_OF_BROKERS: Final = 4
_FIRST_VERSION_WITH_PRODUCER_FENCED: Final = 2
_FIRST_INIT_VERSION_WITH_PRODUCER_FENCED: Final = 4
_FIRST_END_VERSION_WITH_EPOCH_BUMP: Final = 5


async def init_transactional_producer(
    broker: BrokerContext, call: Call, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    call.park()
    if request.enable2_pc or request.keep_prepared_txn:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "two-phase commit (KIP-939) is not enabled on this broker"
        )
    assert request.transactional_id is not None
    shard = broker.transactions.for_key(request.transactional_id)

    def decide(producer_id: int | None) -> Awaitable[InitProducerIdResponse]:
        return shard.write(
            lambda machine, token, now: producers.init_producer_id(machine.transactions, request, producer_id, now)
        )

    try:
        return await _with_producer_id(broker, decide)
    except KafkaError as error:
        raise _in_words_of(error, call.version, _FIRST_INIT_VERSION_WITH_PRODUCER_FENCED) from error


async def _with_producer_id(broker: BrokerContext, decide: Callable[[int | None], Awaitable[R]]) -> R:
    try:
        return await decide(None)
    except NeedsProducerId:
        return await decide(await broker.producer_ids.next())


def _in_words_of(error: KafkaError, version: int, since: int) -> KafkaError:
    """Older versions know INVALID_PRODUCER_EPOCH only."""
    if error.code is ErrorCode.PRODUCER_FENCED and version < since:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.why)
    return error


async def handle_add_partitions_to_txn(
    broker: BrokerContext, call: Call, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    call.park()
    if call.version >= _FIRST_VERSION_OF_BROKERS:
        results = await asyncio.gather(
            *(add_partitions(broker, each, EPOCH_BUMP_VERSION) for each in request.transactions)
        )
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(each.transactional_id, _by_topic(each.topics, codes))
                for each, codes in zip(request.transactions, results, strict=True)
            ]
        )
    transaction = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    codes = await add_partitions(broker, transaction, 0)
    if call.version < _FIRST_VERSION_WITH_PRODUCER_FENCED:
        codes = {
            each: ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
            for each, code in codes.items()
        }
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(transaction.topics, codes))


async def add_partitions(
    broker: BrokerContext, request: AddPartitionsToTxnTransaction, client_version: int
) -> dict[TopicPartition, ErrorCode]:
    """Adds or verifies the partitions of one transaction that this broker coordinates; also called by the partition
    leaders of this broker. All partitions are added, or none."""
    wanted = [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partitions]
    unknown = [each for each in wanted if not _exists(broker, each)]
    if unknown:
        codes = dict.fromkeys(wanted, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return codes | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    producer = (request.transactional_id, request.producer_id, request.producer_epoch)
    try:
        shard = broker.transactions.for_key(request.transactional_id)
        if request.verify_only:
            return shard.read(
                lambda machine, at: partitions.verify_partitions(machine.transactions, *producer, wanted, at)
            )
        code = await shard.write(
            lambda machine, token, now: partitions.add_partitions(
                machine.transactions, *producer, wanted, client_version, now
            )
        )
    except KafkaError as error:
        code = error.code
    return dict.fromkeys(wanted, code)


def _exists(broker: BrokerContext, partition: TopicPartition) -> bool:
    topic = broker.view.topic(partition.topic)
    return topic is not None and 0 <= partition.partition < topic.partition_count


def _by_topic(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(index, codes[TopicPartition(topic.name, index)])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def add_partitions_to_txn_error(
    request: AddPartitionsToTxnRequest, version: int, code: ErrorCode, why: str
) -> AddPartitionsToTxnResponse:
    if version >= _FIRST_VERSION_OF_BROKERS:
        return AddPartitionsToTxnResponse(error_code=code)
    topics = request.v3_and_below_topics
    codes = {TopicPartition(topic.name, index): code for topic in topics for index in topic.partitions}
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(topics, codes))


async def handle_add_offsets_to_txn(
    broker: BrokerContext, call: Call, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    call.park()
    await ensure_internal_topic(broker, call, GROUP_TOPIC)
    partition = TopicPartition(GROUP_TOPIC, broker.groups.partition_for(request.group_id))
    try:
        await broker.transactions.for_key(request.transactional_id).write(
            lambda machine, token, now: partitions.add_partitions(
                machine.transactions,
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                [partition],
                0,
                now,
            )
        )
    except KafkaError as error:
        raise _in_words_of(error, call.version, _FIRST_VERSION_WITH_PRODUCER_FENCED) from error
    return AddOffsetsToTxnResponse()


async def handle_end_txn(broker: BrokerContext, call: Call, request: EndTxnRequest) -> EndTxnResponse:
    call.park()
    shard = broker.transactions.for_key(request.transactional_id)
    client_version = EPOCH_BUMP_VERSION if call.version >= _FIRST_END_VERSION_WITH_EPOCH_BUMP else 0

    def decide(producer_id: int | None) -> Awaitable[EndTxnResponse]:
        return shard.write(
            lambda machine, token, now: ending.end_transaction(
                machine.transactions, request, client_version, producer_id, now
            )
        )

    try:
        return await _with_producer_id(broker, decide)
    except KafkaError as error:
        raise _in_words_of(error, call.version, _FIRST_VERSION_WITH_PRODUCER_FENCED) from error


async def handle_describe_transactions(
    broker: BrokerContext, call: Call, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    described: dict[str, DescribeTransactionsResponseTransactionState] = {}
    yields = YieldCounter(call)
    for transactional_id in request.transactional_ids:
        if yields.due():
            await yield_to_loop()
        described[transactional_id] = _described(broker, transactional_id)
    return DescribeTransactionsResponse(transaction_states=list(described.values()))


def _described(broker: BrokerContext, transactional_id: str) -> DescribeTransactionsResponseTransactionState:
    try:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        return broker.transactions.for_key(transactional_id).read(
            lambda machine, at: describe.describe_transaction(machine.transactions, at, transactional_id)
        )
    except KafkaError as error:
        return DescribeTransactionsResponseTransactionState(error_code=error.code, transactional_id=transactional_id)


async def handle_list_transactions(
    broker: BrokerContext, call: Call, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    if broker.transactions.is_loading:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "a partition of the transaction topic is being loaded")
    response = ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in describe.STATES_BY_NAME]
    )
    yields = YieldCounter(call)
    wall_ms = broker.world.clock.wall_ms()
    for shard in broker.transactions.active():
        found = shard.read(
            lambda machine, at: list(describe.list_transactions(machine.transactions, at, request, wall_ms))
        )
        response.transaction_states += found
        if yields.due(1 + len(found)):
            await yield_to_loop()
    return response
