"""The keys of brokers and controllers, and which of them may change while a node runs.

`BROKER_KEYS` are Kafka's, collected from the modules of this package. `OWN_KEYS` are Strandline's own, with a prefix
that Kafka does not use; they are described only where a file sets them. Callers: `node/config` (files),
`controller/configs` (dynamic configs), `metadata/effective_configs` (descriptions), and the typed slices of config
(defaults).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from strandline.model.config_keys import (
    group_coordinator,
    log,
    network,
    node,
    quorum,
    quotas,
    replication,
    sasl,
    security,
    share_groups,
    tiered_storage,
    transactions,
)
from strandline.model.config_keys.key import MAX_LONG, ConfigError, ConfigKey, ConfigMode, by_name, text_of
from strandline.model.config_keys.key_types import CLUSTER_WIDE, boolean, integer, long

BROKER_KEYS: Final[Mapping[str, ConfigKey]] = by_name(
    key
    for subject in (
        node,
        network,
        quorum,
        log,
        replication,
        group_coordinator,
        share_groups,
        transactions,
        quotas,
        security,
        sasl,
        tiered_storage,
    )
    for key in subject.KEYS
)

# Throttles exist only as dynamic configs, and are described only where they are set.
THROTTLE_KEYS: Final[Mapping[str, ConfigKey]] = by_name(
    (
        long(
            "leader.replication.throttled.rate",
            MAX_LONG,
            "Bytes per second that a leader sends to throttled followers.",
            at_least=0,
            mode=CLUSTER_WIDE,
        ),
        long(
            "follower.replication.throttled.rate",
            MAX_LONG,
            "Bytes per second that a follower fetches for throttled replicas.",
            at_least=0,
            mode=CLUSTER_WIDE,
        ),
        long(
            "replica.alter.log.dirs.io.max.bytes.per.second",
            MAX_LONG,
            "Bytes per second moved between the directories of a broker.",
            at_least=0,
            mode=CLUSTER_WIDE,
        ),
    )
)

OWN_PREFIX: Final = "strandline."
OWN_KEYS: Final[Mapping[str, ConfigKey]] = by_name(
    (
        integer(
            "strandline.parked.max.requests",
            20_000,
            "Requests that may wait for replicas or records before a connection is limited to one request at a time.",
            at_least=1,
        ),
        long(
            "strandline.parked.max.bytes",
            268_435_456,
            "Bytes of waiting requests before a connection is limited to one request at a time.",
            at_least=1,
        ),
        integer(
            "strandline.connection.max.pipelined.requests",
            10,
            "Requests of one connection that may be in progress at the same time.",
            at_least=1,
        ),
        integer(
            "strandline.frame.timeout.ms",
            30_000,
            "How long a request may take to arrive after its first byte, plus a second for every 64 KiB.",
            at_least=1,
        ),
        boolean(
            "strandline.metrics.page.enable",
            True,
            "Whether listeners serve the node's metrics over HTTP (GET /metrics).",
        ),
        boolean(
            "strandline.broker.death.detection.enable",
            True,
            "Whether a broker whose connection closed and that refuses probes is fenced before its session times out.",
        ),
        integer(
            "strandline.lost.leader.max.wait.ms",
            800,
            "How long responses that name a leader whose connection was just lost wait for an election.",
            at_least=0,
        ),
    )
)

# Keys for the same value in different units, in order of precedence.
_SAME_MEANING: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_FLUSH_INTERVAL: Final = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
_SYNONYMS: Final = {name: names for names in _SAME_MEANING for name in names} | {_FLUSH_INTERVAL[0]: _FLUSH_INTERVAL}

_OF_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.+)")
# With a listener prefix these may also have the name of a mechanism as prefix.
_OF_MECHANISM: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)

# Keys of a listener that may be set for all brokers at once.
_LIMITS_OF_LISTENER: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
_KEYS_AND_CERTIFICATES: Final = frozenset(
    name for name in BROKER_KEYS if re.match(r"ssl\.(key|keystore|truststore)\.", name)
)


def broker_default(name: str) -> Any:
    """The parsed default of a broker key, for the typed slices of config."""
    return (BROKER_KEYS.get(name) or OWN_KEYS[name]).default_value()


def config_field(name: str, default: Any = None) -> Any:
    """A field of a typed slice of config: it carries the name of its broker key, and the key's default unless the slice
    has another one. `node/config` fills such fields from the file."""
    return msgspec.field(name=name, default=broker_default(name) if default is None else default)


def inherit_defaults(keys: Iterable[ConfigKey]) -> Iterator[ConfigKey]:
    """A key of topics or groups takes its default from the first of its synonyms that has one."""
    for key in keys:
        for synonym in key.synonyms:
            value = broker_default(synonym.name)
            if value is not None:
                key = replace(key, default=text_of(value if synonym.factor == 1 else value * synonym.factor))
                break
        yield key


def broker_synonyms(name: str) -> tuple[str, ...]:
    """The keys that determine the value of `name`, in order of precedence; a listener's key falls back to the general
    one."""
    match = _OF_LISTENER.fullmatch(name)
    if match is None:
        return _SYNONYMS.get(name, (name,))
    general = next((key for key in _OF_MECHANISM if match[1].endswith(key)), match[1])
    return (name, general)


def broker_key(name: str) -> ConfigKey | None:
    """The key of a name in a file or a request, which may have the prefix `listener.name.<listener>.`."""
    key = BROKER_KEYS.get(name) or OWN_KEYS.get(name) or THROTTLE_KEYS.get(name)
    if key is None and name.startswith("listener.name."):
        return BROKER_KEYS.get(broker_synonyms(name)[-1])
    return key


def check_broker_configs(configs: Mapping[str, str], *, whole_cluster: bool) -> None:
    """Raises ConfigError for keys that cannot be changed while brokers run. Unknown keys pass: they may be a plugin's.

    `whole_cluster` means the cluster-wide defaults (a BROKER resource without a name), where keys of a single broker
    are rejected as well.
    """
    for name, value in configs.items():
        _check_scope(name, whole_cluster)
        key = broker_key(name)
        if key is not None:
            key.check(value)


def _check_scope(name: str, whole_cluster: bool) -> None:
    key = BROKER_KEYS.get(name) or OWN_KEYS.get(name)
    if key is not None and key.read_only:
        raise ConfigError(name, None, "cannot be changed while the broker runs: set it in its file and restart it")
    if name in _KEYS_AND_CERTIFICATES:
        raise ConfigError(name, None, "can be changed only for one listener: use listener.name.<listener>." + name)
    if whole_cluster and _for_one_broker(name, key):
        raise ConfigError(name, None, "can be changed only for one broker at a time: name the broker")


def _for_one_broker(name: str, key: ConfigKey | None) -> bool:
    if key is not None:
        return key.mode is ConfigMode.PER_BROKER
    match = _OF_LISTENER.fullmatch(name)
    return match is not None and match[1] not in _LIMITS_OF_LISTENER
