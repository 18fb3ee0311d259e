"""The APIs of a controller listener: what brokers and `--bootstrap-controller` tools ask of a controller.

Decisions are the controller's; this table only opens the door. DescribeCluster answers with the quorum's nodes here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from strandline.handlers.api_versions import handle_api_versions
from strandline.handlers.cluster import BROKERS, CONTROLLERS
from strandline.handlers.configs import handle_describe_configs
from strandline.handlers.context import ActiveController, Broker, Call
from strandline.handlers.operations import ALL_CLUSTER_OPERATIONS, NO_OPERATIONS
from strandline.handlers.portions import check_portion
from strandline.handlers.tables import Handle
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from strandline.protocol.types import Message

# Answered here; the rest of a controller's APIs goes to the controller itself.
OWN_KEYS: tuple[ApiKey, ...] = (ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_CLUSTER)


def controller_table(
    broker: Broker, controller: ActiveController, served: Iterable[ApiKey], endpoint: Endpoint
) -> dict[ApiKey, Handle]:
    table: dict[ApiKey, Handle] = {key: _asking(controller, key) for key in served}
    table[ApiKey.API_VERSIONS] = lambda call, request: handle_api_versions(broker, call, request)
    table[ApiKey.DESCRIBE_CONFIGS] = lambda call, request: handle_describe_configs(broker, call, request)
    table[ApiKey.DESCRIBE_CLUSTER] = lambda call, request: _describe_quorum_nodes(broker, endpoint, call, request)
    return table


def _asking(controller: ActiveController, key: ApiKey) -> Handle:
    async def handle(call: Call, request: Any) -> Message | None:
        check_portion(key, request)
        call.park()
        answer: Message = await controller.forward(key, call, request)
        return answer

    return handle


async def _describe_quorum_nodes(
    broker: Broker, endpoint: Endpoint, call: Call, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if call.version == 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "version 0 can only ask for brokers, and this is a controller")
    if request.endpoint_type == BROKERS:
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a controller; ask a broker's listener instead")
    if request.endpoint_type != CONTROLLERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {request.endpoint_type}")
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        error_message=None,
        endpoint_type=CONTROLLERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[DescribeClusterBroker(broker_id=broker.node_id, host=endpoint.host, port=endpoint.port)],
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if asked else NO_OPERATIONS,
    )
