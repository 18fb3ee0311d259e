"""Our tables of config keys and Kafka's ConfigDefs: names, types, defaults, bounds, update modes, synonyms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from compat.java.jvm import java
from strandline.model.config_keys.broker import BROKER_KEYS, THROTTLE_KEYS, broker_synonyms, check_broker_configs
from strandline.model.config_keys.group import CLIENT_METRICS_KEYS, GROUP_KEYS
from strandline.model.config_keys.key import ConfigError, ConfigKey, ConfigKind
from strandline.model.config_keys.topic import TOPIC_KEYS

# One worker runs Kafka once for all cases.
pytestmark = pytest.mark.xdist_group("kafka-settings")

TABLES: Mapping[str, Mapping[str, ConfigKey]] = {
    "broker": BROKER_KEYS,
    "topic": TOPIC_KEYS,
    "group": GROUP_KEYS,
    "client_metrics": CLIENT_METRICS_KEYS,
}
# Kafka validates these two outside its ConfigDef (ClientMetricsConfigs.validate); our table has the whole rule.
STRICTER_THAN_THE_TABLE = {"interval.ms", "match"}
# A server without a host: Kafka accepts it and fails when it connects.
REJECTED_ON_PURPOSE = {("controller.quorum.bootstrap.servers", ":9093")}


@pytest.fixture(scope="module")
def kafka(oracle_programs: str) -> dict[str, Any]:
    done = java(oracle_programs, "KafkaConfigKeys")
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


@pytest.mark.parametrize("table", TABLES)
def test_the_keys_are_those_of_kafka(table: str, kafka: dict[str, Any]) -> None:
    assert sorted(TABLES[table]) == sorted(key["name"] for key in kafka[table])


@pytest.mark.parametrize("table", TABLES)
def test_types_defaults_and_update_modes_are_those_of_kafka(table: str, kafka: dict[str, Any]) -> None:
    ours = {
        name: {
            "kind": key.kind.name,
            "required": key.required,
            "default": key.default,
            "internal": key.internal,
            "sensitive": key.sensitive,
            "mode": key.mode.value,
        }
        for name, key in TABLES[table].items()
    }
    theirs = {key["name"]: {field: key[field] for field in ours[key["name"]]} for key in kafka[table]}
    assert ours == theirs


@pytest.mark.parametrize("table", TABLES)
def test_values_are_accepted_and_normalised_as_by_kafka(table: str, kafka: dict[str, Any]) -> None:
    differences = []
    for facts in kafka[table]:
        key = TABLES[table][facts["name"]]
        if key.kind is ConfigKind.CLASS or key.name in STRICTER_THAN_THE_TABLE:
            continue
        for text, theirs in facts["accepts"].items():
            try:
                ours: str | None = key.normalise(text)
            except ConfigError:
                ours = None
            if ours != theirs and (key.name, text) not in REJECTED_ON_PURPOSE:
                differences.append((key.name, text, ours, theirs))
    assert differences == []


def test_topic_keys_have_kafkas_synonyms(kafka: dict[str, Any]) -> None:
    ours = {
        name: [[synonym.name, str(synonym.factor)] for synonym in key.synonyms]
        for name, key in TOPIC_KEYS.items()
        if key.synonyms
    }
    assert ours == kafka["topic_synonyms"]


def test_group_keys_have_kafkas_synonyms(kafka: dict[str, Any]) -> None:
    ours = {name: key.synonyms[0].name if key.synonyms else None for name, key in GROUP_KEYS.items()}
    assert ours == kafka["group_synonyms"]


def test_broker_keys_have_kafkas_synonyms(kafka: dict[str, Any]) -> None:
    assert {name: list(broker_synonyms(name)) for name in kafka["broker_synonyms"]} == kafka["broker_synonyms"]


def test_dynamic_only_keys_are_those_of_kafka(kafka: dict[str, Any]) -> None:
    assert sorted(THROTTLE_KEYS) == sorted(kafka["dynamic_only"])


def test_alterations_of_broker_configs_are_accepted_or_rejected_as_by_kafka(kafka: dict[str, Any]) -> None:
    differences = []
    for case in kafka["alterations"]:
        try:
            check_broker_configs({case["name"]: case["value"]}, whole_cluster=not case["per_broker"])
            accepted = True
        except ConfigError:
            accepted = False
        if accepted != case["accepted"]:
            differences.append((case, accepted))
    assert differences == []
