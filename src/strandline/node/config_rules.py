"""Rules between several keys of a node's config. Each problem names the keys, their values and the remedy.

Called by `node/config` after every single value was found valid. A rule appends to `problems` and never raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from strandline.model.config_keys.addresses import Voter
from strandline.model.config_keys.key import ConfigValue

Lookup = Callable[[str], ConfigValue | None]

_MIB: Final = 1024 * 1024
_RANGES: Final = tuple(
    (f"group.{kind}.min.{rest}", f"group.{kind}.{rest}", f"group.{kind}.max.{rest}")
    for kind, rests in {
        "consumer": ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"),
        "streams": ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"),
        "share": (
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "assignment.interval.ms",
            "record.lock.duration.ms",
            "delivery.count.limit",
            "partition.max.record.locks",
        ),
    }.items()
    for rest in rests
)
# The left key must not be greater than the right key.
_NOT_ABOVE: Final = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    *((low, value) for low, value, _ in _RANGES),
    *((value, high) for _, value, high in _RANGES),
)
# The left key must be smaller than the right key.
_BELOW: Final = (
    ("connection.failed.authentication.delay.ms", "connections.max.idle.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
    ("group.streams.heartbeat.interval.ms", "group.streams.session.timeout.ms"),
    ("group.share.heartbeat.interval.ms", "group.share.session.timeout.ms"),
)
# Features that are not served: a node that silently ignored them would not do what its config promises.
_NOT_SERVED: Final = {
    "authorizer.class.name": "access control is not served yet, and without it every client may do everything",
    "remote.log.storage.system.enable": "tiered storage is not served",
    "transaction.two.phase.commit.enable": "two-phase commit is not served",
}

_WITHOUT_EFFECT: Final = (
    "create.topic.policy.class.name",
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "replica.selector.class",
    "metric.reporters",
    "kafka.metrics.reporters",
    "config.providers",
)


def check_numbers(value: Lookup, problems: list[str]) -> None:
    """Pairs of numbers that must be in order, and retention and roll times within their bounds."""
    for left, right in _NOT_ABOVE:
        if _number(value, left) > _number(value, right):
            problems.append(f"{left}={value(left)} must not be greater than {right}={value(right)}")
    for left, right in _BELOW:
        if _number(value, left) >= _number(value, right):
            problems.append(f"{left}={value(left)} must be smaller than {right}={value(right)}")
    for name, least, special in (
        ("log.roll.ms", 1, None),
        ("log.roll.jitter.ms", 0, None),
        ("log.retention.ms", 1, -1),
        ("log.retention.minutes", 1, -1),
        ("log.retention.hours", 1, -1),
    ):
        number = value(name)
        if isinstance(number, int) and number < least and number != special:
            unless = f", or {special} for ever" if special is not None else ""
            problems.append(f"{name}={number} must be at least {least}{unless}")
    _check_limits(value, problems)


def _check_limits(value: Lookup, problems: list[str]) -> None:
    queued, largest = _number(value, "queued.max.request.bytes"), _number(value, "socket.request.max.bytes")
    if 0 < queued < largest:
        problems.append(
            f"queued.max.request.bytes={queued} must not be smaller than socket.request.max.bytes={largest}, "
            "or the largest requests would never be read"
        )
    cleaners, buffer = _number(value, "log.cleaner.threads"), _number(value, "log.cleaner.dedupe.buffer.size")
    if cleaners and buffer / cleaners < _MIB:
        problems.append(f"log.cleaner.dedupe.buffer.size={buffer} must give each of log.cleaner.threads at least 1 MiB")
    if value("max.connections.per.ip") == 0 and not value("max.connections.per.ip.overrides"):
        problems.append(
            "max.connections.per.ip=0 rejects every connection; list exceptions in max.connections.per.ip.overrides"
        )


def check_groups(value: Lookup, problems: list[str]) -> None:
    assignors, protocols = value("group.share.assignors"), value("group.coordinator.rebalance.protocols")
    if isinstance(assignors, tuple) and len(assignors) != 1:
        problems.append(f"group.share.assignors={','.join(assignors)} must name exactly one assignor")
    if isinstance(protocols, tuple) and "classic" not in protocols:
        problems.append("group.coordinator.rebalance.protocols: classic cannot be left out; add it")


def warnings_about(value: Lookup, static: Mapping[str, str]) -> list[str]:
    """Configs that are valid but probably not intended."""
    warnings = []
    if 2 * _number(value, "broker.heartbeat.interval.ms") > _number(value, "broker.session.timeout.ms"):
        warnings.append(
            "broker.heartbeat.interval.ms is more than half of broker.session.timeout.ms: one lost heartbeat fences a "
            "broker; lower the first or raise the second"
        )
    for name in _WITHOUT_EFFECT:
        if static.get(name, "").strip():
            warnings.append(f"{name} is known but without effect: Java classes cannot be loaded here")
    return warnings


def check_quorum(
    roles: Sequence[str], node_id: int, voters: Sequence[Voter], value: Lookup, problems: list[str]
) -> None:
    if not voters and not value("controller.quorum.bootstrap.servers"):
        problems.append(
            "controller.quorum.bootstrap.servers: the addresses of the controllers are missing; "
            "set it to host:port of one or more of them (or list static voters in controller.quorum.voters)"
        )
    ids = [voter.id for voter in voters]
    if len(set(ids)) != len(ids):
        problems.append("controller.quorum.voters: an id appears twice; each voter has one entry")
    if voters and "controller" in roles and node_id not in ids:
        problems.append(
            f"controller.quorum.voters: this controller's node.id={node_id} is not among the voters; add "
            f"{node_id}@host:port, or use controller.quorum.bootstrap.servers for a quorum that can change"
        )
    if voters and "controller" not in roles and node_id in ids:
        problems.append(
            f"controller.quorum.voters: node.id={node_id} is a voter, but this node is only a broker; "
            "give it another node.id or add controller to process.roles"
        )
    if value("controller.quorum.auto.join.enable") is True and "controller" not in roles:
        problems.append("controller.quorum.auto.join.enable=true needs controller in process.roles")


def check_directories(directories: Sequence[str], cordoned: Sequence[str], problems: list[str]) -> None:
    if "*" in cordoned:
        if len(cordoned) > 1:
            problems.append("cordoned.log.dirs: * means all directories and must be the only entry")
        return
    for directory in cordoned:
        if directory not in directories:
            problems.append(f"cordoned.log.dirs: {directory} is not among log.dirs")


def check_served(value: Lookup, static: Mapping[str, str], problems: list[str]) -> None:
    for name, why in _NOT_SERVED.items():
        if name in static and value(name) not in (False, "", None):
            problems.append(f"{name}={static[name]}: {why}; remove it")


def _number(value: Lookup, name: str) -> float:
    number = value(name)
    assert isinstance(number, int | float), name
    return number
