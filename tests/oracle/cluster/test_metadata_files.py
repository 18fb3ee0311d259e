"""Kafka's tools read the metadata log and the snapshots of every node: equal records, and the same image."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from cluster.quorum.admin_requests import create_topic, topics
from compat.java.jvm import Tools
from oracle.cluster.mixed_cluster import MixedCluster, wait_until
from oracle.cluster.tool_output import DUMP
from oracle.metadata_shell import run_metadata_shell

pytestmark = pytest.mark.xdist_group("cluster")

METADATA = "__cluster_metadata-0"
COMPLAINTS = ("mismatch", "not found", "invalid bytes", "exception", "isvalid: false", "error")


@pytest.fixture(scope="module")
def copied(cluster: MixedCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The metadata directories of all nodes as of one moment, each with at least the topics created here."""
    for number in range(12):
        create_topic(cluster.brokers[number % 4], f"copied-{number}", 3, 3)
    cluster.wait_until_replayed()
    for node in cluster.nodes.values():
        wait_until(lambda node=node: len(list((node.directory / METADATA).glob("*.checkpoint"))) > 1)  # type: ignore[misc]
    home = tmp_path_factory.mktemp("copied")
    with cluster.paused():
        return {
            node.id: Path(shutil.copytree(node.directory / METADATA, home / str(node.id) / METADATA))
            for node in cluster.nodes.values()
        }


def dumped(tools: Tools, file: Path) -> list[str]:
    done = tools.run(DUMP, "--cluster-metadata-decoder", "--files", str(file))
    assert done.code == 0, done.output
    lines = [re.sub(r"payload:.*", "", line).lower() for line in done.lines]
    assert not [line for line in lines if any(word in line for word in COMPLAINTS)]
    return done.lines


def records(lines: list[str]) -> dict[int, str]:
    """By offset: the content of the record, without positions in the file."""
    found = {}
    for line in lines:
        if line.startswith("| offset: "):
            offset = int(line.split()[2])
            found[offset] = re.sub(r"^\| offset: \d+ ", "", line)
    return found


def test_the_logs_of_all_nodes_have_equal_records(copied: dict[int, Path], tools: Tools) -> None:
    logs = {
        node_id: records([line for file in sorted(home.glob("*.log")) for line in dumped(tools, file)])
        for node_id, home in copied.items()
    }
    shortest = min(max(log) for log in logs.values())
    latest_start = max(min(log) for log in logs.values())
    assert shortest - latest_start > 50
    one, *others = (
        {offset: text for offset, text in log.items() if latest_start <= offset <= shortest} for log in logs.values()
    )
    assert len(one) == shortest - latest_start + 1, "no offset is missing"
    for other in others:
        assert other == one


def test_control_records_are_decoded(copied: dict[int, Path], tools: Tools) -> None:
    text = "\n".join(
        line
        for file in sorted(copied[2].glob("*"))
        if file.suffix in (".log", ".checkpoint")
        for line in dumped(tools, file)
    )
    assert "LeaderChange: " in text and "KRaftVoters" in text and 'KRaftVersion {"version":0,"kRaftVersion":1}' in text
    assert "SnapshotHeader" in text and "SnapshotFooter" in text


@pytest.mark.parametrize("node_id", [1, 4], ids=["voter", "observer"])
def test_the_metadata_shell_reads_a_snapshot(
    copied: dict[int, Path], programs: str, cluster: MixedCluster, node_id: int
) -> None:
    snapshot = max(copied[node_id].glob("*.checkpoint"))
    known = {str(topic.topic_id): name for name, topic in topics(cluster.brokers[0]).items()}

    def existing(tree: str) -> dict[str, str]:
        listed = dict(re.findall(r"^\s*id:\n\s*(\S+)\n\s*name:\n\s*(\S+)", tree, re.MULTILINE))
        return {topic_id: name for topic_id, name in listed.items() if topic_id in known}

    found = existing(
        run_metadata_shell(programs, snapshot, ("tree", "/image/topics/byId"), lambda tree: bool(existing(tree)))
    )
    assert found and all(known[topic_id] == name for topic_id, name in found.items())


def test_the_metadata_shell_reads_a_log(copied: dict[int, Path], programs: str) -> None:
    wanted = {f"copied-{number}" for number in range(12)}
    log = max(copied[2].glob("*.log"))
    listed = run_metadata_shell(
        programs, log, ("ls", "/image/topics/byName"), lambda output: wanted <= set(output.split())
    )
    assert wanted <= set(listed.split())


def test_broker_registrations_are_complete(copied: dict[int, Path], tools: Tools, cluster: MixedCluster) -> None:
    lines = dumped(tools, max(copied[3].glob("*.log")))
    registrations = [
        json.loads(line.partition("payload: ")[2]) for line in lines if '"type":"REGISTER_BROKER_RECORD"' in line
    ]
    ports = {each["data"]["brokerId"]: each["data"]["endPoints"][0]["port"] for each in registrations}
    assert ports == {node.id: node.state.port for node in cluster.nodes.values()}
    directories = {each["data"]["brokerId"]: each["data"]["logDirs"] for each in registrations}
    for node_id, (directory_id,) in directories.items():
        assert directory_id in (cluster.nodes[node_id].directory / "meta.properties").read_text()
