from __future__ import annotations

from collections.abc import Mapping

import pytest

from strandline.log.settings import LogSettings
from strandline.metadata.effective_configs import (
    BrokerLayers,
    ConfigSynonym,
    DescribedConfig,
    broker_value,
    describe_broker,
    describe_client_metrics,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
    effective_topic_config,
)
from strandline.model.config_keys.key import ConfigKind, ConfigSource
from strandline.model.config_keys.topic import TOPIC_KEYS

DEFAULT, STATIC = ConfigSource.DEFAULT, ConfigSource.STATIC_BROKER


def layers(
    dynamic: Mapping[str, str] | None = None,
    cluster: Mapping[str, str] | None = None,
    static: Mapping[str, str] | None = None,
) -> BrokerLayers:
    return BrokerLayers(dynamic or {}, cluster or {}, static or {})


def one(described: list[DescribedConfig], name: str) -> DescribedConfig:
    (found,) = [entry for entry in described if entry.name == name]
    return found


def synonyms(entry: DescribedConfig) -> list[tuple[str, str | None, ConfigSource]]:
    return [(each.name, each.value, each.source) for each in entry.synonyms]


def test_without_any_config_every_key_has_its_default() -> None:
    effective = effective_topic_config({}, {}, {}, {})
    assert effective == {key.name: key.default for key in TOPIC_KEYS.values() if key.default is not None}


def test_the_layers_apply_in_order_of_precedence() -> None:
    topic, broker = {"retention.ms": "1"}, {"log.retention.ms": "2"}
    cluster, static = {"log.retention.ms": "3"}, {"log.retention.ms": "4"}
    values = [
        effective_topic_config(topic, broker, cluster, static),
        effective_topic_config({}, broker, cluster, static),
        effective_topic_config({}, {}, cluster, static),
        effective_topic_config({}, {}, {}, static),
    ]
    assert [value["retention.ms"] for value in values] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("static", "key", "value"),
    [
        ({"log.retention.hours": "2"}, "retention.ms", "7200000"),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, "retention.ms", "180000"),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, "retention.ms", "4"),
        ({"log.retention.hours": "-1"}, "retention.ms", "-1"),
        ({"log.retention.minutes": "-1"}, "retention.ms", "-1"),
        ({"log.roll.hours": "3"}, "segment.ms", "10800000"),
        ({"log.roll.ms": "5", "log.roll.hours": "3"}, "segment.ms", "5"),
        ({"log.roll.jitter.hours": "1"}, "segment.jitter.ms", "3600000"),
        ({"log.flush.scheduler.interval.ms": "9"}, "flush.ms", "9"),
        ({"log.flush.scheduler.interval.ms": "9", "log.flush.interval.ms": "8"}, "flush.ms", "8"),
        ({"log.cleanup.policy": "compact , delete"}, "cleanup.policy", "compact,delete"),
        ({"log.preallocate": "TRUE"}, "preallocate", "true"),
        ({"log.cleaner.min.cleanable.ratio": "0.70"}, "min.cleanable.dirty.ratio", "0.7"),
        ({"message.max.bytes": "77"}, "max.message.bytes", "77"),
    ],
)
def test_a_broker_key_applies_where_the_topic_key_is_not_set(static: dict[str, str], key: str, value: str) -> None:
    assert effective_topic_config({}, {}, {}, static)[key] == value


def test_a_dynamic_retention_precedes_one_in_a_larger_unit_in_the_file() -> None:
    effective = effective_topic_config({}, {}, {"log.retention.ms": "1000"}, {"log.retention.hours": "5"})
    assert effective["retention.ms"] == "1000"


def test_an_invalid_value_is_ignored() -> None:
    effective = effective_topic_config({"retention.ms": "soon"}, {"log.retention.ms": "later"}, {}, {})
    assert effective["retention.ms"] == "604800000"


def test_log_settings_are_built_from_effective_configs() -> None:
    effective = effective_topic_config({"cleanup.policy": "compact"}, {}, {}, {"log.segment.bytes": "2000000"})
    settings = LogSettings.of(effective)
    assert (settings.segment_bytes, settings.cleanup_compact, settings.cleanup_delete) == (2_000_000, True, False)


def test_a_brokers_value_is_parsed() -> None:
    found = layers({"num.io.threads": "4"}, {"num.io.threads": "5"}, {"log.dirs": "/a,/b"})
    assert broker_value("num.io.threads", found) == 4
    assert broker_value("log.dirs", found) == ("/a", "/b")
    assert broker_value("log.retention.ms", found) is None
    assert broker_value("log.retention.hours", found) == 168
    with pytest.raises(KeyError):
        broker_value("unheard.of", found)


def test_a_listeners_value_falls_back_on_the_general_one() -> None:
    found = layers(static={"max.connections": "7", "listener.name.inner.max.connections": "8"})
    assert broker_value("listener.name.inner.max.connections", found) == 8
    assert broker_value("listener.name.outer.max.connections", found) == 7


def test_a_topics_own_value_is_described_with_all_its_synonyms() -> None:
    entry = one(
        describe_topic(
            {"cleanup.policy": "compact, delete"},
            layers({"log.cleanup.policy": "compact"}, {"log.cleanup.policy": "delete"}, {"log.cleanup.policy": " "}),
        ),
        "cleanup.policy",
    )
    assert (entry.value, entry.source, entry.kind) == ("compact,delete", ConfigSource.TOPIC, ConfigKind.LIST)
    assert not entry.read_only and not entry.sensitive and entry.doc == TOPIC_KEYS["cleanup.policy"].doc
    assert synonyms(entry) == [
        ("cleanup.policy", "compact,delete", ConfigSource.TOPIC),
        ("log.cleanup.policy", "compact", ConfigSource.BROKER),
        ("log.cleanup.policy", "delete", ConfigSource.DEFAULT_BROKER),
        ("log.cleanup.policy", " ", STATIC),
        ("log.cleanup.policy", "delete", DEFAULT),
    ]


