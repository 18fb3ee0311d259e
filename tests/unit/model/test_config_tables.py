from __future__ import annotations

from collections.abc import Mapping

import pytest

from strandline.model.config_keys.broker import (
    BROKER_KEYS,
    OWN_KEYS,
    OWN_PREFIX,
    THROTTLE_KEYS,
    broker_key,
    broker_synonyms,
    check_broker_configs,
)
from strandline.model.config_keys.group import (
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    check_client_metrics_configs,
    check_group_configs,
)
from strandline.model.config_keys.key import ConfigError, ConfigKey, ConfigMode, ConfigValue
from strandline.model.config_keys.topic import TOPIC_KEYS, check_topic_configs

ALL_TABLES: tuple[Mapping[str, ConfigKey], ...] = (
    BROKER_KEYS,
    OWN_KEYS,
    THROTTLE_KEYS,
    TOPIC_KEYS,
    GROUP_KEYS,
    CLIENT_METRICS_KEYS,
)


def default_of_broker(name: str) -> ConfigValue | None:
    return BROKER_KEYS[name].default_value()


def test_every_key_of_kafka_4_3_is_in_its_table() -> None:
    assert (len(BROKER_KEYS), len(TOPIC_KEYS), len(GROUP_KEYS), len(CLIENT_METRICS_KEYS)) == (360, 34, 17, 3)


@pytest.mark.parametrize("key", [key for table in ALL_TABLES for key in table.values()], ids=lambda key: key.name)
def test_a_key_accepts_its_own_default_and_is_documented(key: ConfigKey) -> None:
    assert key.doc.endswith(".") or key.doc.endswith("?")
    assert len(key.doc) < 120
    if key.default is not None:
        assert key.normalise(key.default) == key.default


def test_synonyms_name_broker_keys_that_exist() -> None:
    named = [synonym.name for table in (TOPIC_KEYS, GROUP_KEYS) for key in table.values() for synonym in key.synonyms]
    assert [name for name in named if name not in BROKER_KEYS] == []


def test_a_topic_key_and_its_broker_synonym_have_the_same_default() -> None:
    for key in (*TOPIC_KEYS.values(), *GROUP_KEYS.values()):
        for synonym in key.synonyms:
            value = default_of_broker(synonym.name)
            if value is not None:
                number = value * synonym.factor if isinstance(value, int) and synonym.factor != 1 else value
                assert number == key.default_value(), key.name


def test_own_keys_are_prefixed() -> None:
    assert all(name.startswith(OWN_PREFIX) for name in OWN_KEYS)


def test_a_listener_key_is_known_by_the_key_behind_its_prefix() -> None:
    assert broker_key("listener.name.internal.ssl.keystore.type") is BROKER_KEYS["ssl.keystore.type"]
    assert broker_key("listener.name.internal.scram-sha-256.sasl.jaas.config") is BROKER_KEYS["sasl.jaas.config"]
    assert broker_key("listener.name.internal.unheard.of") is None
    assert broker_key("unheard.of") is None


def test_keys_of_the_same_value_in_other_units_are_synonyms() -> None:
    assert broker_synonyms("log.retention.minutes") == (
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    )
    assert broker_synonyms("num.io.threads") == ("num.io.threads",)


