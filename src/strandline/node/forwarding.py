"""Requests to the active controller. On a node that is its own controller they are plain calls; in a cluster they will
travel in Envelopes, and nobody who calls `forward` or `send` will notice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from strandline.controller.controller import Controller
from strandline.handlers.context import Call
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.types import Message
from strandline.raft.driver import SoleVoter

Method = Callable[[Any, int], Awaitable[Any]]


class LocalController:
    """The controller of this very process, asked by api key as a remote one would be."""

    def __init__(self, controller: Controller, quorum: SoleVoter) -> None:
        self._methods: dict[int, Method] = {
            ApiKey.CREATE_TOPICS: controller.create_topics,
            ApiKey.DELETE_TOPICS: controller.delete_topics,
            ApiKey.CREATE_PARTITIONS: controller.create_partitions,
            ApiKey.ALTER_CONFIGS: controller.alter_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: controller.incremental_alter_configs,
            ApiKey.UPDATE_FEATURES: controller.update_features,
            ApiKey.UNREGISTER_BROKER: controller.unregister_broker,
            ApiKey.BROKER_REGISTRATION: controller.register_broker,
            ApiKey.BROKER_HEARTBEAT: controller.broker_heartbeat,
            ApiKey.CONTROLLER_REGISTRATION: controller.register_controller,
            ApiKey.ALLOCATE_PRODUCER_IDS: controller.allocate_producer_ids,
            ApiKey.DESCRIBE_QUORUM: quorum.describe_quorum,
        }

    @property
    def served(self) -> list[ApiKey]:
        return [ApiKey(key) for key in self._methods]

    async def forward(self, api_key: int, call: Call, request: Message) -> Any:
        """A client's request, in the client's version."""
        return await self._methods[api_key](request, call.version)

    async def send(self, api_key: ApiKey, request: Message) -> Any:
        """A request of this broker's own, in the newest version."""
        response = await self._methods[api_key](request, API[api_key].max_version)
        code = ErrorCode(getattr(response, "error_code", 0))
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"the controller refused {API[api_key].name}")
        return response
