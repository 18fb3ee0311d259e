"""Access control entries: CreateAcls (30), DeleteAcls (31). The authorizer reads them from committed metadata.

Without an authorizer ACLs would protect nothing, so both requests fail with SECURITY_DISABLED, as in Kafka. Creating an
entry that exists succeeds and writes nothing; entries are deleted by filters, each with its own result.
"""

from __future__ import annotations

from random import Random
from typing import Final

from strandline.controller.decisions import MAX_RECORDS_PER_DECISION, Decision, check_size
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid, random_uuid
from strandline.protocol.messages.acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from strandline.protocol.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from strandline.protocol.types import Message

# Kafka's codes. ANY (1) matches everything, in a filter only; 0 is a code that the reader does not know.
ANY: Final = 1
_RESOURCES: Final = range(2, 8)
_MATCH, _LITERAL, _PREFIXED = 2, 3, 4
_OPERATIONS: Final = range(2, 16)
_DENY, _ALLOW = 2, 3
# The literal name of all resources of a type.
WILDCARD: Final = "*"

Entry = tuple[int, str, int, str, str, int, int]


class Acls:
    def __init__(self, view: View, random: Random, *, authorizer: bool) -> None:
        self._view = view
        self._random = random
        self._authorizer = authorizer

    def create(self, request: CreateAclsRequest) -> Decision[CreateAclsResponse]:
        self._check_enabled()
        known = {_entry(acl) for acl in self._view.acls()}
        records: list[Message] = []
        results: list[AclCreationResult] = []
        for creation in request.creations:
            code, why = ErrorCode.NONE, None
            try:
                _check(creation)
                record = _record(creation, random_uuid(self._random))
                if _entry(record) not in known:
                    known.add(_entry(record))
                    records.append(record)
            except KafkaError as error:
                code, why = error.code, error.why
            results.append(AclCreationResult(error_code=code, error_message=why))
        check_size(len(records))
        return Decision(CreateAclsResponse(results=results), records)

    def delete(self, request: DeleteAclsRequest) -> Decision[DeleteAclsResponse]:
        self._check_enabled()
        acls = sorted(self._view.acls(), key=_entry)
        deleted: dict[Uuid, None] = {}
        results: list[DeleteAclsFilterResult] = []
        for filter_ in request.filters:
            try:
                _check_filter(filter_)
            except KafkaError as error:
                results.append(DeleteAclsFilterResult(error_code=error.code, error_message=error.why))
                continue
            matching = [acl for acl in acls if matches(filter_, acl)]
            deleted.update((acl.id, None) for acl in matching)
            results.append(
                DeleteAclsFilterResult(error_message=None, matching_acls=[_described(acl) for acl in matching])
            )
        if len(deleted) > MAX_RECORDS_PER_DECISION:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{len(deleted)} entries are too many to delete at once")
        records: list[Message] = [RemoveAccessControlEntryRecord(id=id_) for id_ in deleted]
        return Decision(DeleteAclsResponse(filter_results=results), records)

    def _check_enabled(self) -> None:
        if not self._authorizer:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured")


def matches(filter_: DeleteAclsFilter, acl: AccessControlEntryRecord) -> bool:
    return (
        filter_.resource_type_filter in (ANY, acl.resource_type)
        and _matches_name(filter_, acl)
        and filter_.principal_filter in (None, acl.principal)
        and filter_.host_filter in (None, acl.host)
        and filter_.operation in (ANY, acl.operation)
        and filter_.permission_type in (ANY, acl.permission_type)
    )


def _matches_name(filter_: DeleteAclsFilter, acl: AccessControlEntryRecord) -> bool:
    name, kind = filter_.resource_name_filter, filter_.pattern_type_filter
    if kind not in (ANY, _MATCH, acl.pattern_type):
        return False
    if name is None or name == acl.resource_name:
        return True
    if kind != _MATCH:
        return False
    # MATCH: every entry that applies to a resource of this name (KIP-290).
    if acl.pattern_type == _PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name == WILDCARD


def _check(creation: AclCreation) -> None:
    if creation.resource_type not in _RESOURCES:
        raise _invalid(f"{creation.resource_type} is not a resource type")
    if creation.resource_pattern_type not in (_LITERAL, _PREFIXED):
        raise _invalid(f"a pattern of type {creation.resource_pattern_type} cannot be created")
    if creation.operation not in _OPERATIONS:
        raise _invalid(f"{creation.operation} is not an operation")
    if creation.permission_type not in (_DENY, _ALLOW):
        raise _invalid(f"{creation.permission_type} is not a permission type")
    if not creation.resource_name:
        raise _invalid("the resource has no name")
    if ":" not in creation.principal:
        raise _invalid(f"{creation.principal!r} is not a principal: it has no type, as in User:name")


def _check_filter(filter_: DeleteAclsFilter) -> None:
    known = (
        filter_.resource_type_filter == ANY or filter_.resource_type_filter in _RESOURCES,
        filter_.pattern_type_filter in (ANY, _MATCH, _LITERAL, _PREFIXED),
        filter_.operation == ANY or filter_.operation in _OPERATIONS,
        filter_.permission_type in (ANY, _DENY, _ALLOW),
    )
    if not all(known):
        raise _invalid("the filter contains an unknown code")


def _entry(acl: AccessControlEntryRecord) -> Entry:
    """The identity of an entry: every field except the id."""
    return (
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def _record(creation: AclCreation, id_: Uuid) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=id_,
        resource_type=creation.resource_type,
        resource_name=creation.resource_name,
        pattern_type=creation.resource_pattern_type,
        principal=creation.principal,
        host=creation.host,
        operation=creation.operation,
        permission_type=creation.permission_type,
    )


def _described(acl: AccessControlEntryRecord) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