@pytest.mark.parametrize(
    ("configs", "why"),
    [
        ({"retention.ms": "-2"}, "at least -1"),
        ({"segment.bytes": "14"}, "at least 1048576"),
        ({"cleanup.policy": "compact,erase"}, "among compact, delete"),
        ({"compression.type": "brotli"}, "must be one of"),
        ({"min.compaction.lag.ms": "5000", "max.compaction.lag.ms": "4000"}, "greater than max.compaction.lag.ms"),
        ({"leader.replication.throttled.replicas": "0-101"}, "partition:broker"),
        ({"remote.storage.enable": "true"}, "not available"),
        ({"retention.msec": "5"}, "is not a topic config"),
    ],
)
def test_an_invalid_topic_config_is_rejected(configs: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_topic_configs(configs)


def test_valid_topic_configs_are_accepted() -> None:
    check_topic_configs({})
    check_topic_configs({"cleanup.policy": "", "retention.ms": "-1", "follower.replication.throttled.replicas": "*"})


def test_compaction_lags_are_compared_even_when_one_is_the_default() -> None:
    with pytest.raises(ConfigError, match=r"greater than max\.compaction\.lag\.ms \(4000\)"):
        check_topic_configs({"min.compaction.lag.ms": "5000"}, {"max.compaction.lag.ms": "4000"})


@pytest.mark.parametrize(
    ("name", "whole_cluster", "why"),
    [
        ("log.retention.hours", False, "restart"),
        ("node.id", False, "restart"),
        ("ssl.keystore.location", False, "listener.name.<listener>.ssl.keystore.location"),
        ("listeners", True, "one broker at a time"),
        ("listener.name.x.ssl.keystore.type", True, "one broker at a time"),
        ("listener.name.x.plugin", True, "one broker at a time"),
    ],
)
def test_an_invalid_dynamic_broker_config_is_rejected(name: str, whole_cluster: bool, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_broker_configs({name: "1"}, whole_cluster=whole_cluster)


@pytest.mark.parametrize(
    ("name", "whole_cluster"),
    [
        ("log.retention.ms", True),
        ("listeners", False),
        ("a.plugins.own.key", True),
        ("listener.name.x.max.connections", True),
        ("leader.replication.throttled.rate", False),
    ],
)
def test_a_valid_dynamic_broker_config_is_accepted(name: str, whole_cluster: bool) -> None:
    check_broker_configs({name: "1"}, whole_cluster=whole_cluster)


def test_values_of_dynamic_broker_configs_are_checked() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        check_broker_configs({"num.io.threads": "0"}, whole_cluster=True)
    with pytest.raises(ConfigError, match="at least 0"):
        check_broker_configs({"follower.replication.throttled.rate": "-1"}, whole_cluster=True)
    with pytest.raises(ConfigError, match=r"max\.connections=many"):
        check_broker_configs({"listener.name.x.max.connections": "many"}, whole_cluster=True)


@pytest.mark.parametrize(
    ("configs", "why"),
    [
        ({"consumer.session.timeout.ms": "1000"}, r"at least group\.consumer\.min\.session\.timeout\.ms \(45000\)"),
        ({"consumer.session.timeout.ms": "70000"}, r"at most group\.consumer\.max\.session\.timeout\.ms \(60000\)"),
        ({"streams.num.standby.replicas": "3"}, r"at most group\.streams\.max\.standby\.replicas \(2\)"),
        ({"share.auto.offset.reset": "by_duration:soon"}, "by_duration"),
        ({"share.auto.offset.reset": "by_duration:P"}, "by_duration"),
        ({"retention.ms": "1"}, "is not a group config"),
    ],
)
def test_an_invalid_group_config_is_rejected(configs: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_group_configs(configs, default_of_broker)


def test_a_session_timeout_must_exceed_the_heartbeat_interval() -> None:
    def broker_value(name: str) -> ConfigValue | None:
        wide = {"group.consumer.min.session.timeout.ms": 1, "group.consumer.max.heartbeat.interval.ms": 100_000}
        return wide.get(name, default_of_broker(name))

    check_group_configs({"consumer.heartbeat.interval.ms": "44999"}, broker_value)
    with pytest.raises(ConfigError, match=r"must be greater than consumer\.heartbeat\.interval\.ms"):
        check_group_configs({"consumer.session.timeout.ms": "5000"}, broker_value)


def test_valid_group_configs_are_accepted() -> None:
    check_group_configs({"share.auto.offset.reset": "by_duration:P1DT2H3M4.5S"}, default_of_broker)
    check_group_configs({"consumer.session.timeout.ms": "50000"}, default_of_broker)


@pytest.mark.parametrize(
    ("configs", "why"),
    [
        ({"interval.ms": "99"}, "from 100 to 3600000"),
        ({"match": "client_id"}, "name=pattern"),
        ({"match": "shoe_size=4.*"}, "name=pattern"),
        ({"match": "client_id=["}, "not a regular expression"),
        ({"metric": "x"}, "is not a client metrics config"),
    ],
)
def test_an_invalid_client_metrics_config_is_rejected(configs: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_client_metrics_configs(configs)


def test_a_valid_client_metrics_config_is_accepted() -> None:
    check_client_metrics_configs({"metrics": "*", "interval.ms": "100", "match": "client_id=a.*,client_source_port=9"})


def test_only_broker_keys_have_modes() -> None:
    assert all(key.mode is ConfigMode.READ_ONLY for table in ALL_TABLES[3:] for key in table.values())
