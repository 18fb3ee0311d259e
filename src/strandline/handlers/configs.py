"""DescribeConfigs (32) and ListConfigResources (74) from committed metadata; AlterConfigs (33) and
IncrementalAlterConfigs (44) go to the active controller. Left out: loggers as configuration (BROKER_LOGGER).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from strandline.controller.topics import check_topic_name
from strandline.handlers.context import Broker, Call
from strandline.metadata.effective_settings import (
    DescribedConfig,
    describe_broker,
    describe_client_metrics,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from strandline.metadata.values import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.configs import (
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_LISTABLE: Final = (TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)


async def handle_describe_configs(
    broker: Broker, call: Call, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        result = DescribeConfigsResult(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            described = _describe(broker, resource)
            result.configs = [_shown(request, config) for config in described]
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.why
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _describe(broker: Broker, resource: DescribeConfigsResource) -> list[DescribedConfig]:
    name, names = resource.resource_name, resource.configuration_keys
    layers = broker.settings.layers()
    if resource.resource_type == TOPIC_RESOURCE:
        check_topic_name(name)
        if broker.view.topic(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return describe_topic(broker.view.topic_configs(name), layers, names)
    if resource.resource_type == BROKER_RESOURCE:
        return _describe_broker(broker, name, names)
    if resource.resource_type == GROUP_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a group's name may not be empty")
        return describe_group(broker.view.configs(GROUP_RESOURCE, name), layers, names)
    if resource.resource_type == CLIENT_METRICS_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a metrics subscription's name may not be empty")
        return describe_client_metrics(broker.view.configs(CLIENT_METRICS_RESOURCE, name), names)
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"resources of type {resource.resource_type} have no configuration here"
    )


def _describe_broker(broker: Broker, name: str, names: Collection[str] | None) -> list[DescribedConfig]:
    if name == "":
        return describe_cluster_defaults(broker.view.broker_configs(None), names)
    if name != str(broker.node_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}; ask broker {name!r} itself")
    return describe_broker(broker.settings.layers(), names)


def _shown(request: DescribeConfigsRequest, config: DescribedConfig) -> DescribeConfigsResourceResult:
    synonyms = config.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=config.source,
        is_sensitive=config.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in synonyms
        ],
        config_type=config.kind,
        documentation=config.doc if request.include_documentation else None,
    )


async def handle_list_config_resources(
    broker: Broker, call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Version 0 knows metrics subscriptions only; an empty list of types asks for all of them."""
    types = [CLIENT_METRICS_RESOURCE] if call.version == 0 else list(request.resource_types) or list(_LISTABLE)
    unknown = [kind for kind in types if kind not in _LISTABLE]
    if unknown:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"resource types {unknown} cannot be listed")
    found = []
    for kind in dict.fromkeys(types):
        if kind == TOPIC_RESOURCE:
            names = [topic.name for topic in broker.view.topics()]
        elif kind == BROKER_RESOURCE:
            names = [str(info.id) for info in broker.view.brokers()]
        else:
            names = broker.view.config_resources(kind)
        found += [ConfigResource(resource_name=name, resource_type=kind) for name in names]
    return ListConfigResourcesResponse(config_resources=found)
