"""The keys of groups and of client metrics subscriptions, and the rules between them.

Used by `controller/configs` to check changes and by `metadata/effective_configs` to describe. A group's value must be
between the broker's `group.<kind>.min.…` and `group.<kind>.max.…`, so a check needs the broker's values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from strandline.model.config_keys.broker import inherit_defaults
from strandline.model.config_keys.key import (
    ConfigError,
    ConfigKey,
    ConfigValue,
    Items,
    OneOf,
    Satisfies,
    by_name,
)
from strandline.model.config_keys.key_types import INHERITED, boolean, integer, listing, string, synonym

# ISO 8601: days may be combined with hours, minutes and seconds; P and T must each be followed by a component.
_DURATION: Final = re.compile(
    r"P(?=[0-9T])(?:([0-9]+)D)?(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]{0,9})?)S)?)?",
    re.IGNORECASE,
)


def _offset_reset_problem(value: ConfigValue) -> str | None:
    assert isinstance(value, str)
    if value in ("latest", "earliest"):
        return None
    kind, _, duration = value.partition(":")
    if kind == "by_duration" and _DURATION.fullmatch(duration):
        return None
    return "must be latest, earliest, or by_duration: followed by a duration such as PT1H or P2DT30M"


_MATCHABLE: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def _match_problem(value: ConfigValue) -> str | None:
    assert isinstance(value, tuple)
    for item in value:
        name, equals, pattern = (part.strip() for part in item.partition("="))
        if not equals or name not in _MATCHABLE:
            return f"items must be name=pattern with a name among {', '.join(_MATCHABLE)}"
        try:
            re.compile(pattern)
        except re.error as error:
            return f"{pattern!r} is not a regular expression: {error}"
    return Items().problem(value)


GROUP_KEYS: Final[Mapping[str, ConfigKey]] = by_name(
    inherit_defaults(
        (
            integer(
                "consumer.session.timeout.ms",
                INHERITED,
                "A member without a heartbeat for this long is removed.",
                at_least=1,
                synonyms=synonym("group.consumer.session.timeout.ms"),
            ),
            integer(
                "consumer.heartbeat.interval.ms",
                INHERITED,
                "Heartbeat interval of members.",
                at_least=1,
                synonyms=synonym("group.consumer.heartbeat.interval.ms"),
            ),
            integer(
                "consumer.assignment.interval.ms",
                INHERITED,
                "Shortest time between two assignments of the group.",
                at_least=0,
                synonyms=synonym("group.consumer.assignment.interval.ms"),
            ),
            integer(
                "share.session.timeout.ms",
                INHERITED,
                "A member of the share group without a heartbeat for this long is removed.",
                at_least=1,
                synonyms=synonym("group.share.session.timeout.ms"),
            ),
            integer(
                "share.heartbeat.interval.ms",
                INHERITED,
                "Heartbeat interval of members of the share group.",
                at_least=1,
                synonyms=synonym("group.share.heartbeat.interval.ms"),
            ),
            integer(
                "share.record.lock.duration.ms",
                INHERITED,
                "How long a delivered record stays locked for its consumer.",
                at_least=1_000,
                synonyms=synonym("group.share.record.lock.duration.ms"),
            ),
            integer(
                "share.delivery.count.limit",
                INHERITED,
                "Deliveries of a record before it is archived.",
                at_least=2,
                synonyms=synonym("group.share.delivery.count.limit"),
            ),
            integer(
                "share.partition.max.record.locks",
                INHERITED,
                "Records of one partition that may be in flight at the same time.",
                at_least=100,
                synonyms=synonym("group.share.partition.max.record.locks"),
            ),
            string(
                "share.auto.offset.reset",
                "latest",
                "Where a new share group starts: latest, earliest, or by_duration:<ISO 8601 duration>.",
                allowed=Satisfies(_offset_reset_problem),
            ),
            string(
                "share.isolation.level",
                "read_uncommitted",
                "Whether a share group sees records of transactions that are still open.",
                allowed=OneOf(("read_committed", "read_uncommitted")),
            ),
            boolean("share.renew.acknowledge.enable", True, "Whether consumers may renew the lock of a record."),
            integer(
                "share.assignment.interval.ms",
                INHERITED,
                "Shortest time between two assignments of the share group.",
                at_least=0,
                synonyms=synonym("group.share.assignment.interval.ms"),
            ),
            integer(
                "streams.session.timeout.ms",
                INHERITED,
                "A member of the streams group without a heartbeat for this long is removed.",
                at_least=1,
                synonyms=synonym("group.streams.session.timeout.ms"),
            ),
            integer(
                "streams.heartbeat.interval.ms",
                INHERITED,
                "Heartbeat interval of members of the streams group.",
                at_least=1,
                synonyms=synonym("group.streams.heartbeat.interval.ms"),
            ),
            integer(
                "streams.num.standby.replicas",
                INHERITED,
                "Standby copies kept of each stateful task.",
                at_least=0,
                synonyms=synonym("group.streams.num.standby.replicas"),
            ),
            integer(
                "streams.initial.rebalance.delay.ms",
                INHERITED,
                "How long the empty streams group waits for members before its first assignment.",
                at_least=0,
                synonyms=synonym("group.streams.initial.rebalance.delay.ms"),
            ),
            integer(
                "streams.assignment.interval.ms",
                INHERITED,
                "Shortest time between two assignments of the streams group.",
                at_least=0,
                synonyms=synonym("group.streams.assignment.interval.ms"),
            ),
        )
    )
)

CLIENT_METRICS_KEYS: Final[Mapping[str, ConfigKey]] = by_name(
    (
        listing("metrics", "", "Prefixes of the metrics that clients push; * for all of them.", allowed=Items()),
        integer("interval.ms", 300_000, "How often clients push.", at_least=100, at_most=3_600_000),
        listing("match", "", "Which clients push, as name=pattern pairs.", allowed=Satisfies(_match_problem)),
    )
)

# Names, without the kind of group, of the keys that have a minimum and a maximum on the broker.
_BOUNDED: Final = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "assignment.interval.ms",
    "record.lock.duration.ms",
    "delivery.count.limit",
    "partition.max.record.locks",
)


def check_group_configs(configs: Mapping[str, str], broker_value: Callable[[str], ConfigValue | None]) -> None:
    """Raises ConfigError unless a group can have these configs; `broker_value` returns the broker's values."""
    values: dict[str, ConfigValue] = {}
    for name, text in configs.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            raise ConfigError(name, None, "is not a group config")
        values[name] = key.parse(text)
        _check_bounds(name, values[name], broker_value)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = (
            values.get(f"{kind}.{rest}", broker_value(f"group.{kind}.{rest}"))
            for rest in ("session.timeout.ms", "heartbeat.interval.ms")
        )
        if isinstance(session, int) and isinstance(heartbeat, int) and session <= heartbeat:
            raise ConfigError(
                f"{kind}.session.timeout.ms",
                str(session),
                f"must be greater than {kind}.heartbeat.interval.ms ({heartbeat})",
            )


def check_client_metrics_configs(configs: Mapping[str, str]) -> None:
    for name, text in configs.items():
        key = CLIENT_METRICS_KEYS.get(name)
        if key is None:
            raise ConfigError(name, None, "is not a client metrics config")
        key.check(text)


def _check_bounds(name: str, value: ConfigValue, broker_value: Callable[[str], ConfigValue | None]) -> None:
    kind, _, rest = name.partition(".")
    if rest == "num.standby.replicas":
        low_key, high_key = None, "group.streams.max.standby.replicas"
    elif rest in _BOUNDED:
        low_key, high_key = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
    else:
        return
    assert isinstance(value, int)
    low, high = broker_value(low_key) if low_key is not None else None, broker_value(high_key)
    if isinstance(low, int) and value < low:
        raise ConfigError(name, str(value), f"must be at least {low_key} ({low})")
    if isinstance(high, int) and value > high:
        raise ConfigError(name, str(value), f"must be at most {high_key} ({high})")
