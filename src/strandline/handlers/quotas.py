"""DescribeClientQuotas (48), from committed metadata.

A filter names some types of entities and for each a name, the default, or any name. An entity is described if it fits
every part of the filter; a strict filter wants it to have no other parts.
"""

from __future__ import annotations

from strandline.controller.quotas import CLIENT_ID, IP, USER
from strandline.handlers.context import Call, NodeContext
from strandline.metadata.values import QuotaEntity
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClientQuotasResponseEntryData,
    EntityData,
    ValueData,
)
from strandline.runtime.tasks import YieldCounter, yield_to_loop

EXACTLY, DEFAULT, SPECIFIED = range(3)


async def handle_describe_client_quotas(
    node: NodeContext, call: Call, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    wanted: dict[str, ComponentData] = {}
    for component in request.components:
        _check(component, wanted)
        wanted[component.entity_type] = component
    if IP in wanted and len(wanted) > 1:
        raise _invalid("addresses have quotas of their own, never together with users or client ids")
    entries: list[DescribeClientQuotasResponseEntryData] = []
    # A strict filter that names nothing would fit an entity of nothing.
    quotas = {} if request.strict and not wanted else node.view.quotas()
    yields = YieldCounter(call)
    for entity, values in quotas.items():
        if yields.due():
            await yield_to_loop()
        if _fits(entity, wanted) and not (request.strict and len(entity) != len(wanted)):
            entries.append(
                DescribeClientQuotasResponseEntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=value) for key, value in sorted(values.items())],
                )
            )
    return DescribeClientQuotasResponse(entries=entries)


def _check(component: ComponentData, before: dict[str, ComponentData]) -> None:
    kind = component.entity_type
    if not kind:
        raise _invalid("a part of the filter names no type of entities")
    if kind in before:
        raise _invalid(f"{kind} is in the filter twice")
    if kind not in (USER, CLIENT_ID, IP):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there are no entities of type {kind!r}")
    if component.match_type not in (EXACTLY, DEFAULT, SPECIFIED):
        raise _invalid(f"{component.match_type} is not a way to match")
    if (component.match is None) == (component.match_type == EXACTLY):
        raise _invalid("a name belongs to an exact match, and only to that")


def _fits(entity: QuotaEntity, wanted: dict[str, ComponentData]) -> bool:
    names = dict(entity)
    for kind, component in wanted.items():
        if kind not in names:
            return False
        # For the default `match` is None, as the name of the default entity is.
        if component.match_type != SPECIFIED and names[kind] != component.match:
            return False
    return True


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
