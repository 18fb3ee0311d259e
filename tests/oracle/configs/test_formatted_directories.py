"""Apache Kafka starts on a directory that we formatted and the reverse, and both describe configs alike."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat.java.jvm import Tools, java
from oracle.kafka_server import QUICK
from strandline.launch.ports import random_free_port
from strandline.metadata.effective_configs import (
    BrokerLayers,
    DescribedConfig,
    describe_broker,
    describe_client_metrics,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from strandline.model.config_keys.key import ConfigSource
from strandline.node.config import Config
from strandline.node.storage import FormatPlan, format_storage, open_storage, storage_info
from strandline.runtime.disk import SystemDisk

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
SOURCES = {
    ConfigSource.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.BROKER: "DYNAMIC_BROKER_CONFIG",
    ConfigSource.DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    ConfigSource.STATIC_BROKER: "STATIC_BROKER_CONFIG",
    ConfigSource.DEFAULT: "DEFAULT_CONFIG",
    ConfigSource.CLIENT_METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
    ConfigSource.GROUP: "DYNAMIC_GROUP_CONFIG",
}
# With a dynamic log.retention.ms Kafka describes the default for log.retention.hours, whatever the file says.
DEFAULT_IN_KAFKA = ("log.retention.hours",)
# What DescribedByKafka.java sets.
TOPIC = {"cleanup.policy": "compact, delete", "segment.bytes": "3000000"}
BROKER = {"log.retention.ms": "1000", "plugin.of.broker": "x", "leader.replication.throttled.rate": "100"}
ALL_BROKERS = {
    "log.segment.bytes": " 2000000",
    "plugin.of.cluster": "y",
    "log.retention.ms": "2000",
    "min.insync.replicas": "1",  # set by the controller when eligible leader replicas are enabled
}
GROUP = {"consumer.session.timeout.ms": "50000"}
METRICS = {"interval.ms": "5000"}


def properties(directory: Path, roles: str = "broker,controller") -> Path:
    broker_port = random_free_port("127.0.0.1")
    controller_port = random_free_port("127.0.0.1", {broker_port})
    listeners = {
        "broker": f"PLAINTEXT://127.0.0.1:{broker_port}",
        "controller": f"CONTROLLER://127.0.0.1:{controller_port}",
    }
    lines = [
        f"process.roles={roles}",
        "node.id=7",
        "listeners=" + ",".join(listeners[role] for role in roles.split(",")),
        "controller.listener.names=CONTROLLER",
        f"controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}",
        f"log.dirs={directory}/a,{directory}/b",
        "offsets.topic.replication.factor=1",
        "log.retention.hours=24",
        "log.roll.ms=7200000",
        "log.cleaner.min.cleanable.ratio=0.70",
        "compression.type= zstd",
        "log.flush.scheduler.interval.ms=5000",
        "ssl.keystore.password=secret",
        "listener.name.plaintext.ssl.keystore.type=PEM",
        "group.consumer.heartbeat.interval.ms=6000",
        "some.unknown.key=7",
    ]
    path = directory / f"{roles.replace(',', '-')}.properties"
    path.write_text("\n".join(lines) + "\n")
    return path


def format_directory(path: Path, **plan: Any) -> Config:
    config = Config.load(str(path))
    wall_ms = int(time.time() * 1000)
    format_storage(config, CLUSTER, FormatPlan(**plan), disk=SystemDisk(), random=random.Random(5), wall_ms=wall_ms)
    return config


@pytest.mark.parametrize("roles", ["broker,controller", "broker", "controller"])
def test_kafkas_storage_tool_accepts_what_we_format(roles: str, tools: Tools, tmp_path: Path) -> None:
    path = properties(tmp_path, roles)
    format_directory(path, standalone="controller" in roles)
    done = tools.run("kafka.tools.StorageTool", "info", "-c", str(path))
    assert done.code == 0, done.output
    assert f"cluster.id={CLUSTER}" in done.output and "node.id=7" in done.output
    assert "problem" not in done.output


@pytest.mark.parametrize("how", ["--standalone", "--no-initial-controllers"])
def test_we_accept_what_kafka_formats(how: str, tools: Tools, tmp_path: Path) -> None:
    path = properties(tmp_path)
    done = tools.run("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(path), how)
    assert done.code == 0, done.output
    config = Config.load(str(path))
    assert storage_info(config, disk=SystemDisk()).problems == ()
    storage = open_storage(config, disk=SystemDisk(), random=random.Random(1))
    assert (storage.cluster_id, storage.node_id, storage.offline) == (CLUSTER, 7, {})
    for directory, directory_id in storage.directory_ids.items():
        assert f"directory.id={directory_id}" in Path(directory, "meta.properties").read_text()


@pytest.fixture(scope="module")
def kafka_on_our_directory(
    oracle_programs: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Config, dict[str, list[dict[str, Any]]]]]:
    directory = tmp_path_factory.mktemp("ours")
    path = properties(directory)
    config = format_directory(path, standalone=True)
    log = directory / "kafka.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            ["java", "-Xmx400m", *QUICK, "-cp", oracle_programs, "kafka.Kafka", str(path)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        bootstrap = f"127.0.0.1:{config.listeners[0].port}"
        done = java(oracle_programs, "DescribedByKafka", bootstrap, "7", timeout=300)
        assert done.returncode == 0, f"{done.stderr}\n{log.read_text()[-3000:]}"
        yield config, json.loads(done.stdout.splitlines()[-1])
    finally:
        server.terminate()
        server.wait(120)
        shutil.rmtree(directory, ignore_errors=True)


def comparable(described: list[DescribedConfig]) -> dict[str, dict[str, Any]]:
    return {
        entry.name: {
            "value": entry.value,
            "source": SOURCES[entry.source],
            "read_only": entry.read_only,
            "sensitive": entry.sensitive,
            "kind": entry.kind.name,
            "documented": entry.doc is not None,
            "synonyms": [[each.name, each.value, SOURCES[each.source]] for each in entry.synonyms],
        }
        for entry in described
    }


@pytest.mark.slow
@pytest.mark.xdist_group("kafka_on_our_directory")
@pytest.mark.parametrize("resource", ["topic", "broker", "cluster", "group", "client_metrics"])
def test_kafka_starts_on_our_directory_and_describes_configs_as_we_do(
    resource: str, kafka_on_our_directory: tuple[Config, dict[str, list[dict[str, Any]]]]
) -> None:
    config, described = kafka_on_our_directory
    layers = BrokerLayers(BROKER, ALL_BROKERS, config.static)
    ours = {
        "topic": lambda: describe_topic(TOPIC, layers),
        "broker": lambda: describe_broker(layers),
        "cluster": lambda: describe_cluster_defaults(ALL_BROKERS),
        "group": lambda: describe_group(GROUP, layers),
        "client_metrics": lambda: describe_client_metrics(METRICS),
    }[resource]()
    theirs = {
        entry["name"]: {field: entry[field] for field in entry if field != "name"} for entry in described[resource]
    }
    for name in DEFAULT_IN_KAFKA if resource == "broker" else ():
        assert theirs[name].pop("value") == "168"
        assert comparable(ours)[name]["value"] == "24"
        theirs[name]["value"] = "24"
        theirs["leader.replication.throttled.rate"]["documented"] = (
            True  # Kafka has no documentation of throttles, we have
        )
    assert comparable(ours) == theirs
