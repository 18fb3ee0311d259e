"""What the coordinator is told by configuration about one consumer group: broker keys, some overridden per group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from strandline.model.config_keys.broker import config_field

_PER_GROUP: Final[Mapping[str, str]] = {
    "session_timeout_ms": "consumer.session.timeout.ms",
    "heartbeat_interval_ms": "consumer.heartbeat.interval.ms",
    "assignment_interval_ms": "consumer.assignment.interval.ms",
}
"""Keys of the resource type GROUP."""
_LIMITS: Final[Mapping[str, tuple[str, str]]] = {
    "session_timeout_ms": ("min_session_timeout_ms", "max_session_timeout_ms"),
    "heartbeat_interval_ms": ("min_heartbeat_interval_ms", "max_heartbeat_interval_ms"),
    "assignment_interval_ms": ("min_assignment_interval_ms", "max_assignment_interval_ms"),
}


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    session_timeout_ms: int = config_field("group.consumer.session.timeout.ms")
    min_session_timeout_ms: int = config_field("group.consumer.min.session.timeout.ms")
    max_session_timeout_ms: int = config_field("group.consumer.max.session.timeout.ms")
    heartbeat_interval_ms: int = config_field("group.consumer.heartbeat.interval.ms")
    min_heartbeat_interval_ms: int = config_field("group.consumer.min.heartbeat.interval.ms")
    max_heartbeat_interval_ms: int = config_field("group.consumer.max.heartbeat.interval.ms")
    assignment_interval_ms: int = config_field("group.consumer.assignment.interval.ms")
    min_assignment_interval_ms: int = config_field("group.consumer.min.assignment.interval.ms")
    max_assignment_interval_ms: int = config_field("group.consumer.max.assignment.interval.ms")
    max_size: int = config_field("group.consumer.max.size")
    assignors: tuple[str, ...] = config_field("group.consumer.assignors")
    migration_policy: str = config_field("group.consumer.migration.policy")
    regex_refresh_interval_ms: int = config_field("group.consumer.regex.refresh.interval.ms")

    @classmethod
    def of(cls, get: Callable[[str], Any], group_configs: Mapping[str, str]) -> ConsumerSettings:
        """`get` returns the effective value of a broker key; `group_configs` are the dynamic configs of the group. A
        value outside of the broker's limits, which may have changed since it was set, counts as the nearest limit."""
        values = {field.name: get(field.encode_name) for field in msgspec.structs.fields(cls)}
        for name, key in _PER_GROUP.items():
            if key in group_configs:
                least, most = (values[limit] for limit in _LIMITS[name])
                values[name] = max(least, min(int(group_configs[key]), most))
        return cls(**values)

    @property
    def default_assignor(self) -> str:
        return self.assignors[0]

    @property
    def may_upgrade(self) -> bool:
        return self.migration_policy.lower() in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        return self.migration_policy.lower() in ("downgrade", "bidirectional")
