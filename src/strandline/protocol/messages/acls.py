"""Access control lists: DescribeAcls (29), CreateAcls (30), DeleteAcls (31)."""

from __future__ import annotations

from strandline.protocol.types import Message, Struct, i8, i16, i32, string


class DescribeAclsRequest(Message, api_key=29, versions=(1, 3), flexible=2):
    """v1 pattern types (KIP-290), v2 flexible, v3 users as a resource (KIP-373)."""

    resource_type_filter: i8 = 0
    resource_name_filter: string | None = ""
    pattern_type_filter: i8 = 3
    principal_filter: string | None = ""
    host_filter: string | None = ""
    operation: i8 = 0
    permission_type: i8 = 0


class DescribeAclsResponse(Message, api_key=29, versions=(1, 3), flexible=2):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = ""
    resources: list[DescribeAclsResource] = []


class DescribeAclsResource(Struct):
    resource_type: i8 = 0
    resource_name: string = ""
    pattern_type: i8 = 3
    acls: list[AclDescription] = []


class AclDescription(Struct):
    principal: string = ""
    host: string = ""
    operation: i8 = 0
    permission_type: i8 = 0


class CreateAclsRequest(Message, api_key=30, versions=(1, 3), flexible=2):
    """v1 pattern types (KIP-290), v2 flexible, v3 users as a resource (KIP-373)."""

    creations: list[AclCreation] = []


class AclCreation(Struct):
    resource_type: i8 = 0
    resource_name: string = ""
    resource_pattern_type: i8 = 3
    principal: string = ""
    host: string = ""
    operation: i8 = 0
    permission_type: i8 = 0


class CreateAclsResponse(Message, api_key=30, versions=(1, 3), flexible=2):
    throttle_time_ms: i32 = 0
    results: list[AclCreationResult] = []


class AclCreationResult(Struct):
    error_code: i16 = 0
    error_message: string | None = ""


class DeleteAclsRequest(Message, api_key=31, versions=(1, 3), flexible=2):
    """v1 pattern types (KIP-290), v2 flexible, v3 users as a resource (KIP-373)."""

    filters: list[DeleteAclsFilter] = []


class DeleteAclsFilter(Struct):
    resource_type_filter: i8 = 0
    resource_name_filter: string | None = ""
    pattern_type_filter: i8 = 3
    principal_filter: string | None = ""
    host_filter: string | None = ""
    operation: i8 = 0
    permission_type: i8 = 0


class DeleteAclsResponse(Message, api_key=31, versions=(1, 3), flexible=2):
    throttle_time_ms: i32 = 0
    filter_results: list[DeleteAclsFilterResult] = []


class DeleteAclsFilterResult(Struct):
    error_code: i16 = 0
    error_message: string | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = []


class DeleteAclsMatchingAcl(Struct):
    error_code: i16 = 0
    error_message: string | None = ""
    resource_type: i8 = 0
    resource_name: string = ""
    pattern_type: i8 = 3
    principal: string = ""
    host: string = ""
    operation: i8 = 0
    permission_type: i8 = 0
