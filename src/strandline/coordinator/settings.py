"""What the group coordinator is told by configuration: the values of Kafka's keys that apply to every group."""

from __future__ import annotations

import msgspec


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    max_size: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    initial_rebalance_delay_ms: int
    offset_metadata_max_bytes: int
    offsets_retention_ms: int
    offsets_retention_check_interval_ms: int
