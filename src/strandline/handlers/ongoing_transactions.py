"""Before transactional records are appended: the transaction must be ongoing, and the partition a part of it (KIP-890).

The first batch of a producer in a partition waits until the transaction coordinator has confirmed that: with Produce up
to 11 and TxnOffsetCommit up to 4 the client has added the partition and the coordinator verifies it; with later
versions the coordinator adds it now. Later batches of the transaction find it open in the partition and do not wait.

A race that the `Verification` decides: 1. the coordinator confirms the transaction. 2. It ends it, and the marker is
appended here. 3. The batch would be appended, and its transaction would never end. The marker removes the verification,
so that step 3 fails.
"""

from __future__ import annotations

import asyncio
from typing import Final

from strandline.coordinator.partitioning import TRANSACTION_TOPIC
from strandline.coordinator.transaction.state import EPOCH_BUMP_VERSION
from strandline.handlers.context import BrokerContext
from strandline.handlers.transactions import add_partitions
from strandline.log.partition_log import PartitionLog
from strandline.log.producers import Verification
from strandline.model.errors import ErrorCode, KafkaError, code_of
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from strandline.records.batch import BatchHeader

# Older clients would not retry these; NOT_ENOUGH_REPLICAS is retried without a metadata refresh.
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def start_verification(log: PartitionLog, header: BatchHeader) -> Verification | None:
    """None when the transaction of this producer epoch is open in the partition: there is nothing to confirm."""
    producers = log.producers
    if producers.has_open_transaction(header.producer_id, header.producer_epoch):
        return None
    return producers.start_verification(header.producer_id, header.producer_epoch, header.base_sequence)


def check_verified(log: PartitionLog, header: BatchHeader, verification: Verification | None) -> None:
    """Right before the append. Raises INVALID_TXN_STATE if the transaction has ended since it was confirmed."""
    producers = log.producers
    if producers.has_open_transaction(header.producer_id, header.producer_epoch):
        return
    if verification is None or producers.verification(header.producer_id) is not verification:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the records are not part of an ongoing transaction")
    if header.base_sequence > verification.lowest_sequence:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {verification.lowest_sequence} earlier, which comes first",
        )


async def confirm(
    broker: BrokerContext,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: list[TopicPartition],
    *,
    verify_only: bool,
) -> dict[TopicPartition, ErrorCode]:
    """Has the transaction coordinator add or verify the partitions; its error codes. A transaction whose predecessor is
    still being ended is tried again for a short time, since clients of version 2 begin the next one at once."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    request = AddPartitionsToTxnTransaction(
        transactional_id,
        producer_id,
        producer_epoch,
        verify_only,
        [AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in by_topic.items()],
    )
    clock, get = broker.world.clock, broker.config.get
    deadline_ms = clock.now_ms() + get("add.partitions.to.txn.retry.backoff.max.ms")
    while True:
        codes = await _ask(broker, request)
        is_concurrent = ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
        if verify_only or not is_concurrent or clock.now_ms() >= deadline_ms:
            return {each: codes.get(each, ErrorCode.UNKNOWN_SERVER_ERROR) for each in partitions}
        await asyncio.sleep(get("add.partitions.to.txn.retry.backoff.ms") / 1000)


async def _ask(broker: BrokerContext, request: AddPartitionsToTxnTransaction) -> dict[TopicPartition, ErrorCode]:
    wanted = [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partitions]
    try:
        index = broker.transactions.partition_for(request.transactional_id)
        topic = broker.view.topic(TRANSACTION_TOPIC)
        info = None if topic is None else broker.view.partition(topic.id, index)
        if info is None or info.leader < 0:
            return dict.fromkeys(wanted, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if info.leader == broker.node_id:
            return await add_partitions(broker, request, EPOCH_BUMP_VERSION)
        response = await broker.call_broker(info.leader, AddPartitionsToTxnRequest([request]))
    except KafkaError as error:
        is_coordinators = error.code in _RETRIABLE
        return dict.fromkeys(wanted, error.code if is_coordinators else ErrorCode.NETWORK_EXCEPTION)
    except OSError:
        return dict.fromkeys(wanted, ErrorCode.NETWORK_EXCEPTION)
    assert isinstance(response, AddPartitionsToTxnResponse)
    if response.error_code != ErrorCode.NONE:
        return dict.fromkeys(wanted, code_of(response.error_code))
    return {
        TopicPartition(topic.name, each.partition_index): code_of(each.partition_error_code)
        for result in response.results_by_transaction
        if result.transactional_id == request.transactional_id
        for topic in result.topic_results
        for each in topic.results_by_partition
    }


class NotConfirmed(KafkaError):
    """The coordinator did not confirm the transaction, so the partition was not touched."""


def error_for_producer(code: ErrorCode, *, knows_abortable: bool) -> NotConfirmed:
    """What the client of a Produce request is answered for an error of the coordinator. `knows_abortable`: the version
    has TRANSACTION_ABORTABLE."""
    if code in _RETRIABLE:
        return NotConfirmed(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction coordinator cannot confirm the transaction: {code.name}"
        )
    if code is ErrorCode.PRODUCER_FENCED:
        return NotConfirmed(ErrorCode.INVALID_PRODUCER_EPOCH, "the transactional id has a newer producer")
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        code = ErrorCode.INVALID_TXN_STATE
    return NotConfirmed(code, "the partition is not part of an ongoing transaction")
