"""What the group coordinator is told by configuration: the values of Kafka's keys that apply to every group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from strandline.model.config_keys.broker import config_field


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    max_size: int = config_field("group.max.size")
    min_session_timeout_ms: int = config_field("group.min.session.timeout.ms")
    max_session_timeout_ms: int = config_field("group.max.session.timeout.ms")
    initial_rebalance_delay_ms: int = config_field("group.initial.rebalance.delay.ms")
    offset_metadata_max_bytes: int = config_field("offset.metadata.max.bytes")
    offsets_retention_minutes: int = config_field("offsets.retention.minutes")
    offsets_retention_check_interval_ms: int = config_field("offsets.retention.check.interval.ms")

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000

    @classmethod
    def of(cls, get: Callable[[str], Any]) -> GroupSettings:
        """`get` returns the effective value of a broker key."""
        return cls(**{field.name: get(field.encode_name) for field in msgspec.structs.fields(cls)})
