"""DescribeClientQuotas (48), from committed metadata.

A filter has components: an entity type with a name, the default, or any name. An entity is described if it matches
every component; with a strict filter it must have no other components.
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

EXACT, DEFAULT, SPECIFIED = range(3)


async def handle_describe_client_quotas(
    node: NodeContext, call: Call, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    wanted: dict[str, ComponentData] = {}
    for component in request.components:
        _check(component, wanted)
        wanted[component.entity_type] = component
    if IP in wanted and len(wanted) > 1:
        raise _invalid("ip quotas cannot be combined with users or client ids")
    entries: list[DescribeClientQuotasResponseEntryData] = []
    # A strict filter without components matches nothing: every entity has at least one.
    quotas = {} if request.strict and not wanted else node.view.quotas()
    yields = YieldCounter(call)
    for entity, values in quotas.items():
        if yields.due():
            await yield_to_loop()
        if _matches(entity, wanted) and not (request.strict and len(entity) != len(wanted)):
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
        raise _invalid("a component of the filter has no entity type")
    if kind in before:
        raise _invalid(f"the filter has two components of type {kind}")
    if kind not in (USER, CLIENT_ID, IP):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"unknown entity type {kind!r}")
    if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
        raise _invalid(f"unknown match type {component.match_type}")
    if (component.match is None) == (component.match_type == EXACT):
        raise _invalid("an exact match needs a name, and other matches must not have one")


def _matches(entity: QuotaEntity, wanted: dict[str, ComponentData]) -> bool:
    names = dict(entity)
    for kind, component in wanted.items():
        if kind not in names:
            return False
        # For the default `match` is None, which is also the name of the default entity.
        if component.match_type != SPECIFIED and names[kind] != component.match:
            return False
    return True


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
