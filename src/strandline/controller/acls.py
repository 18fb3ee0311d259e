"""Access control entries: CreateAcls (30), DeleteAcls (31). Kept here; whoever judges by them reads committed metadata.

Without an authorizer nobody would judge by them, and a list that protects nothing is worse than none: then both are
answered SECURITY_DISABLED, as in Kafka. An entry that exists already is created without a word; entries are deleted by
filters, each of which is answered for itself.
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

# Kafka's numbers. ANY (1) matches everything, in a filter only; 0 stands for what a reader does not know.
ANY: Final = 1
_RESOURCES: Final = range(2, 8)
_MATCH, _LITERAL, _PREFIXED = 2, 3, 4
_OPERATIONS: Final = range(2, 16)
_DENY, _ALLOW = 2, 3
# The literal name that means every resource of a type.
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
        doomed: dict[Uuid, None] = {}
        results: list[DeleteAclsFilterResult] = []
        for wanted in request.filters:
            try:
                _check_filter(wanted)
            except KafkaError as error:
                results.append(DeleteAclsFilterResult(error_code=error.code, error_message=error.why))
                continue
            matching = [acl for acl in acls if matches(wanted, acl)]
            doomed.update((acl.id, None) for acl in matching)
            results.append(
                DeleteAclsFilterResult(error_message=None, matching_acls=[_described(acl) for acl in matching])
            )
        if len(doomed) > MAX_RECORDS_PER_DECISION:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{len(doomed)} entries are too many to delete at once")
        records: list[Message] = [RemoveAccessControlEntryRecord(id=id_) for id_ in doomed]
        return Decision(DeleteAclsResponse(filter_results=results), records)

    def _check_enabled(self) -> None:
        if not self._authorizer:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured")


def matches(wanted: DeleteAclsFilter, acl: AccessControlEntryRecord) -> bool:
    return (
        wanted.resource_type_filter in (ANY, acl.resource_type)
        and _matches_name(wanted, acl)
        and wanted.principal_filter in (None, acl.principal)
        and wanted.host_filter in (None, acl.host)
        and wanted.operation in (ANY, acl.operation)
        and wanted.permission_type in (ANY, acl.permission_type)
    )


def _matches_name(wanted: DeleteAclsFilter, acl: AccessControlEntryRecord) -> bool:
    name, kind = wanted.resource_name_filter, wanted.pattern_type_filter
    if kind not in (ANY, _MATCH, acl.pattern_type):
        return False
    if name is None or name == acl.resource_name:
        return True
    if kind != _MATCH:
        return False
    # What would be asked about a resource of this name (KIP-290).
    if acl.pattern_type == _PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name == WILDCARD


def _check(creation: AclCreation) -> None:
    if creation.resource_type not in _RESOURCES:
        raise _invalid(f"{creation.resource_type} is not a type of resources")
    if creation.resource_pattern_type not in (_LITERAL, _PREFIXED):
        raise _invalid(f"a pattern of type {creation.resource_pattern_type} cannot be created")
    if creation.operation not in _OPERATIONS:
        raise _invalid(f"{creation.operation} is not an operation")
    if creation.permission_type not in (_DENY, _ALLOW):
        raise _invalid(f"{creation.permission_type} is neither a denial nor a permission")
    if not creation.resource_name:
        raise _invalid("the resource has no name")
    if ":" not in creation.principal:
        raise _invalid(f"{creation.principal!r} is not a principal: it has no type, as in User:name")


def _check_filter(wanted: DeleteAclsFilter) -> None:
    known = (
        wanted.resource_type_filter == ANY or wanted.resource_type_filter in _RESOURCES,
        wanted.pattern_type_filter in (ANY, _MATCH, _LITERAL, _PREFIXED),
        wanted.operation == ANY or wanted.operation in _OPERATIONS,
        wanted.permission_type in (ANY, _DENY, _ALLOW),
    )
    if not all(known):
        raise _invalid("the filter asks for something that does not exist")


def _entry(acl: AccessControlEntryRecord) -> Entry:
    """What makes two entries the same: everything but the id."""
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