def test_a_value_derived_from_another_unit_is_described_as_kafka_does() -> None:
    described = describe_topic({}, layers(static={"log.retention.hours": "24", "log.roll.ms": "7200000"}))
    retention = one(described, "retention.ms")
    assert (retention.value, retention.source, retention.synonyms) == ("86400000", DEFAULT, ())
    roll = one(described, "segment.ms")
    assert (roll.value, roll.source) == ("7200000", STATIC)
    assert synonyms(roll) == [("log.roll.ms", "7200000", STATIC), ("log.roll.hours", "168", DEFAULT)]


def test_internal_keys_are_described_only_where_they_are_set() -> None:
    assert "internal.segment.bytes" not in {entry.name for entry in describe_topic({}, layers())}
    set_here = describe_topic({"internal.segment.bytes": "99"}, layers())
    assert one(set_here, "internal.segment.bytes").value == "99"


def test_only_the_requested_names_are_described() -> None:
    assert [entry.name for entry in describe_topic({}, layers(), ["retention.ms", "nonsense"])] == ["retention.ms"]
    assert [entry.name for entry in describe_broker(layers(), ["num.io.threads"])] == ["num.io.threads"]
    assert describe_group({}, layers(), []) == []


def test_a_broker_describes_values_sources_and_whether_they_can_change() -> None:
    described = describe_broker(layers({"log.segment.bytes": " 2000000"}, {}, {"num.partitions": "3"}))
    segment = one(described, "log.segment.bytes")
    assert (segment.value, segment.source, segment.read_only) == ("2000000", ConfigSource.BROKER, False)
    assert synonyms(segment) == [
        ("log.segment.bytes", " 2000000", ConfigSource.BROKER),
        ("log.segment.bytes", "1073741824", DEFAULT),
    ]
    partitions = one(described, "num.partitions")
    assert (partitions.value, partitions.source, partitions.read_only) == ("3", STATIC, True)
    assert one(described, "broker.rack").value is None


def test_passwords_and_unknown_keys_are_never_shown() -> None:
    described = describe_broker(layers(static={"ssl.keystore.password": "hunter2", "plugin.secret": "hunter3"}))
    for name in ("ssl.keystore.password", "plugin.secret"):
        entry = one(described, name)
        assert entry.sensitive and entry.value is None
        assert entry.synonyms == (ConfigSynonym(name, None, STATIC),)
    assert "hunter" not in repr(described)
    unknown = one(described, "plugin.secret")
    assert (unknown.kind, unknown.read_only, unknown.doc) == (ConfigKind.UNKNOWN, True, None)


def test_a_listeners_own_value_has_the_general_key_as_synonym() -> None:
    entry = one(
        describe_broker(layers(static={"listener.name.x.ssl.keystore.type": "PEM"})),
        "listener.name.x.ssl.keystore.type",
    )
    assert (entry.value, entry.sensitive, entry.kind) == ("PEM", False, ConfigKind.STRING)
    assert synonyms(entry) == [
        ("listener.name.x.ssl.keystore.type", "PEM", STATIC),
        ("ssl.keystore.type", "JKS", DEFAULT),
    ]


def test_internal_keys_of_brokers_are_not_described() -> None:
    names = {entry.name for entry in describe_broker(layers())}
    assert "log.initial.task.delay.ms" not in names and "log.segment.bytes" in names


def test_cluster_wide_defaults_are_described_as_they_were_set() -> None:
    described = describe_cluster_defaults({"log.segment.bytes": " 2000000", "plugin.key": "1"})
    assert [(entry.name, entry.value, entry.source) for entry in described] == [
        ("log.segment.bytes", " 2000000", ConfigSource.DEFAULT_BROKER),
        ("plugin.key", None, ConfigSource.DEFAULT_BROKER),
    ]
    assert synonyms(described[0]) == [("log.segment.bytes", " 2000000", ConfigSource.DEFAULT_BROKER)]


def test_a_group_inherits_the_brokers_value() -> None:
    found = layers(static={"group.consumer.session.timeout.ms": "50000"})
    described = describe_group({"consumer.heartbeat.interval.ms": "6000"}, found)
    session = one(described, "consumer.session.timeout.ms")
    assert (session.value, session.source) == ("50000", STATIC)
    heartbeat = one(described, "consumer.heartbeat.interval.ms")
    assert synonyms(heartbeat) == [
        ("consumer.heartbeat.interval.ms", "6000", ConfigSource.GROUP),
        ("group.consumer.heartbeat.interval.ms", "5000", DEFAULT),
    ]
    reset = one(described, "share.auto.offset.reset")
    assert synonyms(reset) == [("share.auto.offset.reset", "latest", DEFAULT)]


def test_a_metrics_subscription_is_described() -> None:
    described = describe_client_metrics({"interval.ms": "5000"})
    interval = one(described, "interval.ms")
    assert synonyms(interval) == [("interval.ms", "5000", ConfigSource.CLIENT_METRICS)]
    assert (one(described, "match").value, one(described, "match").synonyms) == ("", ())
