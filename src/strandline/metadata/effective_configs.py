"""Effective configs: a topic's or group's own value, else the broker's (dynamic, cluster default, file), else the
default.

`effective_topic_config` is used by the log and the controller; the `describe_*` functions are DescribeConfigs without
the wire. Both read the same layers, so the described value is the one in effect. A value that does not parse (a cluster
of older nodes may have written it) is ignored.

Two habits of Kafka's descriptions, on which tools rely, are kept: a key whose value is derived from a synonym in
another unit (retention.ms from log.retention.hours) has the source DEFAULT and no synonyms; and unknown keys are
described as sensitive, because they may be a plugin's password.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from strandline.model.config_keys.broker import BROKER_KEYS, OWN_KEYS, broker_key, broker_synonyms
from strandline.model.config_keys.group import CLIENT_METRICS_KEYS, GROUP_KEYS
from strandline.model.config_keys.key import ConfigError, ConfigKey, ConfigKind, ConfigSource, ConfigValue, text_of
from strandline.model.config_keys.topic import TOPIC_KEYS

_FOREVER: Final = "-1"


class BrokerLayers(msgspec.Struct, frozen=True):
    """The configs of one broker: its own dynamic configs, the cluster-wide dynamic defaults, and its file."""

    dynamic: Mapping[str, str]
    cluster: Mapping[str, str]
    static: Mapping[str, str]

    def texts(self, name: str) -> Iterator[tuple[str, ConfigSource]]:
        """The values of one key in order of precedence; its default, if it has one, last."""
        if name in self.dynamic:
            yield self.dynamic[name], ConfigSource.BROKER
        if name in self.cluster:
            yield self.cluster[name], ConfigSource.DEFAULT_BROKER
        if name in self.static:
            yield self.static[name], ConfigSource.STATIC_BROKER
        key = BROKER_KEYS.get(name) or OWN_KEYS.get(name)
        if key is not None and key.default is not None:
            yield key.default, ConfigSource.DEFAULT


class ConfigSynonym(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(msgspec.Struct, frozen=True):
    """One entry of DescribeConfigs. A sensitive value is None here already."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    kind: ConfigKind
    doc: str | None
    synonyms: tuple[ConfigSynonym, ...]


def broker_value(name: str, layers: BrokerLayers) -> ConfigValue | None:
    """The parsed value of a broker key; None if it has neither a value nor a default."""
    key = broker_key(name)
    if key is None:
        raise KeyError(name)
    for candidate in (name,) if key.name == name else (name, key.name):
        for text, _ in layers.texts(candidate):
            try:
                return key.parse(text)
            except ConfigError:
                continue
    return None


def effective_topic_config(
    topic: Mapping[str, str],
    broker: Mapping[str, str],
    default_broker: Mapping[str, str],
    static: Mapping[str, str],
) -> dict[str, str]:
    """Every topic key with its effective value, in canonical spelling."""
    layers = BrokerLayers(broker, default_broker, static)
    values = {}
    for key in TOPIC_KEYS.values():
        value = _effective(key, topic, layers)
        if value is not None:
            values[key.name] = value
    return values


def _effective(key: ConfigKey, own: Mapping[str, str], layers: BrokerLayers) -> str | None:
    if key.name in own:
        try:
            return key.normalise(own[key.name])
        except ConfigError:
            pass
    for synonym in key.synonyms:
        value = broker_value(synonym.name, layers)
        if value is not None:
            return _in_unit_of(key, value, synonym.factor)
    return key.default


def _in_unit_of(key: ConfigKey, value: ConfigValue, factor: int) -> str | None:
    """A broker's value in the unit of the topic key; any negative retention time means forever."""
    if factor != 1 and isinstance(value, int):
        value *= factor
    if key.name == "retention.ms" and isinstance(value, int) and value < 0:
        return _FOREVER
    try:
        return key.normalise(text_of(value))
    except ConfigError:
        return key.default


def describe_topic(
    topic: Mapping[str, str], layers: BrokerLayers, names: Collection[str] | None = None
) -> list[DescribedConfig]:
    return [
        _described(key, topic, layers, ConfigSource.TOPIC, has_own_default=False)
        for key in TOPIC_KEYS.values()
        if _selected(key.name, names) and (not key.internal or key.name in topic)
    ]


