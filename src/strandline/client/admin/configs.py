"""Describes and alters the configs of topics, brokers and groups; each value is described with its source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TypeVar

import msgspec

from strandline.client.errors import error_of
from strandline.client.routing import Router
from strandline.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from strandline.protocol.types import Message

R = TypeVar("R", bound=Message)


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    FILE = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Resource(msgspec.Struct, frozen=True):
    """A broker resource with an empty name is the cluster-wide default of all brokers."""

    type: ResourceType
    name: str

    @property
    def broker_id(self) -> int | None:
        """The broker that must handle the request; None if any broker can."""
        is_broker = self.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
        return int(self.name) if is_broker and self.name.isdigit() else None

    def __str__(self) -> str:
        kind = self.type.name.lower().replace("_", "-")
        return f"{kind} {self.name!r}" if self.name else "the cluster-wide broker defaults"


class ConfigEntry(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    """None: sensitive, or not set."""
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: list[tuple[str, str | None, ConfigSource]]
    documentation: str | None


class ConfigAdmin:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def describe(
        self,
        resource: Resource,
        keys: Iterable[str] | None = None,
        *,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> list[ConfigEntry]:
        wanted = DescribeConfigsResource(
            resource_type=resource.type,
            resource_name=resource.name,
            configuration_keys=None if keys is None else list(keys),
        )
        request = DescribeConfigsRequest(
            resources=[wanted], include_synonyms=synonyms, include_documentation=documentation
        )
        response = await self._send(resource, request, DescribeConfigsResponse)
        result = response.results[0]
        if result.error_code:
            raise error_of(result.error_code, result.error_message or str(resource))
        return [_entry(entry) for entry in sorted(result.configs, key=lambda each: each.name)]

    async def alter(
        self,
        resource: Resource,
        *,
        set: Mapping[str, str] | None = None,
        unset: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Applies all changes, or none and raises KafkaError."""
        changes = [
            *(IncrementalAlterConfigsRequestAlterableConfig(name=key, value=text) for key, text in (set or {}).items()),
            *(IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=1, value=None) for key in unset),
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequestAlterConfigsResource(
                    resource_type=resource.type, resource_name=resource.name, configs=changes
                )
            ],
            validate_only=validate_only,
        )
        response = await self._send(resource, request, IncrementalAlterConfigsResponse)
        result = response.responses[0]
        if result.error_code:
            raise error_of(result.error_code, result.error_message or str(resource))

    async def _send(self, resource: Resource, request: Message, response_type: type[R]) -> R:
        broker_id = resource.broker_id
        if broker_id is not None:
            return await self._router.call_broker(broker_id, request, response_type)
        return await self._router.call(request, response_type)


def _entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        entry.name,
        entry.value,
        _source(entry.config_source),
        entry.read_only,
        entry.is_sensitive,
        [(each.name, each.value, _source(each.source)) for each in entry.synonyms],
        entry.documentation,
    )


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN
