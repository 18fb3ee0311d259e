"""Client quotas: DescribeClientQuotas (48), AlterClientQuotas (49)."""

from __future__ import annotations

from strandline.protocol.types import Message, Struct, boolean, f64, i8, i16, i32, string


class DescribeClientQuotasRequest(Message, api_key=48, versions=(0, 1), flexible=1):
    """v1 flexible (KIP-546)."""

    components: list[ComponentData] = []
    strict: boolean = False


class ComponentData(Struct):
    entity_type: string = ""
    match_type: i8 = 0
    match: string | None = ""


class DescribeClientQuotasResponse(Message, api_key=48, versions=(0, 1), flexible=1):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = ""
    entries: list[DescribeClientQuotasResponseEntryData] | None = []


class DescribeClientQuotasResponseEntryData(Struct):
    entity: list[EntityData] = []
    values: list[ValueData] = []


class EntityData(Struct):
    entity_type: string = ""
    entity_name: string | None = ""


class ValueData(Struct):
    key: string = ""
    value: f64 = 0.0


class AlterClientQuotasRequest(Message, api_key=49, versions=(0, 1), flexible=1):
    """v1 flexible (KIP-546)."""

    entries: list[AlterClientQuotasRequestEntryData] = []
    validate_only: boolean = False


class AlterClientQuotasRequestEntryData(Struct):
    entity: list[EntityData] = []
    ops: list[OpData] = []


class OpData(Struct):
    key: string = ""
    value: f64 = 0.0
    remove: boolean = False


class AlterClientQuotasResponse(Message, api_key=49, versions=(0, 1), flexible=1):
    throttle_time_ms: i32 = 0
    entries: list[AlterClientQuotasResponseEntryData] = []


class AlterClientQuotasResponseEntryData(Struct):
    error_code: i16 = 0
    error_message: string | None = ""
    entity: list[EntityData] = []
