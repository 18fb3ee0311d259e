"""Metadata read from the files of a node, which may be appended to, truncated or incomplete at the same time."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from strandline.cli.main import run
from strandline.cli.metadata_files import find_metadata
from strandline.launch.cluster_state import ClusterState, NodeState, write_state
from strandline.model.ids import Endpoint, Uuid
from strandline.protocol.messages.control_records import LeaderChangeMessage, VotersRecord
from strandline.protocol.messages.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from strandline.protocol.types import Message
from strandline.raft.disk.batches import encode_control_batch, encode_data_batch
from strandline.raft.disk.snapshots import SnapshotWriter
from strandline.raft.machine.values import SnapshotId
from strandline.raft.machine.voters import Voter, VoterSet
from strandline.runtime.disk import SystemDisk

TOPIC_ID = Uuid.parse("JEXY6aqzQY-32P5TStzaFg")
VOTERS = VoterSet((Voter(1, TOPIC_ID, (("CONTROLLER", Endpoint("h", 9093)),)),))
PARTITION = PartitionRecord(
    partition_id=0,
    topic_id=TOPIC_ID,
    replicas=[1, 2],
    isr=[1, 2],
    leader=1,
    leader_epoch=0,
    partition_epoch=0,
    directories=[TOPIC_ID, TOPIC_ID],
)


def data(base_offset: int, records: Sequence[Message], epoch: int = 1) -> bytes:
    return bytes(encode_data_batch(records, base_offset=base_offset, epoch=epoch, timestamp=1_000, metadata_version=30))


def written(directory: Path, *batches: bytes, base: int = 0) -> Path:
    partition = directory / "__cluster_metadata-0"
    partition.mkdir(parents=True, exist_ok=True)
    (partition / f"{base:020d}.log").write_bytes(b"".join(batches))
    return partition


def history(directory: Path) -> Path:
    """0 leader and voters · 2 features · 3 a topic · 5 its ISR shrinks · 6 a config."""
    leader = encode_control_batch(
        [LeaderChangeMessage(version=0, leader_id=1), VOTERS.record()], base_offset=0, epoch=1, timestamp=1_000
    )
    return written(
        directory,
        bytes(leader),
        data(2, [FeatureLevelRecord(name="metadata.version", feature_level=30)]),
        data(3, [TopicRecord(name="orders", topic_id=TOPIC_ID), PARTITION]),
        data(5, [PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[1], leader=1)], epoch=2),
        data(6, [ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1")], epoch=2),
    )


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["metadata", *arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_a_leaf_prints_its_value_and_a_branch_its_child_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--data", str(history(tmp_path))]
    assert shown(capsys, "show", *where, "/topics/orders/0/isr") == "1\n"
    assert shown(capsys, "show", *where, "topics/orders") == f"id\t{TOPIC_ID}\n0/\t\n"
    assert shown(capsys, "show", *where, "/configs/topics/orders") == "retention.ms\t1\n"
    assert "/quorum/voters/1/endpoints/CONTROLLER\th:9093" in shown(capsys, "show", "-r", *where)
    assert json.loads(shown(capsys, "show", *where, "/topics/orders/0", "--json"))["replicas"] == [1, 2]


def test_an_earlier_offset_shows_the_state_at_that_offset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--data", str(history(tmp_path))]
    isr = "/topics/orders/0/isr"
    assert [shown(capsys, "show", *where, "--at", at, isr) for at in ("4", "5", "6")] == ["1,2\n", "1\n", "1\n"]
    assert shown(capsys, "show", *where, "--at", "3", "/topics/orders") == f"id\t{TOPIC_ID}\n"
    assert shown(capsys, "show", *where, "--at", "2", "/topics") == ""
    assert shown(capsys, "show", *where, "--at", "4", "/offset") == "5\n"


def test_a_path_may_contain_patterns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--data", str(history(tmp_path))]
    assert shown(capsys, "show", *where, "/topics/*/?/leader*") == (
        "/topics/orders/0/leader\t1\n/topics/orders/0/leader-epoch\t1\n"
    )
    assert run(["metadata", "show", *where, "/topics/x*"]) == 1
    assert "nothing at /topics/x*" in capsys.readouterr().err


def test_a_snapshot_replaces_the_log_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition = written(tmp_path, data(100, [RemoveTopicRecord(topic_id=TOPIC_ID)]), base=100)
    snapshot = SnapshotId(100, 3)
    writer = SnapshotWriter(SystemDisk(), f"{partition}/{snapshot.file_name}", epoch=3, metadata_version=30)
    writer.begin(last_timestamp=0, wall_ms=0, kraft_version=1, voters=VOTERS)
    writer.append([FeatureLevelRecord(name="metadata.version", feature_level=30)], 0)
    writer.append([TopicRecord(name="orders", topic_id=TOPIC_ID), PARTITION], 0)
    writer.finish(0)
    where = ["--data", str(partition)]
    assert shown(capsys, "show", *where, "/topics") == ""
    assert shown(capsys, "show", *where, "--at", "99", "/topics") == "orders/\t\n"
    assert shown(capsys, "show", "--data", f"{partition}/{snapshot.file_name}", "/topics") == "orders/\t\n"
    assert shown(capsys, "show", *where, "/quorum/kraft.version") == "1\n"
    assert run(["metadata", "show", *where, "--at", "98", "/topics"]) == 1
    assert "is not retained: the oldest snapshot" in capsys.readouterr().err
    assert run(["metadata", "show", *where, "--at", "101", "/topics"]) == 1
    assert "not written yet" in capsys.readouterr().err


def test_every_record_is_printed_as_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--data", str(history(tmp_path))]
    lines = shown(capsys, "log", *where).splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["0", "1", "LEADER_CHANGE"],
        ["1", "1", "KRAFT_VOTERS"],
        ["2", "1", "FeatureLevelRecord"],
        ["3", "1", "TopicRecord"],
        ["4", "1", "PartitionRecord"],
        ["5", "2", "PartitionChangeRecord"],
        ["6", "2", "ConfigRecord"],
    ]
    assert lines[5] == f"5 2 PartitionChangeRecord partition_id=0 topic_id={TOPIC_ID} isr=[1] leader=1"
    assert shown(capsys, "log", *where, "--from", "4", "-n", "2").splitlines() == lines[4:6]
    assert json.loads(shown(capsys, "log", *where, "--from", "6", "--json")) == {
        "offset": 6,
        "epoch": 2,
        "timestamp": 1000,
        "type": "ConfigRecord",
        "version": 0,
        "fields": {"resource_type": 2, "resource_name": "orders", "name": "retention.ms", "value": "1"},
    }


def test_an_incomplete_last_batch_is_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition = history(tmp_path)
    log = partition / f"{0:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:-5])
    assert shown(capsys, "show", "--data", str(partition), "/offset") == "6\n"
    log.write_bytes(whole + b"\0" * 4096)
    assert shown(capsys, "show", "--data", str(partition), "/offset") == "7\n"


def test_records_not_known_to_be_committed_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition = history(tmp_path)
    stored = {"leaderEpoch": 2, "committedOffset": 6, "data_version": 0}
    (partition / "committed-offset").write_text(json.dumps(stored))
    state = {"leaderId": 1, "leaderEpoch": 2, "votedId": -1, "votedDirectoryId": str(TOPIC_ID), "data_version": 1}
    (partition / "quorum-state").write_text(json.dumps(state))
    assert shown(capsys, "show", "--data", str(partition), "/offset") == "6\n"
    assert "ConfigRecord" not in shown(capsys, "log", "--data", str(partition))
    assert shown(capsys, "show", "--data", str(partition), "--at", "6", "/offset") == "7\n"
    # Apache Kafka, which stores no committed offset, has started an epoch since.
    (partition / "quorum-state").write_text(json.dumps({**state, "leaderEpoch": 3}))
    assert shown(capsys, "show", "--data", str(partition), "/offset") == "7\n"


def test_reading_changes_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition = history(tmp_path)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in partition.iterdir()}
    shown(capsys, "show", "-r", "--data", str(tmp_path))
    shown(capsys, "log", "--data", str(tmp_path))
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in partition.iterdir()} == before


def test_the_node_with_the_highest_offset_of_a_cluster_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [
        NodeState(number, None, "127.0.0.1", 9091 + number, 19091 + number, str(tmp_path / f"node-{number}"), "log")
        for number in (1, 2, 3)
    ]
    write_state(str(tmp_path), ClusterState("c", nodes))
    assert run(["metadata", "show", "--data", str(tmp_path)]) == 1
    assert "have they been started?" in capsys.readouterr().err
    written(tmp_path / "node-1", data(0, [FeatureLevelRecord(name="metadata.version", feature_level=30)]))
    expected = history(tmp_path / "node-2")
    assert find_metadata(str(tmp_path)).directory == str(expected)
    assert shown(capsys, "show", "--data", str(tmp_path), "/offset") == "7\n"
    assert shown(capsys, "show", "--data", str(tmp_path), "--node", "1", "/offset") == "1\n"
    assert run(["metadata", "show", "--data", str(tmp_path), "--node", "9"]) == 1
    assert "the nodes are 1, 2, 3" in capsys.readouterr().err


def test_a_path_without_metadata_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (str(tmp_path), "/etc/passwd", os.devnull):
        assert run(["metadata", "show", "--data", path]) == 1
        assert path in (message := capsys.readouterr().err) and "Traceback" not in message


def test_a_record_that_cannot_be_replayed_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition = written(tmp_path, data(0, [PARTITION]))
    assert run(["metadata", "show", "--data", str(partition)]) == 1
    assert "which does not exist" in capsys.readouterr().err
    assert shown(capsys, "log", "--data", str(partition)).startswith("0 1 PartitionRecord")


def test_brokers_configs_and_features_are_in_the_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition = written(
        tmp_path,
        data(0, [FeatureLevelRecord(name="metadata.version", feature_level=30)]),
        data(1, [RegisterBrokerRecord(broker_id=4, broker_epoch=1, rack="r", log_dirs=[TOPIC_ID])]),
        data(2, [ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1")]),
    )
    where = ["--data", str(partition)]
    assert shown(capsys, "show", *where, "/brokers/4/rack") == "r\n"
    assert shown(capsys, "show", *where, "/brokers/4/fenced") == "yes\n"
    assert shown(capsys, "show", *where, "/configs/brokers/(default)/min.insync.replicas") == "1\n"
    assert shown(capsys, "show", *where, "/features") == "metadata.version\t30\n"


def test_the_voters_are_those_of_the_last_voters_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = VoterSet((*VOTERS.voters, Voter(2, TOPIC_ID, (("CONTROLLER", Endpoint("h2", 9093)),))))
    records: list[VotersRecord] = [VOTERS.record(), two.record()]
    batches = [
        bytes(encode_control_batch([record], base_offset=offset, epoch=1, timestamp=0))
        for offset, record in enumerate(records)
    ]
    partition = written(tmp_path, *batches)
    assert shown(capsys, "show", "--data", str(partition), "/quorum/voters") == "1/\t\n2/\t\n"
    assert shown(capsys, "show", "--data", str(partition), "--at", "0", "/quorum/voters") == "1/\t\n"
