"""DescribeCluster (60), versions 0-2, on a broker's listener; `controllers` answers it on a controller's.
UpdateFeatures (57) and UnregisterBroker (64) go to the active controller.
"""

from __future__ import annotations

from strandline.handlers.authorized_operations import ALL_CLUSTER_OPERATIONS, NO_OPERATIONS
from strandline.handlers.context import BrokerContext, Call
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


async def handle_describe_cluster(
    broker: BrokerContext, call: Call, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker; ask a controller listener instead")
    if request.endpoint_type != BROKERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {request.endpoint_type}")
    brokers = []
    for info in broker.view.brokers():
        endpoint = info.endpoint(call.listener)
        if endpoint is None or (info.fenced and not request.include_fenced_brokers):
            continue
        brokers.append(
            DescribeClusterBroker(
                broker_id=info.id, host=endpoint.host, port=endpoint.port, rack=info.rack, is_fenced=info.fenced
            )
        )
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=brokers,
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if asked else NO_OPERATIONS,
    )
