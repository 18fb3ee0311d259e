"""Settings of topics, brokers and the cluster: described with where each value comes from, set, unset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

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


@dataclass(frozen=True, slots=True)
class Resource:
    """An empty broker name stands for the defaults of all brokers."""

    type: ResourceType
    name: str

    @property
    def broker_id(self) -> int | None:
        """The one broker that can answer, where only it can."""
        is_broker = self.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
        return int(self.name) if is_broker and self.name.isdigit() else None

    def __str__(self) -> str:
        kind = self.type.name.lower().replace("_", "-")
        return f"{kind} {self.name!r}" if self.name else "the cluster-wide broker defaults"


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None  # None: sensitive, or without a value
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
        answer = await self._ask(resource, request, DescribeConfigsResponse)
        result = answer.results[0]
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
        """All of it, or nothing and a KafkaError."""
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
        answer = await self._ask(resource, request, IncrementalAlterConfigsResponse)
        result = answer.responses[0]
        if result.error_code:
            raise error_of(result.error_code, result.error_message or str(resource))

    async def _ask(self, resource: Resource, request: Message, response: type[R]) -> R:
        broker_id = resource.broker_id
        if broker_id is not None:
            return await self._router.call_broker(broker_id, request, response)
        return await self._router.call(request, response)


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
