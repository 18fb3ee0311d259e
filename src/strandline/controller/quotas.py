"""Client quotas: AlterClientQuotas (49). Throttling reads them from committed metadata.

A quota belongs to an entity: a user, a client id, both, or an IP address, where None is the default for those without a
quota of their own. Each entity of a request succeeds or fails as a whole, and only changed values are written.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from strandline.controller.decisions import Decision, check_size
from strandline.metadata.values import QuotaEntity
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.metadata_records import ClientQuotaRecord
from strandline.protocol.messages.metadata_records import EntityData as RecordEntity
from strandline.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntityData,
    OpData,
)
from strandline.protocol.types import Message

USER, CLIENT_ID, IP = "user", "client-id", "ip"

# Key → the largest whole number allowed; None for a key that allows any number above zero.
_LONG, _INT = 2**63 - 1, 2**31 - 1
_OF_CLIENTS: Final[Mapping[str, int | None]] = {
    "producer_byte_rate": _LONG,
    "consumer_byte_rate": _LONG,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_OF_ADDRESSES: Final[Mapping[str, int | None]] = {"connection_creation_rate": _INT}
# How far a value that must be a whole number may differ from one.
_ROUNDING: Final = 1e-6
# A name whose last label is a number would be a malformed address (`_is_address`).
_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*\.?")


class Quotas:
    def __init__(self, view: View) -> None:
        self._view = view

    def alter(self, request: AlterClientQuotasRequest) -> Decision[AlterClientQuotasResponse]:
        """An entity that is given twice has one result, an error."""
        entries = {_entity(entry.entity): entry for entry in request.entries}
        times = Counter(_entity(entry.entity) for entry in request.entries)
        records: list[Message] = []
        results: list[AlterClientQuotasResponseEntryData] = []
        for entity, entry in entries.items():
            code, why = ErrorCode.NONE, None
            try:
                if times[entity] > 1:
                    raise _invalid("an entity is given twice")
                records += self._change(entity, entry)
            except KafkaError as error:
                code, why = error.code, error.why
            results.append(AlterClientQuotasResponseEntryData(error_code=code, error_message=why, entity=entry.entity))
        check_size(len(records))
        return Decision(AlterClientQuotasResponse(entries=results), [] if request.validate_only else records)

    def _change(self, entity: QuotaEntity, entry: AlterClientQuotasRequestEntryData) -> list[Message]:
        keys = _keys(entity)
        if len({operation.key for operation in entry.ops}) != len(entry.ops):
            raise _invalid("a key is given twice")
        before = self._view.quota(entity)
        changed = []
        for operation in entry.ops:
            if operation.remove:
                if operation.key in before:
                    changed.append(operation)
                continue
            _check(keys, operation)
            if before.get(operation.key) != operation.value:
                changed.append(operation)
        return [_record(entity, operation) for operation in changed]


def _entity(parts: list[EntityData]) -> QuotaEntity:
    """The entity that a request names. If it names a type twice, the last name counts, as in Kafka."""
    names = {part.entity_type: part.entity_name for part in parts}
    return tuple((kind, names[kind]) for kind in sorted(names))


def _keys(entity: QuotaEntity) -> Mapping[str, int | None]:
    """The quotas that an entity can have."""
    types = [kind for kind, _ in entity]
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"{kind!r} is not an entity type")
        if name == "":
            raise _invalid(f"a {kind} must not be empty; null is the default of all others")
    if not types:
        raise _invalid("the entity is empty")
    if IP not in types:
        return _OF_CLIENTS
    if len(types) > 1:
        raise _invalid("an ip entity cannot be combined with a user or client id")
    address = entity[0][1]
    if address is not None and not _is_address(address):
        raise _invalid(f"{address!r} is neither an IP address nor a host name")
    return _OF_ADDRESSES


def _is_address(text: str) -> bool:
    from ipaddress import ip_address  # slow to import, and not needed to start a node

    try:
        ip_address(text)
    except ValueError:
        last = text.rstrip(".").rpartition(".")[2]
        return _HOST_NAME.fullmatch(text) is not None and not last.isdigit()
    return True


def _check(keys: Mapping[str, int | None], operation: OpData) -> None:
    key, value = operation.key, operation.value
    if key not in keys:
        raise _invalid(f"{key!r} is not a quota of this entity type")
    if not math.isfinite(value) or value <= 0:
        raise _invalid(f"{key} must be a number above zero")
    largest = keys[key]
    if largest is not None and (value > largest or abs(value - math.floor(value + _ROUNDING)) > _ROUNDING):
        raise _invalid(f"{key} must be a whole number up to {largest}")


def _record(entity: QuotaEntity, operation: OpData) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=[RecordEntity(entity_type=kind, entity_name=name) for kind, name in entity],
        key=operation.key,
        value=0.0 if operation.remove else operation.value,
        remove=operation.remove,
    )


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
