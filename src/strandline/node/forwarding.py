"""Requests to the active controller. On a node that is its own controller they are plain calls; in a cluster they will
travel in Envelopes, and nobody who calls `forward` or `send` will notice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from strandline.controller.controller import Controller
from strandline.handlers.context import Call
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.types import Message
from strandline.raft.driver import SoleVoter

Method = Callable[[Any, int], Awaitable[Any]]

CONTROLLER_METHODS: Final[Mapping[ApiKey, Callable[[Controller, SoleVoter], Method]]] = {
    ApiKey.CREATE_TOPICS: lambda controller, _: controller.create_topics,
    ApiKey.DELETE_TOPICS: lambda controller, _: controller.delete_topics,
    ApiKey.CREATE_PARTITIONS: lambda controller, _: controller.create_partitions,
    ApiKey.ALTER_CONFIGS: lambda controller, _: controller.alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda controller, _: controller.incremental_alter_configs,
    ApiKey.UPDATE_FEATURES: lambda controller, _: controller.update_features,
    ApiKey.UNREGISTER_BROKER: lambda controller, _: controller.unregister_broker,
    ApiKey.BROKER_REGISTRATION: lambda controller, _: controller.register_broker,
    ApiKey.BROKER_HEARTBEAT: lambda controller, _: controller.broker_heartbeat,
    ApiKey.CONTROLLER_REGISTRATION: lambda controller, _: controller.register_controller,
    ApiKey.ALLOCATE_PRODUCER_IDS: lambda controller, _: controller.allocate_producer_ids,
    ApiKey.ALTER_PARTITION: lambda controller, _: controller.alter_partition,
    ApiKey.ELECT_LEADERS: lambda controller, _: controller.elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda controller, _: controller.alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda controller, _: controller.list_partition_reassignments,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: lambda controller, _: controller.assign_replicas_to_dirs,
    ApiKey.DESCRIBE_QUORUM: lambda _, quorum: quorum.describe_quorum,
}


class LocalController:
    """The controller of this very process, asked by api key as a remote one would be."""

    def __init__(self, controller: Controller, quorum: SoleVoter) -> None:
        self._methods = {key: method(controller, quorum) for key, method in CONTROLLER_METHODS.items()}

    @property
    def served(self) -> list[ApiKey]:
        return list(self._methods)

    async def forward(self, api_key: int, call: Call, request: Message) -> Any:
        """A client's request, in the client's version."""
        return await self._methods[ApiKey(api_key)](request, call.version)

    async def send(self, api_key: ApiKey, request: Message) -> Any:
        """A request of this broker's own, in the newest version."""
        response = await self._methods[api_key](request, API[api_key].max_version)
        code = ErrorCode(getattr(response, "error_code", 0))
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"the controller refused {API[api_key].name}")
        return response
