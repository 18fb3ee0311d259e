"""The output and exit codes of Apache Kafka's command line tools with our node."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from compat.java.jvm import ToolResult, Tools, java

pytestmark = [pytest.mark.oracle, pytest.mark.xdist_group("java")]

TOOLS = "org.apache.kafka.tools"
CONFIGS = "kafka.admin.ConfigCommand"
TOPICS = f"{TOOLS}.TopicCommand"

Run = Callable[..., ToolResult]


@pytest.fixture
def run(tools: Tools, bootstrap: str) -> Run:
    """Runs a tool against our node and checks its exit code."""

    def run_tool(tool: str, *arguments: str, code: int = 0, text: str = "") -> ToolResult:
        where: tuple[str, ...] = (
            () if any("bootstrap" in each for each in arguments) else ("--bootstrap-server", bootstrap)
        )
        if tool.endswith("ClusterTool"):
            ran = tools.run(tool, *arguments, *where, text=text)
        else:
            ran = tools.run(tool, *where, *arguments, text=text)
        assert ran.code == code, ran.output
        return ran

    return run_tool


@pytest.fixture
def topic(run: Run, request: pytest.FixtureRequest) -> str:
    """A topic of one partition, named after the test."""
    name: str = request.node.name.removeprefix("test_").replace("[", ".").replace("]", "")
    run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    return name


def fields(line: str) -> dict[str, str]:
    """`Topic: x<tab>Partition: 0` as a mapping."""
    return {key.strip(): value.strip() for key, _, value in (part.partition(":") for part in line.split("\t"))}


def dynamic_configs(output: str) -> dict[str, str]:
    """The `key=value sensitive=…` lines of the config tool."""
    found = (
        line.strip().split(" sensitive=")[0].partition("=") for line in output.splitlines() if " sensitive=" in line
    )
    return {key: value for key, _, value in found}


def test_topics_are_created_listed_described_altered_and_deleted(run: Run) -> None:
    run(TOPICS, "--create", "--topic", "one", "--partitions", "2", "--config", "retention.ms=90000")
    assert "already exists" in run(TOPICS, "--create", "--topic", "one", code=1).output
    run(TOPICS, "--create", "--topic", "one", "--if-not-exists")
    assert "one" in run(TOPICS, "--list").lines
    head, *partitions = map(fields, run(TOPICS, "--describe", "--topic", "one").lines)
    assert (head["PartitionCount"], head["ReplicationFactor"]) == ("2", "1")
    assert head["Configs"] == "min.insync.replicas=1,retention.ms=90000"
    assert len(head["TopicId"]) == 22
    assert [each["Partition"] for each in partitions] == ["0", "1"]
    assert {(each["Leader"], each["Replicas"], each["Isr"], each["Elr"]) for each in partitions} == {
        ("1", "1", "1", "")
    }
    run(TOPICS, "--alter", "--topic", "one", "--partitions", "4")
    assert len(run(TOPICS, "--describe", "--topic", "one").lines) == 5
    by_id = run(TOPICS, "--describe", "--topic-id", head["TopicId"])
    assert fields(by_id.lines[0])["Topic"] == "one" and len(by_id.lines) == 5
    run(TOPICS, "--delete", "--topic", "one")
    assert "one" not in run(TOPICS, "--list").lines
    assert "one" in run(TOPICS, "--describe", "--topic", "one", code=1).output


@pytest.mark.parametrize(
    "which", ["--unavailable-partitions", "--under-replicated-partitions", "--under-min-isr-partitions"]
)
def test_no_partition_is_unavailable_or_under_replicated(run: Run, topic: str, which: str) -> None:
    assert run(TOPICS, "--describe", "--topic", topic, which).lines == []


def test_a_topic_is_created_with_a_replica_assignment(run: Run) -> None:
    run(TOPICS, "--create", "--topic", "by-hand", "--replica-assignment", "1,1,1")
    assert fields(run(TOPICS, "--describe", "--topic", "by-hand").lines[0])["PartitionCount"] == "3"


def test_topic_configs_are_altered_and_described(run: Run, topic: str) -> None:
    which = ("--entity-type", "topics", "--entity-name", topic)
    run(CONFIGS, "--alter", *which, "--add-config", "retention.ms=2000,cleanup.policy=[compact,delete]")
    described = run(CONFIGS, "--describe", *which)
    assert dynamic_configs(described.output) == {"cleanup.policy": "compact,delete", "retention.ms": "2000"}
    assert "DEFAULT_CONFIG:log.cleanup.policy=delete" in described.output
    run(CONFIGS, "--alter", *which, "--delete-config", "retention.ms")
    assert dynamic_configs(run(CONFIGS, "--describe", *which).output) == {"cleanup.policy": "compact,delete"}
    everything = dynamic_configs(run(CONFIGS, "--describe", "--all", *which).output)
    assert everything["segment.bytes"] == "1073741824" and len(everything) == 33


def test_an_invalid_value_is_rejected_with_its_key(run: Run, topic: str) -> None:
    which = ("--entity-type", "topics", "--entity-name", topic)
    assert "retention.ms" in run(CONFIGS, "--alter", *which, "--add-config", "retention.ms=soon", code=1).output
    assert dynamic_configs(run(CONFIGS, "--describe", *which).output) == {}


def test_broker_configs_are_altered_and_described(run: Run) -> None:
    broker, all_brokers = (
        ("--entity-type", "brokers", "--entity-name", "1"),
        ("--entity-type", "brokers", "--entity-default"),
    )
    run(CONFIGS, "--alter", *broker, "--add-config", "log.retention.ms=200000000")
    run(CONFIGS, "--alter", *all_brokers, "--add-config", "log.segment.bytes=200000000")
    assert dynamic_configs(run(CONFIGS, "--describe", *broker).output)["log.retention.ms"] == "200000000"
    shared = dynamic_configs(run(CONFIGS, "--describe", *all_brokers).output)
    assert shared == {"log.segment.bytes": "200000000", "min.insync.replicas": "1"}
    both = dynamic_configs(run(CONFIGS, "--describe", "--entity-type", "brokers").output)
    assert {"log.retention.ms", "log.segment.bytes"} <= both.keys()
    run(CONFIGS, "--alter", *broker, "--delete-config", "log.retention.ms")
    run(CONFIGS, "--alter", *all_brokers, "--delete-config", "log.segment.bytes")
    assert "log.segment.bytes" not in dynamic_configs(run(CONFIGS, "--describe", *all_brokers).output)


def test_lines_are_produced_and_consumed(run: Run, topic: str) -> None:
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    lines = [f"key{number}:value {number}" for number in range(50)]
    run(f"{TOOLS}.ConsoleProducer", "--topic", topic, *keyed, text="\n".join(lines) + "\n")
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    reading = ("--topic", topic, "--partition", "0", "--timeout-ms", "60000", *shown)
    consumer = f"{TOOLS}.consumer.ConsoleConsumer"
    found = run(consumer, *reading, "--offset", "earliest", "--max-messages", "50").lines
    assert found[:50] == lines
    committed = ("--isolation-level", "read_committed", "--offset", "47", "--max-messages", "3")
    assert run(consumer, *reading, *committed).lines[:3] == lines[47:]


def test_offsets_are_shown_and_records_deleted(run: Run, topic: str, bootstrap: str, tmp_path: Path) -> None:
    performance = run(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", "3000", "--record-size", "100", "--throughput", "-1"),
        *("--command-property", f"bootstrap.servers={bootstrap}", "acks=all", "compression.type=lz4"),
    )
    assert performance.lines[-1].startswith("3000 records sent")
    shell = f"{TOOLS}.GetOffsetShell"
    assert run(shell, "--topic", topic).lines == [f"{topic}:0:3000"]
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 1234}]}))
    deleted = run(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert deleted.lines[-1] == f"partition: {topic}-0\tlow_watermark: 1234"
    assert run(shell, "--topic-partitions", f"{topic}:0", "--time", "earliest").lines == [f"{topic}:0:1234"]
    latest = int(run(shell, "--topic", topic, "--time", "max-timestamp").lines[0].split(":")[2])
    assert 1234 <= latest < 3000
    assert run(shell, "--topic", topic, "--time", "0").lines == [f"{topic}:0:1234"]


def test_log_directories_are_described(run: Run, topic: str) -> None:
    run(f"{TOOLS}.ConsoleProducer", "--topic", topic, text="x\n")
    described = json.loads(run(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic).lines[-1])
    (directory,) = described["brokers"][0]["logDirs"]
    assert described["brokers"][0]["broker"] == 1 and directory["error"] is None
    # A batch header, then a record of one byte.
    assert directory["partitions"] == [{"partition": f"{topic}-0", "size": 69, "offsetLag": 0, "isFuture": False}]


def test_features_are_described(run: Run) -> None:
    lines = [line.split() for line in run(f"{TOOLS}.FeatureCommand", "describe").lines]
    finalized = {words[1]: words[words.index("FinalizedVersionLevel:") + 1] for words in lines}
    assert finalized["metadata.version"] == "4.3-IV0"
    assert finalized["eligible.leader.replicas.version"] == "1"
    assert finalized["share.version"] == "0"


def test_the_quorum_is_described(run: Run) -> None:
    tool = f"{TOOLS}.MetadataQuorumCommand"
    status = dict(line.split(":", 1) for line in run(tool, "describe", "--status").lines)
    (voter,) = json.loads(status["CurrentVoters"])
    assert (status["LeaderId"].strip(), voter["id"]) == ("1", 1)
    assert int(status["HighWatermark"]) > 0 and json.loads(status["CurrentObservers"]) == []
    endpoint = voter["endpoints"][0].removeprefix("CONTROLLER://")
    by_controller = run(tool, "--bootstrap-controller", endpoint, "describe", "--status")
    assert f"ClusterId:{status['ClusterId']}" in by_controller.output
    _, row = run(tool, "describe", "--replication").lines
    assert (row.split()[0], row.split()[1], row.split()[-1]) == ("1", voter["directoryId"], "Leader")


def test_the_cluster_is_described(run: Run, bootstrap: str) -> None:
    assert len(run(f"{TOOLS}.ClusterTool", "cluster-id").lines[0].split()[-1]) == 22
    host, port = bootstrap.split(":")
    _, row = run(f"{TOOLS}.ClusterTool", "list-endpoints").lines
    assert row.split() == ["1", host, port, "null", "unfenced", "broker"]


def test_api_versions_are_listed(run: Run) -> None:
    lines = run(f"{TOOLS}.BrokerApiVersionsCommand").lines
    assert any(line.startswith("Fetch(1): 4 to 18 [usable: 18]") for line in lines)


def test_metrics_subscriptions_are_altered_listed_and_deleted(run: Run) -> None:
    tool = f"{TOOLS}.ClientMetricsCommand"
    run(tool, "--alter", "--name", "kept", "--interval", "5000", "--metrics", "org.apache.kafka.producer.")
    assert "kept" in run(tool, "--list").lines
    described = run(tool, "--describe", "--name", "kept").lines
    assert {"interval.ms=5000", "metrics=org.apache.kafka.producer."} <= set(described)
    run(tool, "--delete", "--name", "kept")
    assert "kept" not in run(tool, "--list").lines


def test_producers_of_a_partition_are_described(run: Run, topic: str) -> None:
    run(f"{TOOLS}.ConsoleProducer", "--topic", topic, text="1\n2\n3\n")
    _, row = run(f"{TOOLS}.TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0").lines
    producer_epoch, coordinator_epoch, last_sequence = row.split()[1:4]
    assert (producer_epoch, coordinator_epoch, last_sequence) == ("0", "-1", "2")


def test_end_to_end_latency_is_measured(run: Run, topic: str) -> None:
    sizes = ("--num-records", "200", "--producer-acks", "all", "--record-size", "100")
    assert "99th" in run(f"{TOOLS}.EndToEndLatency", "--topic", topic, *sizes).output


def test_a_verifiable_producer_has_every_record_acknowledged(programs: str, bootstrap: str, topic: str) -> None:
    # It prints from a shutdown hook, so it needs its own JVM.
    done = java(
        programs,
        f"{TOOLS}.VerifiableProducer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", "1000", "--acks", "-1"),
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    offsets = [event["offset"] for event in events if event["name"] == "producer_send_success"]
    assert offsets == list(range(1000))
    assert events[-1]["name"] == "tool_data" and (events[-1]["sent"], events[-1]["acked"]) == (1000, 1000)


def test_kafkas_own_client_compatibility_test_passes(run: Run, topic: str) -> None:
    supported = {
        "offsets-for-times": "true",
        "create-topics": "true",
        "cluster-id": "true",
        "describe-acls": "true",
        "describe-configs": "true",
        "idempotent-producer": "true",
    }
    arguments = [word for name, answer in supported.items() for word in (f"--{name}-supported", answer)]
    limits = ("--num-cluster-nodes", "1", "--expect-record-too-large-exception", "false")
    assert "SUCCESS" in run(f"{TOOLS}.ClientCompatibilityTest", "--topic", topic, *arguments, *limits).output