def describe_group(
    group: Mapping[str, str], layers: BrokerLayers, names: Collection[str] | None = None
) -> list[DescribedConfig]:
    return [
        _described(key, group, layers, ConfigSource.GROUP, has_own_default=True)
        for key in GROUP_KEYS.values()
        if _selected(key.name, names)
    ]


def describe_client_metrics(
    subscription: Mapping[str, str], names: Collection[str] | None = None
) -> list[DescribedConfig]:
    nothing = BrokerLayers({}, {}, {})
    return [
        _described(key, subscription, nothing, ConfigSource.CLIENT_METRICS, has_own_default=False)
        for key in CLIENT_METRICS_KEYS.values()
        if _selected(key.name, names)
    ]


def describe_broker(layers: BrokerLayers, names: Collection[str] | None = None) -> list[DescribedConfig]:
    """All configs of a broker, keys of plugins included."""
    known = [key.name for key in BROKER_KEYS.values() if not key.internal]
    configured = {**layers.static, **layers.cluster, **layers.dynamic}
    unlisted = sorted(name for name in configured if name not in BROKER_KEYS or BROKER_KEYS[name].internal)
    return [_described_broker_key(name, layers) for name in (*known, *unlisted) if _selected(name, names)]


def describe_cluster_defaults(
    cluster: Mapping[str, str], names: Collection[str] | None = None
) -> list[DescribedConfig]:
    """The cluster-wide dynamic defaults: only the keys that are set, as they were set."""
    layers = BrokerLayers({}, cluster, {})
    described = []
    for name, text in sorted(cluster.items()):
        if not _selected(name, names):
            continue
        entry = _described_broker_key(name, layers)
        synonyms = tuple(synonym for synonym in entry.synonyms if synonym.source is ConfigSource.DEFAULT_BROKER)
        described.append(
            DescribedConfig(
                name,
                None if entry.sensitive else text,
                synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                entry.read_only,
                entry.sensitive,
                entry.kind,
                entry.doc,
                synonyms,
            )
        )
    return described


def _described(
    key: ConfigKey, own: Mapping[str, str], layers: BrokerLayers, source: ConfigSource, *, has_own_default: bool
) -> DescribedConfig:
    value = _effective(key, own, layers)
    synonyms = list(_broker_synonyms(key.synonyms[0].name, layers, hidden=False)) if key.synonyms else []
    if not key.synonyms and has_own_default:
        synonyms = [ConfigSynonym(key.name, key.default, ConfigSource.DEFAULT)]
    if key.name in own:
        synonyms.insert(0, ConfigSynonym(key.name, value, source))
    return DescribedConfig(
        key.name,
        value,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        read_only=False,
        sensitive=False,
        kind=key.kind,
        doc=key.doc,
        synonyms=tuple(synonyms),
    )


def _described_broker_key(name: str, layers: BrokerLayers) -> DescribedConfig:
    key = broker_key(name)
    hidden = key is None or key.sensitive
    synonyms = tuple(_broker_synonyms(name, layers, hidden=hidden))
    exact = key if key is not None and key.name == name else None
    return DescribedConfig(
        name,
        None if key is None or hidden else _broker_text(name, key, layers),
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        read_only=exact is None or exact.read_only,
        sensitive=hidden,
        kind=key.kind if key is not None else ConfigKind.UNKNOWN,
        doc=exact.doc if exact is not None else None,
        synonyms=synonyms,
    )


def _broker_text(name: str, key: ConfigKey, layers: BrokerLayers) -> str | None:
    for text, _ in layers.texts(name):
        try:
            return key.normalise(text)
        except ConfigError:
            continue
    return None


def _broker_synonyms(name: str, layers: BrokerLayers, *, hidden: bool) -> Iterator[ConfigSynonym]:
    """The values that determine a broker key in order of precedence, from the key's own first value on."""
    found: dict[ConfigSource, list[ConfigSynonym]] = {source: [] for source in _PRECEDENCE}
    for candidate in broker_synonyms(name):
        for text, source in layers.texts(candidate):
            found[source].append(ConfigSynonym(candidate, None if hidden else text, source))
    found_own = False
    for source in _PRECEDENCE:
        for synonym in found[source]:
            found_own = found_own or synonym.name == name
            if found_own:
                yield synonym


_PRECEDENCE: Final = (
    ConfigSource.BROKER,
    ConfigSource.DEFAULT_BROKER,
    ConfigSource.STATIC_BROKER,
    ConfigSource.DEFAULT,
)


def _selected(name: str, names: Collection[str] | None) -> bool:
    return names is None or name in names
