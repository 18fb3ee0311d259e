"""Metadata (3), versions 0-13: brokers, topics and who leads them, as committed.

A topic that does not exist and may be created on demand is created before the answer, so that the client need not ask
again; creation that fails answers with its own reason.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.controller.topics import check_topic_name
from strandline.handlers.context import Broker, Call
from strandline.handlers.operations import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS, NO_OPERATIONS
from strandline.metadata.values import PartitionInfo, TopicInfo
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import INTERNAL_TOPICS, ZERO_UUID, Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse


async def handle_metadata(broker: Broker, call: Call, request: MetadataRequest) -> MetadataResponse:
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = [_topic(broker, call, known) for known in broker.view.topics()]
    else:
        topics = await _asked_topics(broker, call, request, request.topics)
    response = MetadataResponse(
        brokers=_brokers(broker.view, call.listener),
        cluster_id=broker.cluster_id,
        controller_id=_any_live_broker(broker),
        topics=topics,
    )
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None:
                topic.topic_authorized_operations = ALL_TOPIC_OPERATIONS
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response


def _brokers(view: View, listener: str) -> list[MetadataResponseBroker]:
    found = []
    for info in view.brokers():
        endpoint = info.endpoint(listener)
        if not info.fenced and endpoint is not None:
            found.append(
                MetadataResponseBroker(node_id=info.id, host=endpoint.host, port=endpoint.port, rack=info.rack)
            )
    return found


def _any_live_broker(broker: Broker) -> int:
    """In KRaft clients send admin requests to any broker, which forwards them: itself, if it is alive."""
    own = broker.view.broker(broker.node_id)
    if own is not None and not own.fenced:
        return own.id
    return next((info.id for info in broker.view.brokers() if not info.fenced), -1)


async def _asked_topics(
    broker: Broker, call: Call, request: MetadataRequest, asked: list[MetadataRequestTopic]
) -> list[MetadataResponseTopic]:
    """One answer for each topic that was asked for, however often and by whichever name. Where any is asked for by id,
    all are, and names are ignored."""
    by_id = any(topic.topic_id != ZERO_UUID or topic.name is None for topic in asked)
    if by_id and call.version < 12:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "topics are asked for by id only from version 12 on")
    if by_id:
        ids = dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID or topic.name is None)
        return [_topic_by_id(broker, call, topic_id) for topic_id in ids]
    names = dict.fromkeys(topic.name for topic in asked if topic.name is not None)
    created = await _create_missing(broker, call, request, names)
    return [_topic_by_name(broker, call, name, created) for name in names]


async def _create_missing(
    broker: Broker, call: Call, request: MetadataRequest, names: Iterable[str]
) -> dict[str, ErrorCode]:
    allowed = call.version < 4 or request.allow_auto_topic_creation
    if not allowed or not broker.settings.get("auto.create.topics.enable"):
        return {}
    missing = [name for name in names if broker.view.topic(name) is None]
    if not missing:
        return {}
    creation = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=-1, replication_factor=-1) for name in missing],
        timeout_ms=broker.settings.get("request.timeout.ms"),
    )
    call.park()
    response: CreateTopicsResponse = await broker.controller.forward(ApiKey.CREATE_TOPICS, call, creation)
    return {result.name: ErrorCode(result.error_code) for result in response.topics}


def _topic_by_id(broker: Broker, call: Call, topic_id: Uuid) -> MetadataResponseTopic:
    known = broker.view.topic_by_id(topic_id)
    if known is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return _topic(broker, call, known)


def _topic_by_name(broker: Broker, call: Call, name: str, created: dict[str, ErrorCode]) -> MetadataResponseTopic:
    known = broker.view.topic(name)
    if known is not None:
        return _topic(broker, call, known)
    code = created.get(name) or absence(name)
    if code == ErrorCode.TOPIC_ALREADY_EXISTS:
        code = ErrorCode.LEADER_NOT_AVAILABLE  # somebody made it and unmade it meanwhile
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def absence(name: str) -> ErrorCode:
    """Why a topic is not there: no topic can have that name, or none has."""
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topic(broker: Broker, call: Call, topic: TopicInfo) -> MetadataResponseTopic:
    view = broker.view
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(view, call, index, info) for index, info in enumerate(view.partitions(topic.id))],
        topic_authorized_operations=NO_OPERATIONS,
    )


def _partition(view: View, call: Call, index: int, info: PartitionInfo) -> MetadataResponsePartition:
    code, leader = leader_on(view, call.listener, info)
    if code == ErrorCode.LISTENER_NOT_FOUND and call.version < 6:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=info.leader_epoch,
        replica_nodes=list(info.replicas),
        isr_nodes=list(info.isr),
        offline_replicas=offline(view, info.replicas),
    )


def leader_on(view: View, listener: str, info: PartitionInfo) -> tuple[ErrorCode, int]:
    """The leader as this client can reach it: alive, and on the listener the request came in on."""
    broker = view.broker(info.leader) if info.leader >= 0 else None
    if broker is None or broker.fenced:
        return ErrorCode.LEADER_NOT_AVAILABLE, -1
    if broker.endpoint(listener) is None:
        return ErrorCode.LISTENER_NOT_FOUND, -1
    return ErrorCode.NONE, info.leader


def offline(view: View, replicas: Iterable[int]) -> list[int]:
    gone = []
    for replica in replicas:
        broker = view.broker(replica)
        if broker is None or broker.fenced:
            gone.append(replica)
    return gone


def failed(request: MetadataRequest, code: ErrorCode) -> MetadataResponse:
    return MetadataResponse(
        controller_id=-1,
        topics=[
            # Before version 12 a name cannot be null in an answer, though it can in a question.
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or []
        ],
        error_code=code,
    )
