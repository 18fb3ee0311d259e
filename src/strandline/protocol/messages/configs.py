"""Configs: DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74)."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, boolean, i8, i16, i32, ignorable, since, string


class DescribeConfigsRequest(Message, api_key=32, versions=(1, 4), flexible=4):
    """v1 synonyms (KIP-226), v3 documentation (KIP-569), v4 flexible."""

    resources: list[DescribeConfigsResource] = []
    include_synonyms: boolean = False
    include_documentation: Annotated[boolean, since(3)] = False


class DescribeConfigsResource(Struct):
    resource_type: i8 = 0
    resource_name: string = ""
    configuration_keys: list[string] | None = []


class DescribeConfigsResponse(Message, api_key=32, versions=(1, 4), flexible=4):
    """v1 source and synonyms, v3 type and documentation, v4 flexible."""

    throttle_time_ms: i32 = 0
    results: list[DescribeConfigsResult] = []


class DescribeConfigsResult(Struct):
    error_code: i16 = 0
    error_message: string | None = ""
    resource_type: i8 = 0
    resource_name: string = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResourceResult(Struct):
    name: string = ""
    value: string | None = ""
    read_only: boolean = False
    config_source: i8 = -1
    is_sensitive: boolean = False
    synonyms: list[DescribeConfigsSynonym] = []
    config_type: Annotated[i8, since(3), ignorable] = 0
    documentation: Annotated[string | None, since(3), ignorable] = ""


class DescribeConfigsSynonym(Struct):
    name: string = ""
    value: string | None = ""
    source: i8 = 0


class AlterConfigsRequest(Message, api_key=33, versions=(0, 2), flexible=2):
    """Replaces all configs of a resource. v2 flexible."""

    resources: list[AlterConfigsRequestAlterConfigsResource] = []
    validate_only: boolean = False


class AlterConfigsRequestAlterConfigsResource(Struct):
    resource_type: i8 = 0
    resource_name: string = ""
    configs: list[AlterConfigsRequestAlterableConfig] = []


class AlterConfigsRequestAlterableConfig(Struct):
    name: string = ""
    value: string | None = ""


class AlterConfigsResponse(Message, api_key=33, versions=(0, 2), flexible=2):
    throttle_time_ms: i32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class AlterConfigsResourceResponse(Struct):
    error_code: i16 = 0
    error_message: string | None = ""
    resource_type: i8 = 0
    resource_name: string = ""


class IncrementalAlterConfigsRequest(Message, api_key=44, versions=(0, 1), flexible=1):
    """Sets, deletes, appends to or subtracts from single keys (KIP-339). v1 flexible."""

    resources: list[IncrementalAlterConfigsRequestAlterConfigsResource] = []
    validate_only: boolean = False


class IncrementalAlterConfigsRequestAlterConfigsResource(Struct):
    resource_type: i8 = 0
    resource_name: string = ""
    configs: list[IncrementalAlterConfigsRequestAlterableConfig] = []


class IncrementalAlterConfigsRequestAlterableConfig(Struct):
    name: string = ""
    config_operation: i8 = 0  # 0 set, 1 delete, 2 append, 3 subtract
    value: string | None = ""


class IncrementalAlterConfigsResponse(Message, api_key=44, versions=(0, 1), flexible=1):
    throttle_time_ms: i32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class ListConfigResourcesRequest(Message, api_key=74, versions=(0, 1), flexible=0):
    """v0 lists client metrics only, v1 lists by resource type (KIP-1142)."""

    resource_types: Annotated[list[i8], since(1)] = []


class ListConfigResourcesResponse(Message, api_key=74, versions=(0, 1), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    config_resources: list[ConfigResource] = []


class ConfigResource(Struct):
    resource_name: string = ""
    resource_type: Annotated[i8, since(1), ignorable] = 16
