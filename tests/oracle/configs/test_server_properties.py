"""Properties files, whole configs and release names: parsed, accepted and rejected as by Java and Kafka."""

from __future__ import annotations

import base64
import json
from random import Random
from typing import Any

import pytest

from compat.java.jvm import java
from strandline.node.config import Config, InvalidConfig
from strandline.node.metadata_versions import metadata_version_of
from strandline.node.properties_file import format_properties, parse_properties

# One worker runs Kafka once for all cases.
pytestmark = pytest.mark.xdist_group("kafka-configs")

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "log.dirs": "/data/a,/data/b",
}
# Applied one at a time to COMBINED; None removes the key.
CHANGES: list[dict[str, str | None]] = [
    {},
    {"process.roles": None},
    {"node.id": None},
    {"node.id": None, "broker.id": "4"},
    {"broker.id": "7"},
    {"controller.listener.names": None},
    {"listeners": "PLAINTEXT://localhost:9092"},
    {"listeners": "CONTROLLER://localhost:9093"},
    {"listeners": "localhost:9092"},
    {"listeners": "PLAINTEXT://a:1,PLAINTEXT://a:2,CONTROLLER://a:3"},
    {"listeners": "PLAINTEXT://a:1,CONTROLLER://a:1"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092"},
    {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT://:0,CONTROLLER://:0"},
    {"listeners": "plaintext://localhost:9092,controller://localhost:9093"},
    {"listeners": "PLAINTEXT://a:1,CONTROLLER://a:2,EXTRA://a:3"},
    {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
    {"listener.security.protocol.map": "PLAINTEXT:TLS,CONTROLLER:PLAINTEXT"},
    {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"},
    {"advertised.listeners": "OTHER://a:1"},
    {"advertised.listeners": "PLAINTEXT://a:1"},
    {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
    {"advertised.listeners": "PLAINTEXT://a:1,CONTROLLER://b:2"},
    {"inter.broker.listener.name": "CONTROLLER"},
    {"inter.broker.listener.name": "PLAINTEXT"},
    {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
    {"controller.quorum.bootstrap.servers": None},
    {"controller.quorum.bootstrap.servers": "here"},
    {"controller.quorum.voters": "2@localhost:9093"},
    {"controller.quorum.voters": "1@localhost:9093"},
    {"controller.quorum.voters": "localhost:9093"},
    {"process.roles": "broker"},
    {"process.roles": "broker", "listeners": "PLAINTEXT://a:1"},
    {"process.roles": "broker", "listeners": "PLAINTEXT://a:1", "controller.quorum.voters": "1@a:2"},
    {"process.roles": "controller"},
    {"process.roles": "controller", "listeners": "CONTROLLER://a:1"},
    {"process.roles": "observer"},
    {"cordoned.log.dirs": "/elsewhere"},
    {"cordoned.log.dirs": "*,/data/a"},
    {"cordoned.log.dirs": "*"},
    {"cordoned.log.dirs": "/data/a"},
    {"log.roll.ms": "0"},
    {"log.roll.jitter.ms": "-1"},
    {"log.retention.ms": "0"},
    {"log.retention.ms": "-1"},
    {"log.retention.hours": "0"},
    {"replica.fetch.wait.max.ms": "40000"},
    {"message.max.bytes": "50000000"},
    {"queued.max.request.bytes": "1000"},
    {"queued.max.request.bytes": "-1"},
    {"log.cleaner.dedupe.buffer.size": "1000"},
    {"connection.failed.authentication.delay.ms": "600000"},
    {"broker.heartbeat.interval.ms": "8000"},
    {"group.consumer.heartbeat.interval.ms": "20000"},
    {"group.consumer.session.timeout.ms": "1000"},
    {"group.consumer.assignment.interval.ms": "20000"},
    {"group.consumer.min.session.timeout.ms": "50000"},
    {"group.share.assignors": "simple,other"},
    {"group.share.delivery.count.limit": "4", "group.share.min.delivery.count.limit": "5"},
    {"group.streams.num.standby.replicas": "3"},
    {"group.coordinator.rebalance.protocols": "consumer"},
    {"num.io.threads": "0"},
    {"some.unknown.key": "7"},
    {"max.connections.per.ip.overrides": "10.0.0.1:5,127.0.0.1:7"},
]
RELEASES = [
    "3.2",
    "3.3",
    "3.3-IV3",
    "3.5",
    "3.6-IV1",
    "3.7",
    "3.9.1",
    "4.0",
    "4.1-IV0",
    "4.2",
    "4.3",
    "4.3.1",
    "4.3-IV0",
    "x",
]


def files() -> list[bytes]:
    """Many short files of characters with a meaning, and some without."""
    random = Random(20_260_101)
    alphabet = "ab\\\\\\=: \t\f\n\r#!u0041e9né".encode("latin-1")
    # Bytes that are not UTF-8 are read as Latin-1, as Java reads all of them. No file ends in a single backslash, where
    # Java reads an empty key.
    return [bytes(random.choices(alphabet, k=random.randrange(1, 40))) + b"\nend" for _ in range(3000)]


def written() -> list[dict[str, str]]:
    random = Random(7)
    texts = ["", " a ", "=x", "#c", "tab\there", "nl\nhere", "é中😀", "back\\slash", "a:b=c", "! bang"]
    return [{random.choice(texts) + "k": random.choice(texts), "z": random.choice(texts)} for _ in range(50)]


@pytest.fixture(scope="module")
def kafka(oracle_programs: str) -> dict[str, Any]:
    encoded = [*files(), *(format_properties(pairs) for pairs in written())]
    cases = {
        "files": [base64.b64encode(data).decode() for data in encoded],
        "configs": [merged(change) for change in CHANGES],
        "releases": RELEASES,
    }
    done = java(oracle_programs, "KafkaServerProperties", text=json.dumps(cases))
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def merged(change: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in {**COMBINED, **change}.items() if value is not None}


def test_properties_are_read_as_java_reads_them(kafka: dict[str, Any]) -> None:
    differences = []
    for data, theirs in zip(files(), kafka["files"], strict=False):
        try:
            ours: dict[str, str] | None = parse_properties(data)
        except ValueError:
            ours = None
        if ours != theirs:
            differences.append((data, ours, theirs))
    assert differences == []


def test_java_reads_what_we_write(kafka: dict[str, Any]) -> None:
    assert kafka["files"][len(files()) :] == written()


def test_configs_are_accepted_or_rejected_as_by_kafka(kafka: dict[str, Any]) -> None:
    differences = []
    for change, theirs in zip(CHANGES, kafka["configs"], strict=True):
        try:
            Config.of(merged(change), hostname="localhost")
            ours = None
        except InvalidConfig as rejected:
            ours = str(rejected)
        if (ours is None) != (theirs is None):
            differences.append((change, ours, theirs))
    assert differences == []


def test_releases_have_kafkas_metadata_versions(kafka: dict[str, Any]) -> None:
    def level(release: str) -> int | None:
        try:
            return metadata_version_of(release)
        except ValueError:
            return None

    assert {release: level(release) for release in RELEASES} == kafka["releases"]
