"""The response to a request that fails as a whole, derived from the declarations of its request and response.

- A version whose response has an error code of its own carries the error there.
- In other versions every topic, partition or resource of the request is repeated in the response, each with the error:
  lists are paired when their elements have identifying fields in common (`_IDENTIFYING`), level by level, down to the
  first struct with an error code.

`handlers/tables` takes the derived response for every API unless its row has another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from strandline.handlers.context import ErrorResponse
from strandline.model.errors import ErrorCode
from strandline.protocol.apis import Api
from strandline.protocol.messages import acls, scram
from strandline.protocol.types import Field, Message, Primitive, Struct, layout

# Fields that identify an element of a list. A partition's number has several names.
_PARTITION: Final = ("partition", "partition_index", "partition_id")
_IDENTIFYING: Final = ("name", "topic", "topic_id", "resource_type", "resource_name", "key", "entity", *_PARTITION)


def derived_error_response(api: Api, fields: Mapping[str, Any] | None = None, *, repeat: bool = False) -> ErrorResponse:
    """`fields` are values that differ from the defaults in an error response, like an offset of -1. `repeat`
    repeats the error for every element of the request even where the response has an error code of its own."""
    values = fields or {}

    def error_response(request: Message, version: int, code: ErrorCode, why: str) -> Message:
        response = api.response()
        stated = _set_error(response, version, code, why, values)
        if repeat or not stated:
            for pair in _pairs(type(request), type(response), version):
                setattr(response, pair.target, _repeated(request, pair, version, code, why, values))
        return response

    return error_response


class _Pair(msgspec.Struct, frozen=True):
    """A list of the request and the list of the response that repeats its elements."""

    source: str
    target: str
    element: type[Struct]
    identity: tuple[tuple[str | None, str], ...]
    """(field of the request's element, field of the response's); None for an element that is a plain value."""
    inner: tuple[_Pair, ...] | None
    """The lists one level below; None where the element itself has an error code."""


def _set_error(struct: Struct, version: int, code: ErrorCode, why: str, values: Mapping[str, Any]) -> bool:
    """Whether this version of the struct has an error code."""
    stated = False
    for field in layout(type(struct)):
        if version in field.present:
            if field.name == "error_code":
                setattr(struct, field.name, code)
                stated = True
            elif field.name == "error_message":
                setattr(struct, field.name, why or None)
            elif field.name in values:
                setattr(struct, field.name, values[field.name])
    return stated


def _repeated(
    request: Any, pair: _Pair, version: int, code: ErrorCode, why: str, values: Mapping[str, Any]
) -> list[Struct]:
    elements = []
    for named in getattr(request, pair.source) or ():
        element = pair.element()
        for source, target in pair.identity:
            setattr(element, target, named if source is None else getattr(named, source))
        if pair.inner is None:
            _set_error(element, version, code, why, values)
        else:
            for inner in pair.inner:
                setattr(element, inner.target, _repeated(named, inner, version, code, why, values))
        elements.append(element)
    return elements


@cache
def _pairs(request: type[Struct], response: type[Struct], version: int) -> tuple[_Pair, ...]:
    pairs = []
    for target in _lists(response, version):
        element = target.kind
        if isinstance(element, Primitive):
            continue
        for source in _lists(request, version):
            identity = _identity(source.kind, element)
            if not identity:
                continue
            inner: tuple[_Pair, ...] | None = None
            if not any(field.name == "error_code" for field in layout(element)):
                inner = () if isinstance(source.kind, Primitive) else _pairs(source.kind, element, version)
            pairs.append(_Pair(source.name, target.name, element, identity, inner))
    return tuple(pairs)


def _lists(struct: type[Struct], version: int) -> list[Field]:
    return [field for field in layout(struct) if field.is_list and version in field.present]


def _identity(requested: Primitive | type[Struct], returned: type[Struct]) -> tuple[tuple[str | None, str], ...]:
    targets = [field.name for field in layout(returned) if field.name in _IDENTIFYING]
    if isinstance(requested, Primitive):
        return ((None, targets[0]),) if targets else ()
    sources = [field.name for field in layout(requested) if field.name in _IDENTIFYING]
    return tuple(
        (source, target)
        for target in targets
        for source in sources
        if source == target or (source in _PARTITION and target in _PARTITION)
    )


def create_acls_error(request: acls.CreateAclsRequest, version: int, code: ErrorCode, why: str) -> Message:
    """Results have no names: they are in the order of the request."""
    result = acls.AclCreationResult(error_code=code, error_message=why or None)
    return acls.CreateAclsResponse(results=[result for _ in request.creations])


def delete_acls_error(request: acls.DeleteAclsRequest, version: int, code: ErrorCode, why: str) -> Message:
    result = acls.DeleteAclsFilterResult(error_code=code, error_message=why or None)
    return acls.DeleteAclsResponse(filter_results=[result for _ in request.filters])


def alter_user_scram_credentials_error(
    request: scram.AlterUserScramCredentialsRequest, version: int, code: ErrorCode, why: str
) -> Message:
    """One result for each user, however many of its credentials the request names."""
    users = dict.fromkeys([each.name for each in request.deletions] + [each.name for each in request.upsertions])
    return scram.AlterUserScramCredentialsResponse(
        results=[
            scram.AlterUserScramCredentialsResult(user=user, error_code=code, error_message=why or None)
            for user in users
        ]
    )
