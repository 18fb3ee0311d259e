"""DescribeConfigs (32) and ListConfigResources (74) from committed metadata; AlterConfigs (33) and
IncrementalAlterConfigs (44) are forwarded to the active controller, except for the log levels of this broker.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from msgspec.structs import replace

from strandline.handlers.broker_loggers import alter_loggers, describe_loggers
from strandline.handlers.context import BrokerContext, Call, NodeContext
from strandline.handlers.request_limits import check_request_limit
from strandline.metadata.effective_configs import (
    DescribedConfig,
    describe_broker,
    describe_client_metrics,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from strandline.metadata.values import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.topic_names import check_topic_name
from strandline.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from strandline.runtime.tasks import YieldCounter, yield_to_loop

_LISTABLE: Final = (
    TOPIC_RESOURCE,
    BROKER_RESOURCE,
    BROKER_LOGGER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
)


async def handle_describe_configs(
    broker: NodeContext, call: Call, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """A resource that is named twice with the same keys is described once, since a description is far larger than a
    name."""
    results: dict[tuple[int, str, tuple[str, ...]], DescribeConfigsResult] = {}
    yields = YieldCounter(call)
    for resource in request.resources:
        key = resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ())
        if key in results:
            continue
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            described = _describe(broker, resource)
            result.configs = [_shown(request, config) for config in described]
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.why
        results[key] = result
        if yields.due(1 + len(result.configs)):
            await yield_to_loop()
    return DescribeConfigsResponse(results=list(results.values()))


def _describe(broker: NodeContext, resource: DescribeConfigsResource) -> list[DescribedConfig]:
    # Null and an empty list both mean all keys.
    name, names = resource.resource_name, frozenset(resource.configuration_keys or ()) or None
    layers = broker.config.layers()
    if resource.resource_type == TOPIC_RESOURCE:
        check_topic_name(name)
        if broker.view.topic(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return describe_topic(broker.view.topic_configs(name), layers, names)
    if resource.resource_type == BROKER_RESOURCE:
        return _describe_broker(broker, name, names)
    if resource.resource_type == BROKER_LOGGER_RESOURCE:
        return describe_loggers(broker.node_id, name, names)
    if resource.resource_type == GROUP_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of a group may not be empty")
        return describe_group(broker.view.configs(GROUP_RESOURCE, name), layers, names)
    if resource.resource_type == CLIENT_METRICS_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of a metrics subscription may not be empty")
        return describe_client_metrics(broker.view.configs(CLIENT_METRICS_RESOURCE, name), names)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {resource.resource_type} have no configs")


def _describe_broker(broker: NodeContext, name: str, names: Collection[str] | None) -> list[DescribedConfig]:
    if name == "":
        return describe_cluster_defaults(broker.view.broker_configs(None), names)
    if name != str(broker.node_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}, not broker {name!r}")
    return describe_broker(broker.config.layers(), names)


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
        documentation=config.doc if request.include_documentation or config.doc == "" else None,
    )


async def handle_alter_configs(broker: BrokerContext, call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=await _alter(broker, call, request, AlterConfigsResponse))


async def handle_incremental_alter_configs(
    broker: BrokerContext, call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    responses = await _alter(broker, call, request, IncrementalAlterConfigsResponse)
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    broker: BrokerContext,
    call: Call,
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    response: type[AlterConfigsResponse | IncrementalAlterConfigsResponse],
) -> list[AlterConfigsResourceResponse]:
    """Forwards what is not handled here. The configs of a broker are altered through that broker only, since they are
    validated against its file."""
    check_request_limit(request)
    handled = [_handled_here(broker, resource, request) for resource in request.resources]
    rest = [resource for resource, result in zip(request.resources, handled, strict=True) if result is None]
    if not rest:
        return [result for result in handled if result is not None]
    call.park()
    forwarded = iter((await broker.controller.forward(call, replace(request, resources=rest), response)).responses)
    return [next(forwarded) if result is None else result for result in handled]


def _handled_here(
    broker: BrokerContext, resource: Any, request: AlterConfigsRequest | IncrementalAlterConfigsRequest
) -> AlterConfigsResourceResponse | None:
    kind, name = resource.resource_type, resource.resource_name
    result = AlterConfigsResourceResponse(resource_type=kind, resource_name=name, error_message=None)
    try:
        if kind == BROKER_RESOURCE and name not in ("", str(broker.node_id)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}, not broker {name!r}")
        if kind != BROKER_LOGGER_RESOURCE or not isinstance(request, IncrementalAlterConfigsRequest):
            return None
        alter_loggers(broker.node_id, resource, validate_only=request.validate_only)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.why
    return result


async def handle_list_config_resources(
    broker: BrokerContext, call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Version 0 lists metrics subscriptions only; an empty list of types means all types."""
    types = [CLIENT_METRICS_RESOURCE] if call.version == 0 else list(request.resource_types) or list(_LISTABLE)
    unknown = [kind for kind in types if kind not in _LISTABLE]
    if unknown:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"resource types {unknown} cannot be listed")
    found = []
    for kind in dict.fromkeys(types):
        if kind == TOPIC_RESOURCE:
            names = [topic.name for topic in broker.view.topics()]
        elif kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
            names = [str(info.id) for info in broker.view.brokers()]
        else:
            names = broker.view.config_resources(kind)
        found += [ConfigResource(resource_name=name, resource_type=kind) for name in names]
    return ListConfigResourcesResponse(config_resources=found)
