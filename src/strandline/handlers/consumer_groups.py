"""Consumer groups (KIP-848): ConsumerGroupHeartbeat (68), versions 0-1, and ConsumerGroupDescribe (69), versions 0-1.

Decisions are made in `coordinator/consumer`, in the shard of the group. Served while the feature `group.version` is at
1 and `group.coordinator.rebalance.protocols` contains `consumer`.
"""

from __future__ import annotations

from typing import Final

from strandline.coordinator.consumer.describe import describe_consumer_group
from strandline.coordinator.groups import Caller, GroupMachine
from strandline.handlers.authorized_operations import ALL_GROUP_OPERATIONS
from strandline.handlers.context import BrokerContext, Call
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
)

_FEATURE: Final = "group.version"


def _check_served(broker: BrokerContext) -> None:
    if broker.view.features().get(_FEATURE, 0) < 1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the feature {_FEATURE} of this cluster is below 1")
    if "consumer" not in broker.config.get("group.coordinator.rebalance.protocols"):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "group.coordinator.rebalance.protocols excludes consumer")


async def handle_consumer_group_heartbeat(
    broker: BrokerContext, call: Call, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    _check_served(broker)
    caller = Caller(call.client_id, f"/{call.client_host}", call.version)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    return await broker.groups.for_key(request.group_id).write(
        lambda machine, token, now: machine.consumer_heartbeat(request, caller, now)
    )


async def handle_consumer_group_describe(
    broker: BrokerContext, call: Call, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    _check_served(broker)
    groups = [_describe(broker, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = ALL_GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(broker: BrokerContext, group_id: str) -> DescribedGroup:
    def describe(machine: GroupMachine, at: int) -> DescribedGroup:
        context = machine.consumer
        default = context.settings(group_id).default_assignor
        return describe_consumer_group(machine.consumer_group(group_id, at), at, context.topics, default)

    if not group_id:
        return DescribedGroup(ErrorCode.INVALID_GROUP_ID, group_id=group_id)
    try:
        return broker.groups.for_key(group_id).read(describe)
    except KafkaError as error:
        return DescribedGroup(error.code, error.why or None, group_id=group_id)
