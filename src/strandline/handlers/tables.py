"""One row per served API: which function handles it on which listener, and its error response.

To add an API:

1. declare its messages in `protocol/messages` and its row in `protocol/apis` (versions, listeners, whether brokers
   forward it; drop `not_served`);
2. write the function that serves it: a handler in this package or, if the active controller decides on the request, a
   method of `controller/controller.Controller`: `async def x(self, request, version) -> response`;
3. add its row here, in the order of the keys:
   - `broker=` handles it on the broker listeners: `async def handle_x(broker, call, request) -> response`;
   - `controller=` handles it on the controller listener: the same, with a `ControllerContext`;
   - `decided_by=` names the method of `Controller`. The controller listener calls it; brokers forward the request to
     the active controller if `protocol/apis` says so;
   - `quorum=True` hands the request to this node's replica of the metadata quorum in the same way.

The rest is derived: the error response from the declared messages (`handlers/error_responses`; `error_fields` for
values other than the defaults, `error_response` replaces the derived one), and the limit on how much a forwarded
request may name from its declared lists (`handlers/request_limits`). A test walks this table and `protocol/apis` and
lists what an advertised API lacks. The operation that an authorizer checks will be one more column.

`node` binds the rows to a broker and a controller, and what a listener's table contains is what that listener
advertises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from strandline.controller.controller import Controller
from strandline.handlers import error_responses
from strandline.handlers.acls import handle_describe_acls
from strandline.handlers.api_versions import handle_api_versions
from strandline.handlers.brokers import handle_broker_heartbeat
from strandline.handlers.cluster import handle_describe_cluster, handle_describe_quorum_nodes
from strandline.handlers.configs import (
    handle_alter_configs,
    handle_describe_configs,
    handle_incremental_alter_configs,
    handle_list_config_resources,
)
from strandline.handlers.consumer_groups import handle_consumer_group_describe, handle_consumer_group_heartbeat
from strandline.handlers.context import (
    BoundApi,
    BrokerContext,
    Call,
    ControllerContext,
    ControllerMethod,
    ErrorResponse,
    Handle,
)
from strandline.handlers.coordinators import handle_find_coordinator
from strandline.handlers.envelope import handle_envelope
from strandline.handlers.epochs import handle_offset_for_leader_epoch
from strandline.handlers.error_responses import derived_error_response
from strandline.handlers.fetch import handle_fetch
from strandline.handlers.groups import (
    handle_delete_groups,
    handle_describe_groups,
    handle_heartbeat,
    handle_join_group,
    handle_leave_group,
    handle_list_groups,
    handle_sync_group,
    join_group_error,
)
from strandline.handlers.list_offsets import handle_list_offsets
from strandline.handlers.log_dirs import handle_describe_log_dirs
from strandline.handlers.metadata import handle_metadata, metadata_error
from strandline.handlers.offsets import handle_offset_commit, handle_offset_delete, handle_offset_fetch
from strandline.handlers.produce import handle_produce, produce_error
from strandline.handlers.producers import handle_describe_producers, handle_init_producer_id
from strandline.handlers.quotas import handle_describe_client_quotas
from strandline.handlers.request_limits import check_request_limit
from strandline.handlers.scram import handle_describe_user_scram_credentials
from strandline.handlers.tokens import (
    handle_create_delegation_token,
    handle_describe_delegation_token,
    handle_expire_delegation_token,
    handle_renew_delegation_token,
)
from strandline.handlers.topics import handle_delete_records, handle_describe_topic_partitions
from strandline.handlers.transaction_markers import handle_write_txn_markers, write_txn_markers_error
from strandline.handlers.transactional_offsets import handle_txn_offset_commit
from strandline.handlers.transactions import (
    add_partitions_to_txn_error,
    handle_add_offsets_to_txn,
    handle_add_partitions_to_txn,
    handle_describe_transactions,
    handle_end_txn,
    handle_list_transactions,
)
from strandline.protocol.apis import API, Api, ApiKey
from strandline.protocol.types import Message

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


class Row(msgspec.Struct, frozen=True):
    """What this node does with one API. Built by `_row`, which has mypy check that its functions fit together."""

    api: Api
    broker: Callable[[BrokerContext, Call, Any], Awaitable[Message | None]] | None
    controller: Callable[[ControllerContext, Call, Any], Awaitable[Message | None]] | None
    decided_by: Callable[[Controller, Any, int], Awaitable[Message]] | None
    quorum: bool
    error_response: ErrorResponse


def _row(
    key: ApiKey,
    *,
    broker: Callable[[BrokerContext, Call, Q], Coroutine[Any, Any, R | None]] | None = None,
    controller: Callable[[ControllerContext, Call, Q], Coroutine[Any, Any, R]] | None = None,
    decided_by: Callable[[Controller, Q, int], Coroutine[Any, Any, R]] | None = None,
    quorum: bool = False,
    error_fields: Mapping[str, Any] | None = None,
    error_response: Callable[[Q, int, Any, str], Message | None] | None = None,
) -> Row:
    api = API[key]
    derived = derived_error_response(api, error_fields)
    return Row(api, broker, controller, decided_by, quorum, error_response or derived)


_ROWS: Final = (
    _row(ApiKey.PRODUCE, broker=handle_produce, error_response=produce_error),
    _row(
        ApiKey.FETCH,
        broker=handle_fetch,
        quorum=True,
        error_fields={"high_watermark": -1, "last_stable_offset": -1, "records": b""},
    ),
    _row(ApiKey.LIST_OFFSETS, broker=handle_list_offsets),
    _row(ApiKey.METADATA, broker=handle_metadata, error_response=metadata_error),
    _row(ApiKey.OFFSET_COMMIT, broker=handle_offset_commit),
    _row(ApiKey.OFFSET_FETCH, broker=handle_offset_fetch, error_fields={"committed_offset": -1}),
    _row(ApiKey.FIND_COORDINATOR, broker=handle_find_coordinator, error_fields={"node_id": -1, "port": -1}),
    _row(ApiKey.JOIN_GROUP, broker=handle_join_group, error_response=join_group_error),
    _row(ApiKey.HEARTBEAT, broker=handle_heartbeat),
    _row(ApiKey.LEAVE_GROUP, broker=handle_leave_group),
    _row(ApiKey.SYNC_GROUP, broker=handle_sync_group),
    _row(ApiKey.DESCRIBE_GROUPS, broker=handle_describe_groups),
    _row(ApiKey.LIST_GROUPS, broker=handle_list_groups),
    _row(ApiKey.API_VERSIONS, broker=handle_api_versions, controller=handle_api_versions),
    _row(ApiKey.CREATE_TOPICS, decided_by=Controller.create_topics),
    _row(ApiKey.DELETE_TOPICS, decided_by=Controller.delete_topics),
    _row(ApiKey.DELETE_RECORDS, broker=handle_delete_records, error_fields={"low_watermark": -1}),
    _row(
        ApiKey.INIT_PRODUCER_ID,
        broker=handle_init_producer_id,
        error_fields={"producer_id": -1, "producer_epoch": -1},
    ),
    _row(ApiKey.OFFSET_FOR_LEADER_EPOCH, broker=handle_offset_for_leader_epoch),
    _row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        broker=handle_add_partitions_to_txn,
        error_response=add_partitions_to_txn_error,
    ),
    _row(ApiKey.ADD_OFFSETS_TO_TXN, broker=handle_add_offsets_to_txn),
    _row(ApiKey.END_TXN, broker=handle_end_txn),
    _row(ApiKey.WRITE_TXN_MARKERS, broker=handle_write_txn_markers, error_response=write_txn_markers_error),
    _row(ApiKey.TXN_OFFSET_COMMIT, broker=handle_txn_offset_commit),
    _row(ApiKey.DESCRIBE_ACLS, broker=handle_describe_acls, controller=handle_describe_acls),
    _row(ApiKey.CREATE_ACLS, decided_by=Controller.create_acls, error_response=error_responses.create_acls_error),
    _row(ApiKey.DELETE_ACLS, decided_by=Controller.delete_acls, error_response=error_responses.delete_acls_error),
    _row(ApiKey.DESCRIBE_CONFIGS, broker=handle_describe_configs, controller=handle_describe_configs),
    _row(ApiKey.ALTER_CONFIGS, broker=handle_alter_configs, decided_by=Controller.alter_configs),
    _row(ApiKey.DESCRIBE_LOG_DIRS, broker=handle_describe_log_dirs),
    _row(ApiKey.CREATE_PARTITIONS, decided_by=Controller.create_partitions),
    _row(
        ApiKey.CREATE_DELEGATION_TOKEN,
        broker=handle_create_delegation_token,
        controller=handle_create_delegation_token,
    ),
    _row(
        ApiKey.RENEW_DELEGATION_TOKEN,
        broker=handle_renew_delegation_token,
        controller=handle_renew_delegation_token,
    ),
    _row(
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        broker=handle_expire_delegation_token,
        controller=handle_expire_delegation_token,
    ),
    _row(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        broker=handle_describe_delegation_token,
        controller=handle_describe_delegation_token,
    ),
    _row(ApiKey.DELETE_GROUPS, broker=handle_delete_groups),
    _row(
        ApiKey.ELECT_LEADERS,
        decided_by=Controller.elect_leaders,
        error_response=derived_error_response(API[ApiKey.ELECT_LEADERS], repeat=True),
    ),
    _row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        broker=handle_incremental_alter_configs,
        decided_by=Controller.incremental_alter_configs,
    ),
    _row(ApiKey.ALTER_PARTITION_REASSIGNMENTS, decided_by=Controller.alter_partition_reassignments),
    _row(ApiKey.LIST_PARTITION_REASSIGNMENTS, decided_by=Controller.list_partition_reassignments),
    _row(ApiKey.OFFSET_DELETE, broker=handle_offset_delete),
    _row(ApiKey.DESCRIBE_CLIENT_QUOTAS, broker=handle_describe_client_quotas, error_fields={"entries": None}),
    _row(ApiKey.ALTER_CLIENT_QUOTAS, decided_by=Controller.alter_client_quotas),
    _row(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        broker=handle_describe_user_scram_credentials,
        controller=handle_describe_user_scram_credentials,
    ),
    _row(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        decided_by=Controller.alter_user_scram_credentials,
        error_response=error_responses.alter_user_scram_credentials_error,
    ),
    _row(ApiKey.VOTE, quorum=True),
    _row(ApiKey.BEGIN_QUORUM_EPOCH, quorum=True),
    _row(ApiKey.END_QUORUM_EPOCH, quorum=True),
    _row(ApiKey.DESCRIBE_QUORUM, quorum=True),
    _row(ApiKey.ALTER_PARTITION, decided_by=Controller.alter_partition),
    _row(ApiKey.UPDATE_FEATURES, decided_by=Controller.update_features),
    _row(ApiKey.ENVELOPE, controller=handle_envelope),
    _row(ApiKey.FETCH_SNAPSHOT, quorum=True),
    _row(ApiKey.DESCRIBE_CLUSTER, broker=handle_describe_cluster, controller=handle_describe_quorum_nodes),
    _row(ApiKey.DESCRIBE_PRODUCERS, broker=handle_describe_producers),
    _row(ApiKey.BROKER_REGISTRATION, decided_by=Controller.register_broker),
    _row(ApiKey.BROKER_HEARTBEAT, controller=handle_broker_heartbeat, decided_by=Controller.broker_heartbeat),
    _row(ApiKey.UNREGISTER_BROKER, decided_by=Controller.unregister_broker),
    _row(ApiKey.DESCRIBE_TRANSACTIONS, broker=handle_describe_transactions),
    _row(ApiKey.LIST_TRANSACTIONS, broker=handle_list_transactions),
    _row(ApiKey.ALLOCATE_PRODUCER_IDS, decided_by=Controller.allocate_producer_ids),
    _row(ApiKey.CONSUMER_GROUP_HEARTBEAT, broker=handle_consumer_group_heartbeat),
    _row(ApiKey.CONSUMER_GROUP_DESCRIBE, broker=handle_consumer_group_describe),
    _row(ApiKey.CONTROLLER_REGISTRATION, decided_by=Controller.register_controller),
    _row(ApiKey.ASSIGN_REPLICAS_TO_DIRS, decided_by=Controller.assign_replicas_to_dirs),
    _row(ApiKey.LIST_CONFIG_RESOURCES, broker=handle_list_config_resources),
    _row(ApiKey.DESCRIBE_TOPIC_PARTITIONS, broker=handle_describe_topic_partitions),
    _row(ApiKey.ADD_RAFT_VOTER, quorum=True),
    _row(ApiKey.REMOVE_RAFT_VOTER, quorum=True),
    _row(ApiKey.UPDATE_RAFT_VOTER, quorum=True),
)

ROWS: Final[dict[ApiKey, Row]] = {row.api.key: row for row in _ROWS}


def broker_table(broker: BrokerContext) -> dict[ApiKey, BoundApi]:
    """What the broker listeners serve: the broker's own handlers, and forwarding for what the controller decides."""
    table = {}
    for key, row in ROWS.items():
        if row.api.broker:
            handle = _forwarding(broker, row.api) if row.broker is None else _when_serving(row.broker, broker)
            table[key] = BoundApi(handle, row.error_response)
    return table


