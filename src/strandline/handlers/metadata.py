"""Metadata (3), versions 0-13: the brokers, topics and partition leaders of committed metadata.

A topic that does not exist and may be auto-created is created before the response, which nevertheless reports it as
unknown, as Kafka's does: a client that deleted a topic sees it gone, and others find it with their next request. A
request that names more topics than one decision of the controller can create creates none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from strandline.controller.decisions import MAX_RECORDS_PER_DECISION
from strandline.handlers.authorized_operations import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS, NO_OPERATIONS
from strandline.handlers.context import BrokerContext, Call
from strandline.handlers.reachable_leaders import ReachableBrokers, election_decided, losses_noticed
from strandline.metadata.values import PartitionInfo, TopicInfo
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import INTERNAL_TOPICS, ZERO_UUID, Uuid
from strandline.model.topic_names import check_topic_name
from strandline.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from strandline.runtime.tasks import YieldCounter, yield_to_loop

logger = logging.getLogger(__name__)

# The response is the same without the topics, so it does not wait for a controller that cannot be reached.
_CREATION_WAIT_MS: Final = 1_000


async def handle_metadata(broker: BrokerContext, call: Call, request: MetadataRequest) -> MetadataResponse:
    topics = await _topics(broker, call, request)
    if request.topics:
        await losses_noticed(broker, call, _leaders(topics))
    failed = await election_decided(broker, call, _leaders(topics)) if broker.lost_leaders else []
    if failed:
        topics = await _topics(broker, call, request)
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None:
                topic.topic_authorized_operations = ALL_TOPIC_OPERATIONS
    include_operations = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=_brokers(broker.view, call.listener, failed),
        cluster_id=broker.cluster_id,
        controller_id=_controller_for_clients(broker),
        topics=topics,
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if include_operations else NO_OPERATIONS,
    )


async def _topics(broker: BrokerContext, call: Call, request: MetadataRequest) -> list[MetadataResponseTopic]:
    describer = _Describer(broker, call)
    if request.topics is None or (call.version == 0 and not request.topics):
        return [await describer.topic(known) for known in broker.view.topics()]
    return await _named_topics(broker, call, request, request.topics, describer)


def _leaders(topics: list[MetadataResponseTopic]) -> Iterator[int]:
    return (partition.leader_id for topic in topics for partition in topic.partitions)


class _Describer:
    """Describes topics for one request, yielding to the event loop."""

    __slots__ = ("_broker", "_reach", "_version", "_yields")

    def __init__(self, broker: BrokerContext, call: Call) -> None:
        self._broker = broker
        self._version = call.version
        self._reach = ReachableBrokers(broker.view, call.listener)
        self._yields = YieldCounter(call)

    async def topic_by_id(self, topic_id: Uuid) -> MetadataResponseTopic:
        known = self._broker.view.topic_by_id(topic_id)
        if known is not None:
            return await self.topic(known)
        if self._yields.due():
            await yield_to_loop()
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)

    async def topic_by_name(self, name: str, *, is_new: bool = False) -> MetadataResponseTopic:
        """`is_new`: it did not exist when the request arrived."""
        known = self._broker.view.topic(name)
        if known is not None and not is_new:
            return await self.topic(known)
        if self._yields.due():
            await yield_to_loop()
        return MetadataResponseTopic(error_code=absence(name), name=name, is_internal=name in INTERNAL_TOPICS)

    async def topic(self, topic: TopicInfo) -> MetadataResponseTopic:
        described = MetadataResponseTopic(name=topic.name, topic_id=topic.id, is_internal=topic.name in INTERNAL_TOPICS)
        for index in range(topic.partition_count):
            if self._yields.due():
                await yield_to_loop()
            info = self._broker.view.partition(topic.id, index)
            if info is None:  # deleted while this handler yielded
                return await self.topic_by_name(topic.name)
            described.partitions.append(self._partition(index, info))
        return described

    def _partition(self, index: int, info: PartitionInfo) -> MetadataResponsePartition:
        code, leader = self._reach.leader(info)
        if code == ErrorCode.LISTENER_NOT_FOUND and self._version < 6:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=info.leader_epoch,
            replica_nodes=list(info.replicas),
            isr_nodes=list(info.isr),
            offline_replicas=self._reach.offline(info.replicas),
        )


def _brokers(view: View, listener: str, failed: Sequence[int]) -> list[MetadataResponseBroker]:
    """The unfenced brokers, and those whose fencing this response has waited for: when the previous leader of a
    partition disappears together with its leadership, librdkafka loses the new leader too, until its next refresh."""
    found = []
    for info in view.brokers():
        endpoint = info.endpoint(listener)
        if endpoint is not None and (not info.fenced or info.id in failed):
            found.append(
                MetadataResponseBroker(node_id=info.id, host=endpoint.host, port=endpoint.port, rack=info.rack)
            )
    return found


def _controller_for_clients(broker: BrokerContext) -> int:
    """The broker that clients take for the controller: in KRaft any broker forwards admin requests, so this one, unless
    it is fenced."""
    own = broker.view.broker(broker.node_id)
    if own is not None and not own.fenced:
        return own.id
    return next((info.id for info in broker.view.brokers() if not info.fenced), -1)


async def _named_topics(
    broker: BrokerContext,
    call: Call,
    request: MetadataRequest,
    named: list[MetadataRequestTopic],
    describer: _Describer,
) -> list[MetadataResponseTopic]:
    """One description for each topic, however often it is named. If any topic is given by id, all must be, and names
    are ignored."""
    by_id = any(topic.topic_id != ZERO_UUID or topic.name is None for topic in named)
    if by_id and call.version < 12:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "topic ids are not supported before version 12")
    if by_id:
        ids = dict.fromkeys(topic.topic_id for topic in named if topic.topic_id != ZERO_UUID or topic.name is None)
        return [await describer.topic_by_id(topic_id) for topic_id in ids]
    names = dict.fromkeys(topic.name for topic in named if topic.name is not None)
    created = await _create_missing(broker, call, request, names)
    return [await describer.topic_by_name(name, is_new=name in created) for name in names]


async def _create_missing(
    broker: BrokerContext, call: Call, request: MetadataRequest, names: Collection[str]
) -> Collection[str]:
    """Creates the topics that do not exist, if that is allowed, and returns their names."""
    allowed = call.version < 4 or request.allow_auto_topic_creation
    if not allowed or not broker.config.get("auto.create.topics.enable") or len(names) > MAX_RECORDS_PER_DECISION:
        return ()
    missing = dict.fromkeys(name for name in names if broker.view.topic(name) is None)
    if not missing:
        return ()
    creation = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=-1, replication_factor=-1) for name in missing],
        timeout_ms=broker.config.get("request.timeout.ms"),
    )
    call.park()
    await yield_to_loop()  # asyncio.timeout needs a task, which a handler has after its first wait
    try:
        newest = CreateTopicsRequest.versions[1]
        async with asyncio.timeout(_CREATION_WAIT_MS / 1000):
            await broker.controller.forward(call, creation, CreateTopicsResponse, version=newest)
    except (KafkaError, TimeoutError) as error:
        logger.debug("topics were not created automatically: %s", error)
    return missing


def absence(name: str) -> ErrorCode:
    """The error for a topic that does not exist: whether its name is invalid, or only unknown."""
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def metadata_error(request: MetadataRequest, version: int, code: ErrorCode, why: str) -> MetadataResponse:
    return MetadataResponse(
        controller_id=-1,
        topics=[
            # Before version 12 the name of a response cannot be null, while that of a request can.
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or []
        ],
        error_code=code,
    )
