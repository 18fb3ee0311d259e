"""Kafka's tools read the metadata files of every member: each log the same as the leader's, each snapshot the image."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from cluster.quorum.admin_requests import create_topic, topics
from compat.java.jvm import Tools
from oracle.cluster.members import Members, wait_until
from oracle.cluster.tables import DUMP
from oracle.metadata_shell import shell

pytestmark = pytest.mark.xdist_group("cluster")

METADATA = "__cluster_metadata-0"
COMPLAINTS = ("mismatch", "not found", "invalid bytes", "exception", "isvalid: false", "error")


@pytest.fixture(scope="module")
def copied(members: Members, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The metadata directory of each member as it was at one moment, all of them up to the same topic at least."""
    for number in range(12):
        create_topic(members.brokers[number % 4], f"copied-{number}", 3, 3)
    members.settle()
    for member in members.each.values():
        wait_until(lambda member=member: len(list((member.directory / METADATA).glob("*.checkpoint"))) > 1)  # type: ignore[misc]
    home = tmp_path_factory.mktemp("copied")
    with members.still():
        return {
            member.id: Path(shutil.copytree(member.directory / METADATA, home / str(member.id) / METADATA))
            for member in members.each.values()
        }


def dumped(tools: Tools, file: Path) -> list[str]:
    done = tools.run(DUMP, "--cluster-metadata-decoder", "--files", str(file))
    assert done.code == 0, done.output
    spoken = [re.sub(r"payload:.*", "", line).lower() for line in done.lines]
    assert not [line for line in spoken if any(word in line for word in COMPLAINTS)]
    return done.lines


def records(lines: list[str]) -> dict[int, str]:
    """By offset: what is in the record, without what a file may tell differently (positions)."""
    found = {}
    for line in lines:
        if line.startswith("| offset: "):
            offset = int(line.split()[2])
            found[offset] = re.sub(r"^\| offset: \d+ ", "", line)
    return found


def test_every_log_is_the_leaders_log_record_by_record(copied: dict[int, Path], tools: Tools) -> None:
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


def test_control_records_tell_of_leaders_and_voters(copied: dict[int, Path], tools: Tools) -> None:
    text = "\n".join(
        line
        for file in sorted(copied[2].glob("*"))
        if file.suffix in (".log", ".checkpoint")
        for line in dumped(tools, file)
    )
    assert "LeaderChange: " in text and "KRaftVoters" in text and 'KRaftVersion {"version":0,"kRaftVersion":1}' in text
    assert "SnapshotHeader" in text and "SnapshotFooter" in text


@pytest.mark.parametrize("node_id", [1, 4], ids=["a voter's", "an observer's"])
def test_the_metadata_shell_walks_through_a_snapshot(
    copied: dict[int, Path], programs: str, members: Members, node_id: int
) -> None:
    snapshot = max(copied[node_id].glob("*.checkpoint"))
    known = {str(topic.topic_id): name for name, topic in topics(members.brokers[0]).items()}

    def alive(walked: str) -> dict[str, str]:
        told = dict(re.findall(r"^\s*id:\n\s*(\S+)\n\s*name:\n\s*(\S+)", walked, re.MULTILINE))
        return {topic_id: name for topic_id, name in told.items() if topic_id in known}

    found = alive(shell(programs, snapshot, ("tree", "/image/topics/byId"), lambda walked: bool(alive(walked))))
    assert found and all(known[topic_id] == name for topic_id, name in found.items())


def test_the_metadata_shell_walks_through_a_log(copied: dict[int, Path], programs: str) -> None:
    wanted = {f"copied-{number}" for number in range(12)}
    log = max(copied[2].glob("*.log"))
    listed = shell(programs, log, ("ls", "/image/topics/byName"), lambda said: wanted <= set(said.split()))
    assert wanted <= set(listed.split())


def test_broker_registrations_are_complete(copied: dict[int, Path], tools: Tools, members: Members) -> None:
    lines = dumped(tools, max(copied[3].glob("*.log")))
    told = [json.loads(line.partition("payload: ")[2]) for line in lines if '"type":"REGISTER_BROKER_RECORD"' in line]
    ports = {each["data"]["brokerId"]: each["data"]["endPoints"][0]["port"] for each in told}
    assert ports == {member.id: member.node.port for member in members.each.values()}
    directories = {each["data"]["brokerId"]: each["data"]["logDirs"] for each in told}
    for node_id, (directory_id,) in directories.items():
        assert directory_id in (members.each[node_id].directory / "meta.properties").read_text()