def controller_table(controller: ControllerContext) -> dict[ApiKey, BoundApi]:
    """What the controller listener serves. A controller that is not active returns NOT_CONTROLLER."""
    for key, row in ROWS.items():
        if row.api.controller:
            handle: Handle
            if row.controller is not None:
                handle = partial(row.controller, controller)
            else:
                handle = _calling(row.api, controller.methods[key])
            controller.table[key] = BoundApi(handle, row.error_response)
    return controller.table


def controller_methods(controller: Controller, quorum: ControllerMethod) -> dict[ApiKey, ControllerMethod]:
    """How the controller and the quorum replica of this process are called, by its listener and by its own broker."""
    methods: dict[ApiKey, ControllerMethod] = {}
    for key, row in ROWS.items():
        if row.quorum:
            methods[key] = quorum
        elif row.decided_by is not None:
            methods[key] = partial(row.decided_by, controller)
    return methods


def _when_serving(
    handler: Callable[[BrokerContext, Call, Any], Awaitable[Message | None]], broker: BrokerContext
) -> Handle:
    def handle(call: Call, request: Any) -> Awaitable[Message | None]:
        if broker.serving.is_set():
            return handler(broker, call, request)
        return handle_later(call, request)

    async def handle_later(call: Call, request: Any) -> Message | None:
        await broker.wait_until_serving()
        return await handler(broker, call, request)

    return handle


def _forwarding(broker: BrokerContext, api: Api) -> Handle:
    async def handle(call: Call, request: Message) -> Message | None:
        check_request_limit(request)
        call.park()
        await broker.wait_until_serving()
        return await broker.controller.forward(call, request, api.response)

    return handle


def _calling(api: Api, method: ControllerMethod) -> Handle:
    async def handle(call: Call, request: Message) -> Message | None:
        if api.forwarded:
            check_request_limit(request)
        call.park()
        return await method(request, call.version)

    return handle
