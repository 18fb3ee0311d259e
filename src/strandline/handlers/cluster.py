"""DescribeCluster (60), versions 0-2: the brokers, or on the controller listener the nodes of the metadata quorum
(KIP-919).
"""

from __future__ import annotations

from strandline.handlers.authorized_operations import ALL_CLUSTER_OPERATIONS, NO_OPERATIONS
from strandline.handlers.context import BrokerContext, Call, ControllerContext
from strandline.metadata.values import BrokerEndpoint
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint
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
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker, not a controller listener")
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
    include_operations = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=brokers,
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if include_operations else NO_OPERATIONS,
    )


async def handle_describe_quorum_nodes(
    controller: ControllerContext, call: Call, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if call.version == 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "version 0 describes brokers, and this is a controller")
    if request.endpoint_type == BROKERS:
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a controller, not a broker listener")
    if request.endpoint_type != CONTROLLERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {request.endpoint_type}")
    include_operations = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        error_message=None,
        endpoint_type=CONTROLLERS,
        cluster_id=controller.cluster_id,
        controller_id=controller.leader_id(),
        brokers=_quorum_nodes(controller, call.listener),
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if include_operations else NO_OPERATIONS,
    )


def _quorum_nodes(controller: ControllerContext, listener: str) -> list[DescribeClusterBroker]:
    """The quorum's nodes, by id; with unregistered voters, or clients of a new quorum would find no node."""
    endpoints: dict[int, BrokerEndpoint | Endpoint | None] = {
        voter.id: voter.endpoint_for(listener) for voter in controller.voters().voters
    }
    for registered in controller.view.controllers():
        endpoints[registered.id] = registered.endpoint(listener)
    return [
        DescribeClusterBroker(broker_id=node_id, host=endpoint.host, port=endpoint.port)
        for node_id, endpoint in sorted(endpoints.items())
        if endpoint is not None
    ]
