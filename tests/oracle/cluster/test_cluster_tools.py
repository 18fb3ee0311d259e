"""Kafka's tools for the cluster as a whole: its members, features, settings, quotas, users and disks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from oracle.cluster.conftest import WHO, Run
from oracle.cluster.members import Members, wait_until
from oracle.cluster.tables import CLUSTER, CONFIGS, FEATURES, LOG_DIRS, TOPICS, rows, settings
from oracle.kafka_server import CLUSTER_ID

pytestmark = pytest.mark.xdist_group("cluster")


def by_controller(members: Members, index: int = 0) -> tuple[str, str]:
    return ("--bootstrap-controller", members.controllers[index])


def until_told(run: Run, question: Sequence[str], wanted: Mapping[str, str]) -> None:
    """A controller that does not lead hears of it a moment after the leader has answered."""
    wait_until(lambda: settings(run(CONFIGS, *question).output) == wanted)


def test_every_member_names_the_cluster(run: Run, members: Members) -> None:
    for broker in members.brokers:
        assert run(CLUSTER, "cluster-id", "--bootstrap-server", broker).lines == [f"Cluster ID: {CLUSTER_ID}"]
    for index in range(3):
        assert run(CLUSTER, "cluster-id", *by_controller(members, index)).lines == [f"Cluster ID: {CLUSTER_ID}"]


def test_brokers_and_controllers_are_listed_where_they_listen(run: Run, members: Members) -> None:
    brokers = rows(run(CLUSTER, "list-endpoints", "--include-fenced-brokers").lines)
    assert [(row["ID"], row["PORT"], row["STATE"]) for row in brokers] == [
        (str(member.id), str(member.node.port), "unfenced") for member in members.each.values()
    ]
    ports = {str(member.id): str(member.node.controller_port) for member in members.each.values()}

    def controllers() -> list[dict[str, str]]:
        return rows(run(CLUSTER, "list-endpoints", *by_controller(members, 2)).lines)

    # They tell where they listen a moment after the brokers have begun.
    wait_until(lambda: {row["ID"]: row["PORT"] for row in controllers()} == ports)
    assert {row["ENDPOINT_TYPE"] for row in controllers()} == {"controller"}


def test_a_stopped_broker_is_fenced_and_can_be_unregistered(run: Run, members: Members) -> None:
    where = ("--bootstrap-server", members.brokers[0])

    def state() -> str | None:
        listed = rows(run(CLUSTER, "list-endpoints", *where, "--include-fenced-brokers").lines)
        return next((row["STATE"] for row in listed if row["ID"] == "4"), None)

    members.stop(4)
    try:
        wait_until(lambda: state() == "fenced")
        assert run(CLUSTER, "unregister", *where, "--id", "4").lines == ["Broker 4 is no longer registered."]
        wait_until(lambda: state() is None)
        assert "BrokerIdNotRegistered" in run(CLUSTER, "unregister", *where, "--id", "4", code=1).output
    finally:
        members.start(WHO, 4)
    assert state() == "unfenced", "it registers anew"


@pytest.mark.parametrize("side", ["broker", "controller"])
def test_features_are_described_lowered_and_raised(run: Run, members: Members, side: str) -> None:
    where = by_controller(members, 1) if side == "controller" else ("--bootstrap-server", members.bootstrap)
    name = "eligible.leader.replicas.version"

    def finalized() -> dict[str, str]:
        lines = [line.split() for line in run(FEATURES, *where, "describe").lines]
        return {words[1]: words[words.index("FinalizedVersionLevel:") + 1] for words in lines}

    before = {**finalized(), name: "1"}
    assert (before["metadata.version"], before["kraft.version"]) == ("4.3-IV0", "1")
    # The controller that is asked may not have heard yet of how it was left the last time.
    wait_until(lambda: finalized() == before)
    assert f"{name} was downgraded to 0." in run(FEATURES, *where, "downgrade", "--feature", f"{name}=0").output
    wait_until(lambda: finalized()[name] == "0")
    assert f"{name} was upgraded to 1." in run(FEATURES, *where, "upgrade", "--feature", f"{name}=1").output
    wait_until(lambda: finalized() == before)
    refused = run(FEATURES, *where, "upgrade", "--feature", f"{name}=2", code=1).output
    assert f"Could not upgrade {name} to 2." in refused and "1 out of 1 operation(s) failed." in refused


@pytest.mark.parametrize("how", [[], ["--unsafe"]], ids=["safely", "unsafely"])
def test_the_metadata_version_is_not_lowered(run: Run, how: list[str]) -> None:
    refused = run(FEATURES, "downgrade", "--metadata", "4.2-IV1", *how, code=1).output
    assert "Could not downgrade metadata.version to 29." in refused
    assert "metadata.version was upgraded to 30." in run(FEATURES, "upgrade", "--metadata", "4.3-IV0").output


def test_settings_of_one_broker_and_of_all_are_told_by_every_side(run: Run, members: Members) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "2")
    all_of_them = ("--entity-type", "brokers", "--entity-default")
    shared = {"log.retention.ms": "77777777", "min.insync.replicas": "1"}
    run(CONFIGS, "--alter", *one, "--add-config", "log.cleaner.threads=2")
    run(CONFIGS, *by_controller(members), "--alter", *all_of_them, "--add-config", "log.retention.ms=77777777")
    wait_until(lambda: settings(run(CONFIGS, "--describe", *one).output).get("log.cleaner.threads") == "2")
    for where in (by_controller(members, 1), ("--bootstrap-server", members.brokers[3])):
        until_told(run, (*where, "--describe", *all_of_them), shared)
    other = ("--all", "--entity-type", "brokers", "--entity-name", "3")
    inherited = "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=77777777"
    wait_until(lambda: inherited in run(CONFIGS, "--describe", *other).output)
    run(CONFIGS, "--alter", *one, "--delete-config", "log.cleaner.threads")
    run(CONFIGS, "--alter", *all_of_them, "--delete-config", "log.retention.ms")
    wait_until(lambda: "log.cleaner.threads" not in settings(run(CONFIGS, "--describe", *one).output))


def test_settings_of_topics_are_told_by_every_broker(run: Run, members: Members) -> None:
    run(TOPICS, "--create", "--topic", "configured")
    which = ("--entity-type", "topics", "--entity-name", "configured")
    for index, broker in enumerate(members.brokers):
        wanted = {"retention.ms": str(9000 + index)}
        change = ("--alter", *which, "--add-config", f"retention.ms={9000 + index}")
        run(CONFIGS, "--bootstrap-server", broker, *change)
        for other in members.brokers:
            until_told(run, ("--bootstrap-server", other, "--describe", *which), wanted)


@pytest.mark.parametrize(
    ("entity", "told"),
    [
        (["users", "ada"], "user-principal 'ada'"),
        (["users"], "the default user-principal"),
        (["clients", "c1"], "client-id 'c1'"),
        (["users", "ada", "clients", "c1"], "user-principal 'ada', client-id 'c1'"),
    ],
    ids=["user", "all users", "client", "user and client"],
)
def test_quotas_are_set_shown_and_taken_away(run: Run, entity: list[str], told: str) -> None:
    which: list[str] = []
    for word in entity:
        which += ["--entity-type", word] if word in ("users", "clients") else ["--entity-name", word]
    if "--entity-name" not in which:
        which.append("--entity-default")
    run(CONFIGS, "--alter", *which, "--add-config", "producer_byte_rate=1000,consumer_byte_rate=2000")
    shown = run(CONFIGS, "--describe", *which).output
    assert f"Quota configs for {told} are" in shown
    assert "producer_byte_rate=1000.0" in shown and "consumer_byte_rate=2000.0" in shown
    run(CONFIGS, "--alter", *which, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    wait_until(lambda: run(CONFIGS, "--describe", *which).lines == [])


@pytest.mark.parametrize(
    ("entity", "quota", "says"),
    [
        (["--entity-type", "users", "--entity-name", "ada"], "consumer_byte_rate=2000.5", "consumer_byte_rate"),
        (
            ["--entity-type", "ips", "--entity-name", "127.0.0.1"],
            "connection_creation_rate=-7",
            "connection_creation_rate",
        ),
    ],
    ids=["a fraction of a byte", "less than nothing"],
)
def test_a_senseless_quota_is_refused_by_name(run: Run, entity: list[str], quota: str, says: str) -> None:
    refused = run(CONFIGS, "--alter", *entity, "--add-config", quota, code=1).output
    assert "InvalidRequestException" in refused and says in refused
    assert run(CONFIGS, "--describe", *entity).lines == []


def test_users_get_credentials_and_lose_them(run: Run, members: Members) -> None:
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


def test_every_broker_tells_what_is_on_its_disks(run: Run, members: Members) -> None:
    run(TOPICS, "--create", "--topic", "on-disk", "--replica-assignment", "1:2,4:3")

    def found() -> dict[int, list[str]]:
        told = json.loads(run(LOG_DIRS, "--describe", "--topic-list", "on-disk").lines[-1])
        return {
            broker["broker"]: [each["partition"] for each in broker["logDirs"][0]["partitions"]]
            for broker in told["brokers"]
        }

    wanted = {1: ["on-disk-0"], 2: ["on-disk-0"], 3: ["on-disk-1"], 4: ["on-disk-1"]}
    wait_until(lambda: found() == wanted, lambda: str(found()))
    one = json.loads(run(LOG_DIRS, "--describe", "--broker-list", "2").lines[-1])
    assert [(each["broker"], each["logDirs"][0]["logDir"]) for each in one["brokers"]] == [
        (2, str(members.each[2].directory))
    ]
