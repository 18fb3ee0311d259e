"""The APIs of a controller listener: what brokers and `--bootstrap-controller` tools ask of a controller.

Decisions are the controller's; this table only opens the door. DescribeCluster answers with the quorum's nodes here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from strandline.handlers.api_versions import handle_api_versions
from strandline.handlers.configs import handle_describe_configs
from strandline.handlers.context import ActiveController, Broker, Call
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

_CONTROLLERS = 2
_NO_OPERATIONS = -(2**31)


# Answered here; the rest of a controller's APIs goes to the controller itself.
OWN_KEYS: tuple[ApiKey, ...] = (ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_CLUSTER)


def controller_table(
    broker: Broker, controller: ActiveController, served: Iterable[ApiKey], endpoint: Endpoint
) -> dict[ApiKey, Handle]:
    table: dict[ApiKey, Handle] = {key: _asking(controller, key) for key in served}
    table[ApiKey.API_VERSIONS] = lambda call, request: handle_api_versions(broker, call, request)
    table[ApiKey.DESCRIBE_CONFIGS] = lambda call, request: handle_describe_configs(broker, call, request)
    table[ApiKey.DESCRIBE_CLUSTER] = lambda call, request: _describe_quorum_nodes(broker, endpoint, request)
    return table


def _asking(controller: ActiveController, key: ApiKey) -> Handle:
    async def handle(call: Call, request: Any) -> Message | None:
        call.park()
        answer: Message = await controller.forward(key, call, request)
        return answer

    return handle


async def _describe_quorum_nodes(
    broker: Broker, endpoint: Endpoint, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != _CONTROLLERS:
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a controller; ask a broker's listener instead")
    return DescribeClusterResponse(
        error_message=None,
        endpoint_type=_CONTROLLERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[DescribeClusterBroker(broker_id=broker.node_id, host=endpoint.host, port=endpoint.port)],
        cluster_authorized_operations=_NO_OPERATIONS,
    )
