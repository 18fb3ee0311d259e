"""The APIs of a controller listener: what other nodes and `--bootstrap-controller` tools ask of a controller.

Decisions are the controller's and the quorum's; this table only opens the door. DescribeCluster answers with the
quorum's nodes here. A heartbeat also tells whose connection it came by: when that ends without goodbye, the controller
has a reason to look whether the broker is still there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from strandline.handlers.acls import handle_describe_acls
from strandline.handlers.api_versions import handle_api_versions
from strandline.handlers.authorized_operations import ALL_CLUSTER_OPERATIONS, NO_OPERATIONS
from strandline.handlers.cluster import BROKERS, CONTROLLERS
from strandline.handlers.configs import handle_describe_configs
from strandline.handlers.context import Call, NodeContext
from strandline.handlers.envelope import handle_envelope
from strandline.handlers.request_limits import check_request_limit
from strandline.handlers.scram import handle_describe_user_scram_credentials
from strandline.handlers.tables import Handle
from strandline.handlers.tokens import (
    handle_create_delegation_token,
    handle_describe_delegation_token,
    handle_expire_delegation_token,
    handle_renew_delegation_token,
)
from strandline.metadata.values import BrokerEndpoint
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.brokers import BrokerHeartbeatRequest
from strandline.protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from strandline.protocol.types import Message
from strandline.raft.machine.voters import VoterSet

Method = Callable[[Any, int], Awaitable[Any]]
MemberHandler = Callable[[Any, Call, Any], Awaitable[Message | None]]

# Answered as by a broker.
_AS_BROKERS_DO: dict[ApiKey, MemberHandler] = {
    ApiKey.API_VERSIONS: handle_api_versions,
    ApiKey.DESCRIBE_CONFIGS: handle_describe_configs,
    ApiKey.DESCRIBE_ACLS: handle_describe_acls,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: handle_describe_user_scram_credentials,
    ApiKey.CREATE_DELEGATION_TOKEN: handle_create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: handle_renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: handle_expire_delegation_token,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: handle_describe_delegation_token,
}
# Answered here; the rest of a controller's APIs goes to the controller or the quorum itself.
OWN_KEYS: tuple[ApiKey, ...] = (*_AS_BROKERS_DO, ApiKey.DESCRIBE_CLUSTER, ApiKey.ENVELOPE)


class ControllerContext(NodeContext, kw_only=True):
    """A controller as its listener shows it."""

    methods: Mapping[ApiKey, Method]
    """Of the controller and the quorum in this process, by what they answer."""
    leader_id: Callable[[], int]
    """Of the quorum; -1 when nobody is known to lead."""
    voters: Callable[[], VoterSet]
    """Of the quorum, with where they listen."""
    broker_connection_lost: Callable[[int, int], None]
    """Told the id and the epoch of a broker whose heartbeats came by a connection that has ended."""


def controller_table(node: ControllerContext) -> dict[ApiKey, Handle]:
    table: dict[ApiKey, Handle] = {key: _asking(node, key) for key in node.methods}
    for key, handler in _AS_BROKERS_DO.items():
        table[key] = partial(handler, node)
    table[ApiKey.DESCRIBE_CLUSTER] = lambda call, request: _describe_quorum_nodes(node, call, request)
    table[ApiKey.BROKER_HEARTBEAT] = lambda call, request: _heartbeat(node, call, request)
    table[ApiKey.ENVELOPE] = lambda call, request: handle_envelope(table, call, request)
    return table


def _asking(node: ControllerContext, key: ApiKey) -> Handle:
    method = node.methods[key]

    async def handle(call: Call, request: Any) -> Message | None:
        check_request_limit(key, request)
        call.park()
        answer: Message = await method(request, call.version)
        return answer

    return handle


async def _heartbeat(node: ControllerContext, call: Call, request: BrokerHeartbeatRequest) -> Message:
    def lost() -> None:
        node.broker_connection_lost(request.broker_id, request.broker_epoch)

    call.park()
    answer: Message = await node.methods[ApiKey.BROKER_HEARTBEAT](request, call.version)
    # Only who was heard can be missed: a heartbeat that was refused says nothing about the broker of that id.
    call.on_connection_lost("heartbeats", lost)
    return answer


async def _describe_quorum_nodes(
    node: ControllerContext, call: Call, request: DescribeClusterRequest
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
        cluster_id=node.cluster_id,
        controller_id=node.leader_id(),
        brokers=_quorum_nodes(node, call.listener),
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if asked else NO_OPERATIONS,
    )


def _quorum_nodes(node: ControllerContext, listener: str) -> list[DescribeClusterBroker]:
    """By id. A voter is listed before it has registered too: a client that is told of nobody has nobody left to ask."""
    endpoints: dict[int, BrokerEndpoint | Endpoint | None] = {
        voter.id: voter.endpoint_for(listener) for voter in node.voters().voters
    }
    for controller in node.view.controllers():
        endpoints[controller.id] = controller.endpoint(listener)
    return [
        DescribeClusterBroker(broker_id=node_id, host=endpoint.host, port=endpoint.port)
        for node_id, endpoint in sorted(endpoints.items())
        if endpoint is not None
    ]
