"""InitProducerId (22), and DescribeProducers (61), which every replica of a partition answers."""

from __future__ import annotations

from strandline.handlers.context import BrokerContext, Call
from strandline.handlers.transactions import init_transactional_producer
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import ZERO_UUID
from strandline.model.topic_names import check_topic_name
from strandline.protocol.messages.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from strandline.runtime.tasks import YieldCounter, yield_to_loop


async def handle_init_producer_id(
    broker: BrokerContext, call: Call, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id and its epoch are given together or not at all")
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id may not be empty")
    if request.transactional_id is not None:
        return await init_transactional_producer(broker, call, request)
    call.park()
    return InitProducerIdResponse(producer_id=await broker.producer_ids.next(), producer_epoch=0)


async def handle_describe_producers(
    broker: BrokerContext, call: Call, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """A partition that the request names twice is described once."""
    topics: dict[str, dict[int, PartitionResponse]] = {}
    yields = YieldCounter(call)
    for topic in request.topics:
        described = topics.setdefault(topic.name, {})
        for index in topic.partition_indexes:
            if index not in described:
                described[index] = response = await _active_producers(broker, topic.name, index)
                if yields.due(1 + len(response.active_producers)):
                    await yield_to_loop()
    return DescribeProducersResponse(
        topics=[TopicResponse(name=name, partitions=list(described.values())) for name, described in topics.items()]
    )


async def _active_producers(broker: BrokerContext, topic: str, index: int) -> PartitionResponse:
    response = PartitionResponse(partition_index=index)
    try:
        check_topic_name(topic)
        # Of any replica on this broker: hanging transactions are looked for on followers too.
        log = await broker.partitions.find(topic, ZERO_UUID, index).ready()
    except KafkaError as error:
        response.error_code = error.code
        response.error_message = error.why or None
        return response
    response.active_producers = [
        ProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.transaction_first_offset,
        )
        for producer in log.producers.all()
    ]
    return response
