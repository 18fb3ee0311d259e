"""Kafka's tools for the cluster as a whole: nodes, features, configs, quotas, users and log directories."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from oracle.cluster.conftest import IMPLEMENTATION, Run
from oracle.cluster.mixed_cluster import MixedCluster, wait_until
from oracle.cluster.tool_output import CLUSTER, CONFIGS, FEATURES, LOG_DIRS, TOPICS, dynamic_configs, rows
from oracle.kafka_server import CLUSTER_ID

pytestmark = pytest.mark.xdist_group("cluster")


def by_controller(cluster: MixedCluster, index: int = 0) -> tuple[str, str]:
    return ("--bootstrap-controller", cluster.controllers[index])


def wait_for_configs(run: Run, arguments: Sequence[str], wanted: Mapping[str, str]) -> None:
    """A standby controller replays a change after the active controller has responded."""
    wait_until(lambda: dynamic_configs(run(CONFIGS, *arguments).output) == wanted)


def test_every_node_returns_the_cluster_id(run: Run, cluster: MixedCluster) -> None:
    for broker in cluster.brokers:
        assert run(CLUSTER, "cluster-id", "--bootstrap-server", broker).lines == [f"Cluster ID: {CLUSTER_ID}"]
    for index in range(3):
        assert run(CLUSTER, "cluster-id", *by_controller(cluster, index)).lines == [f"Cluster ID: {CLUSTER_ID}"]


def test_brokers_and_controllers_are_listed_with_their_ports(run: Run, cluster: MixedCluster) -> None:
    brokers = rows(run(CLUSTER, "list-endpoints", "--include-fenced-brokers").lines)
    assert [(row["ID"], row["PORT"], row["STATE"]) for row in brokers] == [
        (str(node.id), str(node.state.port), "unfenced") for node in cluster.nodes.values()
    ]
    ports = {str(node.id): str(node.state.controller_port) for node in cluster.nodes.values()}

    def controllers() -> list[dict[str, str]]:
        return rows(run(CLUSTER, "list-endpoints", *by_controller(cluster, 2)).lines)

    # Controllers register their endpoints after the brokers are ready.
    wait_until(lambda: {row["ID"]: row["PORT"] for row in controllers()} == ports)
    assert {row["ENDPOINT_TYPE"] for row in controllers()} == {"controller"}


def test_a_stopped_broker_is_fenced_and_can_be_unregistered(run: Run, cluster: MixedCluster) -> None:
    where = ("--bootstrap-server", cluster.brokers[0])

    def state() -> str | None:
        listed = rows(run(CLUSTER, "list-endpoints", *where, "--include-fenced-brokers").lines)
        return next((row["STATE"] for row in listed if row["ID"] == "4"), None)

    cluster.stop(4)
    try:
        wait_until(lambda: state() == "fenced")
        assert run(CLUSTER, "unregister", *where, "--id", "4").lines == ["Broker 4 is no longer registered."]
        wait_until(lambda: state() is None)
        assert "BrokerIdNotRegistered" in run(CLUSTER, "unregister", *where, "--id", "4", code=1).output
    finally:
        cluster.start(IMPLEMENTATION, 4)
    assert state() == "unfenced", "the broker registers again"


@pytest.mark.parametrize("side", ["broker", "controller"])
def test_features_are_described_downgraded_and_upgraded(run: Run, cluster: MixedCluster, side: str) -> None:
    where = by_controller(cluster, 1) if side == "controller" else ("--bootstrap-server", cluster.bootstrap)
    name = "eligible.leader.replicas.version"

    def finalized() -> dict[str, str]:
        lines = [line.split() for line in run(FEATURES, *where, "describe").lines]
        return {words[1]: words[words.index("FinalizedVersionLevel:") + 1] for words in lines}

    before = {**finalized(), name: "1"}
    assert (before["metadata.version"], before["kraft.version"]) == ("4.3-IV0", "1")
    # A standby controller may not have replayed the last change of an earlier test.
    wait_until(lambda: finalized() == before)
    assert f"{name} was downgraded to 0." in run(FEATURES, *where, "downgrade", "--feature", f"{name}=0").output
    wait_until(lambda: finalized()[name] == "0")
    assert f"{name} was upgraded to 1." in run(FEATURES, *where, "upgrade", "--feature", f"{name}=1").output
    wait_until(lambda: finalized() == before)
    refused = run(FEATURES, *where, "upgrade", "--feature", f"{name}=2", code=1).output
    assert f"Could not upgrade {name} to 2." in refused and "1 out of 1 operation(s) failed." in refused


@pytest.mark.parametrize("how", [[], ["--unsafe"]], ids=["safely", "unsafely"])
def test_a_downgrade_of_the_metadata_version_is_rejected(run: Run, how: list[str]) -> None:
    refused = run(FEATURES, "downgrade", "--metadata", "4.2-IV1", *how, code=1).output
    assert "Could not downgrade metadata.version to 29." in refused
    assert "metadata.version was upgraded to 30." in run(FEATURES, "upgrade", "--metadata", "4.3-IV0").output


def test_configs_of_one_broker_and_of_all_are_described_by_brokers_and_controllers(
    run: Run, cluster: MixedCluster
) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "2")
    all_of_them = ("--entity-type", "brokers", "--entity-default")
    shared = {"log.retention.ms": "77777777", "min.insync.replicas": "1"}
    run(CONFIGS, "--alter", *one, "--add-config", "log.cleaner.threads=2")
    run(CONFIGS, *by_controller(cluster), "--alter", *all_of_them, "--add-config", "log.retention.ms=77777777")
    wait_until(lambda: dynamic_configs(run(CONFIGS, "--describe", *one).output).get("log.cleaner.threads") == "2")
    for where in (by_controller(cluster, 1), ("--bootstrap-server", cluster.brokers[3])):
        wait_for_configs(run, (*where, "--describe", *all_of_them), shared)
    other = ("--all", "--entity-type", "brokers", "--entity-name", "3")
    inherited = "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=77777777"
    wait_until(lambda: inherited in run(CONFIGS, "--describe", *other).output)
    run(CONFIGS, "--alter", *one, "--delete-config", "log.cleaner.threads")
    run(CONFIGS, "--alter", *all_of_them, "--delete-config", "log.retention.ms")
    wait_until(lambda: "log.cleaner.threads" not in dynamic_configs(run(CONFIGS, "--describe", *one).output))


def test_topic_configs_are_described_by_every_broker(run: Run, cluster: MixedCluster) -> None:
    run(TOPICS, "--create", "--topic", "configured")
    which = ("--entity-type", "topics", "--entity-name", "configured")
    for index, broker in enumerate(cluster.brokers):
        wanted = {"retention.ms": str(9000 + index)}
        change = ("--alter", *which, "--add-config", f"retention.ms={9000 + index}")
        run(CONFIGS, "--bootstrap-server", broker, *change)
        for other in cluster.brokers:
            wait_for_configs(run, ("--bootstrap-server", other, "--describe", *which), wanted)


@pytest.mark.parametrize(
    ("entity", "described"),
    [
        (["users", "ada"], "user-principal 'ada'"),
        (["users"], "the default user-principal"),
        (["clients", "c1"], "client-id 'c1'"),
        (["users", "ada", "clients", "c1"], "user-principal 'ada', client-id 'c1'"),
    ],
    ids=["user", "all users", "client", "user and client"],
)
def test_quotas_are_set_described_and_deleted(run: Run, entity: list[str], described: str) -> None:
    which: list[str] = []
    for word in entity:
        which += ["--entity-type", word] if word in ("users", "clients") else ["--entity-name", word]
    if "--entity-name" not in which:
        which.append("--entity-default")
    run(CONFIGS, "--alter", *which, "--add-config", "producer_byte_rate=1000,consumer_byte_rate=2000")
    shown = run(CONFIGS, "--describe", *which).output
    assert f"Quota configs for {described} are" in shown
    assert "producer_byte_rate=1000.0" in shown and "consumer_byte_rate=2000.0" in shown
    run(CONFIGS, "--alter", *which, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    wait_until(lambda: run(CONFIGS, "--describe", *which).lines == [])


@pytest.mark.parametrize(
    ("entity", "quota", "reported"),
    [
        (["--entity-type", "users", "--entity-name", "ada"], "consumer_byte_rate=2000.5", "consumer_byte_rate"),
        (
            ["--entity-type", "ips", "--entity-name", "127.0.0.1"],
            "connection_creation_rate=-7",
            "connection_creation_rate",
        ),
    ],
    ids=["a fraction of a byte", "a negative rate"],
)
def test_an_invalid_quota_is_rejected_with_its_key(run: Run, entity: list[str], quota: str, reported: str) -> None:
    refused = run(CONFIGS, "--alter", *entity, "--add-config", quota, code=1).output
    assert "InvalidRequestException" in refused and reported in refused
    assert run(CONFIGS, "--describe", *entity).lines == []


def test_scram_credentials_of_users_are_set_and_deleted(run: Run, cluster: MixedCluster) -> None:
    user = ("--entity-type", "users", "--entity-name", "grace")
    run(CONFIGS, "--alter", *user, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=x]")
    run(CONFIGS, "--alter", *user, "--add-config", "SCRAM-SHA-512=[password=y]")
    shown = run(CONFIGS, "--describe", *user).output
    assert "SCRAM credential configs for user-principal 'grace' are" in shown
    assert "SCRAM-SHA-256=iterations=8192" in shown and "SCRAM-SHA-512=iterations=4096" in shown
    run(CONFIGS, "--alter", *user, "--delete-config", "SCRAM-SHA-256")
    wait_until(lambda: "SCRAM-SHA-256" not in run(CONFIGS, "--describe", *user).output)
    again = run(CONFIGS, "--alter", *user, "--delete-config", "SCRAM-SHA-256", code=1).output
    assert "ResourceNotFoundException" in again
    run(CONFIGS, "--alter", *user, "--delete-config", "SCRAM-SHA-512")


def test_every_broker_describes_its_log_directories(run: Run, cluster: MixedCluster) -> None:
    run(TOPICS, "--create", "--topic", "on-disk", "--replica-assignment", "1:2,4:3")

    def found() -> dict[int, list[str]]:
        described = json.loads(run(LOG_DIRS, "--describe", "--topic-list", "on-disk").lines[-1])
        return {
            broker["broker"]: [each["partition"] for each in broker["logDirs"][0]["partitions"]]
            for broker in described["brokers"]
        }

    wanted = {1: ["on-disk-0"], 2: ["on-disk-0"], 3: ["on-disk-1"], 4: ["on-disk-1"]}
    wait_until(lambda: found() == wanted, lambda: str(found()))
    one = json.loads(run(LOG_DIRS, "--describe", "--broker-list", "2").lines[-1])
    assert [(each["broker"], each["logDirs"][0]["logDir"]) for each in one["brokers"]] == [
        (2, str(cluster.nodes[2].directory))
    ]
