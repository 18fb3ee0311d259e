"""Metadata (3), versions 0-13: brokers, topics and who leads them, as committed.

A topic that does not exist and may be created on demand is created before the answer, so that the client need not ask
again; creation that fails answers with its own reason.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.handlers.context import Broker, Call
from strandline.metadata.values import PartitionInfo, TopicInfo
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode
from strandline.model.ids import INTERNAL_TOPICS, ZERO_UUID
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

_NO_OPERATIONS = -(2**31)
# Without an authorizer every operation that exists on the resource is allowed (bit n is operation n).
_ALL_CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
_ALL_TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))


async def handle_metadata(broker: Broker, call: Call, request: MetadataRequest) -> MetadataResponse:
    if call.version < 12 and any(topic.topic_id != ZERO_UUID or topic.name is None for topic in request.topics or []):
        raise ConnectionAbortedError("topics are asked for by id only from Metadata version 12 on")
    everything = request.topics is None or (call.version == 0 and not request.topics)
    if everything:
        topics = [_topic(broker, call, known) for known in broker.view.topics()]
    else:
        created = await _create_missing(broker, call, request)
        topics = [_asked_topic(broker, call, asked, created) for asked in request.topics or []]
    response = MetadataResponse(
        brokers=_brokers(broker.view, call.listener),
        cluster_id=broker.cluster_id,
        controller_id=_any_live_broker(broker),
        topics=topics,
    )
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code == ErrorCode.NONE:
                topic.topic_authorized_operations = _ALL_TOPIC_OPERATIONS
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _ALL_CLUSTER_OPERATIONS
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


async def _create_missing(broker: Broker, call: Call, request: MetadataRequest) -> dict[str, tuple[ErrorCode, str]]:
    allowed = call.version < 4 or request.allow_auto_topic_creation
    if not allowed or not broker.settings.get("auto.create.topics.enable"):
        return {}
    missing = [
        topic.name for topic in request.topics or [] if topic.name is not None and broker.view.topic(topic.name) is None
    ]
    if not missing:
        return {}
    creation = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=-1, replication_factor=-1) for name in dict.fromkeys(missing)],
        timeout_ms=broker.settings.get("request.timeout.ms"),
    )
    response: CreateTopicsResponse = await broker.controller.forward(ApiKey.CREATE_TOPICS, call, creation)
    return {result.name: (ErrorCode(result.error_code), result.error_message or "") for result in response.topics}


def _asked_topic(
    broker: Broker, call: Call, asked: MetadataRequestTopic, created: dict[str, tuple[ErrorCode, str]]
) -> MetadataResponseTopic:
    if asked.name is None or asked.topic_id != ZERO_UUID:
        known = broker.view.topic_by_id(asked.topic_id)
        if known is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
        return _topic(broker, call, known)
    known = broker.view.topic(asked.name)
    if known is not None:
        return _topic(broker, call, known)
    code = created.get(asked.name, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""))[0]
    if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponseTopic(error_code=code, name=asked.name, is_internal=asked.name in INTERNAL_TOPICS)


def _topic(broker: Broker, call: Call, topic: TopicInfo) -> MetadataResponseTopic:
    view = broker.view
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(view, call, index, info) for index, info in enumerate(view.partitions(topic.id))],
        topic_authorized_operations=_NO_OPERATIONS,
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
            MetadataResponseTopic(error_code=code, name=topic.name, topic_id=topic.topic_id)
            for topic in request.topics or []
        ],
        error_code=code,
    )
