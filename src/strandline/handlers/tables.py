"""Which handler answers which API, on the brokers' listeners and on the controllers'.

`node` makes the server's tables from these, and what is in a table is what that listener advertises: an API that is not
served is not mentioned. The two tables are apart so that, say, a fetch of the metadata log and a fetch of a partition
never meet in an `if`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from strandline.handlers.acls import handle_describe_acls
from strandline.handlers.api_versions import handle_api_versions
from strandline.handlers.cluster import handle_describe_cluster
from strandline.handlers.configs import (
    handle_alter_configs,
    handle_describe_configs,
    handle_incremental_alter_configs,
    handle_list_config_resources,
)
from strandline.handlers.context import BrokerContext, Call
from strandline.handlers.coordinators import handle_find_coordinator
from strandline.handlers.epochs import handle_offset_for_leader_epoch
from strandline.handlers.fetch import handle_fetch
from strandline.handlers.list_offsets import handle_list_offsets
from strandline.handlers.log_dirs import handle_describe_log_dirs
from strandline.handlers.metadata import handle_metadata
from strandline.handlers.produce import handle_produce
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
from strandline.protocol.apis import ApiKey
from strandline.protocol.types import Message

Handle = Callable[[Call, Any], Awaitable[Message | None]]
BrokerHandler = Callable[[BrokerContext, Call, Any], Awaitable[Message | None]]

BROKER_HANDLERS: dict[ApiKey, BrokerHandler] = {
    ApiKey.PRODUCE: handle_produce,
    ApiKey.FETCH: handle_fetch,
    ApiKey.LIST_OFFSETS: handle_list_offsets,
    ApiKey.METADATA: handle_metadata,
    ApiKey.FIND_COORDINATOR: handle_find_coordinator,
    ApiKey.API_VERSIONS: handle_api_versions,
    ApiKey.DELETE_RECORDS: handle_delete_records,
    ApiKey.INIT_PRODUCER_ID: handle_init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: handle_offset_for_leader_epoch,
    ApiKey.DESCRIBE_ACLS: handle_describe_acls,
    ApiKey.DESCRIBE_CONFIGS: handle_describe_configs,
    ApiKey.ALTER_CONFIGS: handle_alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: handle_incremental_alter_configs,
    ApiKey.DESCRIBE_LOG_DIRS: handle_describe_log_dirs,
    ApiKey.CREATE_DELEGATION_TOKEN: handle_create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: handle_renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: handle_expire_delegation_token,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: handle_describe_delegation_token,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: handle_describe_client_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: handle_describe_user_scram_credentials,
    ApiKey.DESCRIBE_CLUSTER: handle_describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: handle_describe_producers,
    ApiKey.LIST_CONFIG_RESOURCES: handle_list_config_resources,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: handle_describe_topic_partitions,
}

# Any broker takes these from clients and hands them to the active controller.
FORWARDED: tuple[ApiKey, ...] = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
)


def broker_table(broker: BrokerContext) -> dict[ApiKey, Handle]:
    table: dict[ApiKey, Handle] = {key: _bound(handler, broker) for key, handler in BROKER_HANDLERS.items()}
    for key in FORWARDED:
        table[key] = _forwarding(broker, key)
    return table


def _bound(handler: BrokerHandler, broker: BrokerContext) -> Handle:
    def handle(call: Call, request: Any) -> Awaitable[Message | None]:
        if broker.serving.is_set():
            return handler(broker, call, request)
        return once_serving(call, request)

    async def once_serving(call: Call, request: Any) -> Message | None:
        await broker.wait_until_serving()
        return await handler(broker, call, request)

    return handle


def _forwarding(broker: BrokerContext, key: ApiKey) -> Handle:
    async def handle(call: Call, request: Any) -> Message | None:
        check_request_limit(key, request)
        call.park()
        await broker.wait_until_serving()
        answer: Message = await broker.controller.forward(key, call, request)
        return answer

    return handle
