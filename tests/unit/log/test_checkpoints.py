"""Checkpoint files: Kafka's text format, and the detection of damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.log import checkpoints
from strandline.log.checkpoints import CorruptCheckpoint
from strandline.model.ids import TopicPartition, Uuid
from strandline.runtime.disk import SystemDisk

DISK = SystemDisk()


def test_offsets_follow_version_and_count_one_per_line(tmp_path: Path) -> None:
    path = str(tmp_path / "recovery-point-offset-checkpoint")
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a", 10): 1 << 40}
    checkpoints.write_offsets(DISK, path, offsets)
    assert Path(path).read_text() == f"0\n2\na 10 {1 << 40}\nb 1 7\n"
    assert checkpoints.read_offsets(DISK, path) == offsets
    assert [entry.name for entry in tmp_path.iterdir()] == ["recovery-point-offset-checkpoint"]


def test_a_missing_checkpoint_reads_as_empty(tmp_path: Path) -> None:
    assert checkpoints.read_offsets(DISK, str(tmp_path / "none")) == {}
    assert checkpoints.read_epochs(DISK, str(tmp_path / "none")) == ()
    assert checkpoints.read_topic_id(DISK, str(tmp_path / "none")) is None
    assert checkpoints.read_clean_shutdown(DISK, str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    "text", ["", "0\n", "1\n0\n", "0\n2\na 1 1\n", "0\n1\na 1\n", "0\n1\na b 1\n", "0\nx\n", "\xff"]
)
def test_a_damaged_checkpoint_is_reported_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptCheckpoint, match="checkpoint"):
        checkpoints.read_offsets(DISK, str(path))


def test_leader_epochs_are_written_and_read_as_kafka_does(tmp_path: Path) -> None:
    path = str(tmp_path / "leader-epoch-checkpoint")
    checkpoints.write_epochs(DISK, path, ((0, 0), (5, 100)))
    assert Path(path).read_text() == "0\n2\n0 0\n5 100\n"
    assert checkpoints.read_epochs(DISK, path) == ((0, 0), (5, 100))


@pytest.mark.parametrize("lines", ["5 100\n4 200\n", "5 100\n6 100\n", "-1 0\n7 5\n"])
def test_leader_epochs_that_do_not_ascend_are_corrupt(tmp_path: Path, lines: str) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("0\n2\n" + lines)
    with pytest.raises(CorruptCheckpoint):
        checkpoints.read_epochs(DISK, str(path))


def test_partition_metadata_names_the_topic(tmp_path: Path) -> None:
    topic_id = Uuid.of(3, 4)
    path = tmp_path / "partition.metadata"
    path.write_bytes(checkpoints.topic_id_bytes(topic_id))
    assert path.read_text() == f"version: 0\ntopic_id: {topic_id}"
    assert checkpoints.read_topic_id(DISK, str(path)) == topic_id


@pytest.mark.parametrize(
    "text", ["", "version: 0\n", "version: 1\ntopic_id: AAAAAAAAAAMAAAAAAAAABA", "version: 0\ntopic_id: x"]
)
def test_damaged_partition_metadata_is_corrupt(tmp_path: Path, text: str) -> None:
    path = tmp_path / "partition.metadata"
    path.write_text(text)
    with pytest.raises(CorruptCheckpoint):
        checkpoints.read_topic_id(DISK, str(path))


def test_the_clean_shutdown_file_holds_the_broker_epoch(tmp_path: Path) -> None:
    path = str(tmp_path / ".kafka_cleanshutdown")
    checkpoints.write_clean_shutdown(DISK, path, 42)
    assert Path(path).read_text() == '{"version": 0, "brokerEpoch": 42}'
    assert checkpoints.read_clean_shutdown(DISK, path) == 42


def test_an_empty_clean_shutdown_file_is_an_older_kafkas_and_an_incomplete_one_is_not_clean(tmp_path: Path) -> None:
    path = tmp_path / ".kafka_cleanshutdown"
    path.write_text("")
    assert checkpoints.read_clean_shutdown(DISK, str(path)) == -1
    path.write_text('{"version": 0, "brok')
    assert checkpoints.read_clean_shutdown(DISK, str(path)) is None


def test_a_created_epoch_checkpoint_has_no_entries_even_if_it_lost_its_content(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    checkpoints.create_epochs(DISK, str(path))
    assert path.read_text() == "0\n0\n"
    assert checkpoints.read_epochs(DISK, str(path)) == ()
    path.write_text("")
    assert checkpoints.read_epochs(DISK, str(path)) == ()
