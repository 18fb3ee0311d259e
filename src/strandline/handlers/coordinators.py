"""FindCoordinator (10), versions 0-6, for groups and transactions. Left out: share groups.

The coordinator of a group or transactional id is the leader of one partition of an internal topic, which is created on
first use.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from strandline.coordinator.partitioning import GROUP_TOPIC, TRANSACTION_TOPIC, partition_for
from strandline.handlers.context import BrokerContext, Call
from strandline.handlers.internal_topics import ensure_internal_topic
from strandline.handlers.reachable_leaders import LeaderAddress, leader_addresses
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.coordinators import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from strandline.runtime.tasks import YieldCounter, yield_to_loop

_GROUP: Final = 0
_TRANSACTION: Final = 1
_SHARE_PARTITION: Final = 2
_FIRST_VERSION_WITH_SHARES: Final = 6
_FIRST_VERSION_WITH_BATCHES: Final = 4


async def handle_find_coordinator(
    broker: BrokerContext, call: Call, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if call.version < _FIRST_VERSION_WITH_BATCHES:
        found = await _find(broker, call, request.key_type, request.key)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message or ErrorCode(found.error_code).name,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    coordinators: list[Coordinator] = []
    unavailable: Coordinator | None = None
    yields = YieldCounter(call)
    for key in request.coordinator_keys:
        if yields.due():
            await yield_to_loop()
        if unavailable is None:
            found = await _find(broker, call, request.key_type, key)
            if request.key_type in (_GROUP, _TRANSACTION) and not _exists(broker, request.key_type):
                # It could not be created: the controller is not asked again for each key.
                unavailable = found
        else:
            found = replace(unavailable, key=key)
        coordinators.append(found)
    return FindCoordinatorResponse(coordinators=coordinators)


async def _find(broker: BrokerContext, call: Call, kind: int, key: str) -> Coordinator:
    try:
        _check(call, kind, key)
        leader = await _coordinator(broker, call, _internal_topic(kind), key)
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.why or None
        )
    return Coordinator(key, leader.node_id, leader.host, leader.port, ErrorCode.NONE)


def _internal_topic(kind: int) -> str:
    return GROUP_TOPIC if kind == _GROUP else TRANSACTION_TOPIC


def _exists(broker: BrokerContext, kind: int) -> bool:
    return broker.view.topic(_internal_topic(kind)) is not None


def _check(call: Call, kind: int, key: str) -> None:
    known = (_GROUP, _TRANSACTION, _SHARE_PARTITION)
    if kind not in known or (kind == _SHARE_PARTITION and call.version < _FIRST_VERSION_WITH_SHARES):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no coordinator type {kind} in version {call.version}")
    if kind == _SHARE_PARTITION and key.count(":") < 2:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the key of a share partition is group:topic id:partition")
    if kind == _SHARE_PARTITION:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "share groups are not served by this release")


async def _coordinator(broker: BrokerContext, call: Call, internal_topic: str, key: str) -> LeaderAddress:
    await ensure_internal_topic(broker, call, internal_topic)
    topic = broker.view.topic(internal_topic)
    info = None if topic is None else broker.view.partition(topic.id, partition_for(key, topic.partition_count))
    addresses = [] if info is None else leader_addresses(broker, call.listener, [info.leader])
    if not addresses:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the coordinator of {key!r} has no leader now")
    return addresses[0]
