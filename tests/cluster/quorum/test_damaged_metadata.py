"""A node with damaged metadata logs which file and where, and stops; the other nodes continue without it."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import crc32c
import pytest

from cluster.quorum.admin_requests import create_topic, describe_quorum, eventually, topics
from strandline.launch.cluster_state import NodeState
from strandline.launch.errors import NodesExited
from strandline.testing import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("quorum")]

Damage = Callable[[Path], object]


@pytest.fixture(scope="session")
def cluster_with_snapshots(shared_cluster: Cluster) -> Cluster:
    """Several topics, and snapshots with them on every node."""
    for number in range(12):
        create_topic(shared_cluster.nodes[number % 3].endpoint, f"topic-{number}", 2, 3)
    for node in shared_cluster.nodes:
        eventually(lambda node=node: len(list(metadata(node).glob("*.checkpoint"))) > 1)  # type: ignore[misc]
    return shared_cluster


def metadata(node: NodeState) -> Path:
    return Path(node.data) / "__cluster_metadata-0"


@contextmanager
def damaged(cluster: Cluster, damage: Damage) -> Iterator[NodeState]:
    """A follower that is stopped and damaged during the `with`; its files are restored afterwards."""
    leader = eventually(lambda: describe_quorum(cluster.nodes[0].endpoint).leader_id, lambda found: found > 0)
    victim = next(node for node in cluster.nodes if node.id != leader)
    cluster.kill(victim.id)
    kept = Path(cluster.directory) / "kept"
    shutil.copytree(metadata(victim), kept)
    damage(metadata(victim))
    yield victim
    if all(node.id != victim.id for node in cluster.running()):
        shutil.rmtree(metadata(victim), ignore_errors=True)
        shutil.move(kept, metadata(victim))
        cluster.start(victim.id)
    shutil.rmtree(kept, ignore_errors=True)
    made = f"after-{len(topics(cluster.nodes[0].endpoint))}"
    create_topic(cluster.nodes[0].endpoint, made, 1, 3)
    eventually(lambda: made in topics(victim.endpoint))


def startup_failure(cluster: Cluster, victim: NodeState) -> str:
    """The log line that says why the node does not start; the other nodes accept writes meanwhile."""
    with pytest.raises(NodesExited) as exited:
        cluster.start(victim.id)
    assert "Traceback" not in str(exited.value)
    others = [node for node in cluster.nodes if node.id != victim.id]
    assert [node.id for node in cluster.running()] == [node.id for node in others]
    create_topic(others[0].endpoint, f"without-{victim.id}-{len(topics(others[0].endpoint))}", 1, 2)
    return next(line for line in exited.value.exited[0].reason.splitlines() if "the node stops" in line)


def newest(suffix: str) -> Callable[[Path], Path]:
    return lambda where: max(where.glob(f"*.{suffix}"))


def truncate_to_half(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(content)


def set_newer_version(file: Path, topic: str) -> None:
    """Sets the version of this topic's record to 90 and corrects the checksum of the batch."""
    content = bytearray(file.read_bytes())
    record = bytes([1, 2, 0, len(topic) + 1]) + topic.encode()
    position = 0
    while position < len(content):
        end = position + 12 + struct.unpack_from(">i", content, position + 8)[0]
        at = content.find(record, position, end)
        if at >= 0:
            content[at + 2] = 90
            struct.pack_into(">I", content, position + 17, crc32c.crc32c(bytes(content[position + 21 : end])))
            file.write_bytes(content)
            return
        position = end
    raise AssertionError(f"{topic} is not in {file}")


INVALID_EPOCH = '{"leaderId":-1,"leaderEpoch":2147483647,"votedId":-1,"votedDirectoryId":"","data_version":1}'


@pytest.mark.parametrize(
    "content", ["", '{"leaderId":1,"lead', INVALID_EPOCH], ids=["empty", "truncated", "invalid epoch"]
)
def test_a_voter_with_an_unreadable_quorum_state_does_not_start(cluster_with_snapshots: Cluster, content: str) -> None:
    with damaged(cluster_with_snapshots, lambda where: (where / "quorum-state").write_text(content)) as victim:
        why = startup_failure(cluster_with_snapshots, victim)
        assert str(metadata(victim) / "quorum-state") in why and "no longer knows how it voted" in why


def test_a_voter_without_its_quorum_state_does_not_start(cluster_with_snapshots: Cluster) -> None:
    with damaged(cluster_with_snapshots, lambda where: (where / "quorum-state").unlink()) as victim:
        why = startup_failure(cluster_with_snapshots, victim)
        assert "has no quorum-state" in why and "its vote and what it acknowledged are lost" in why


def test_a_voter_whose_metadata_directory_is_missing_does_not_start(cluster_with_snapshots: Cluster) -> None:
    with damaged(cluster_with_snapshots, shutil.rmtree) as victim:
        why = startup_failure(cluster_with_snapshots, victim)
        assert "and what it acknowledged" in why and "strandline up --replace" in why


@pytest.mark.parametrize("harm", [truncate_to_half, flip_a_bit])
def test_a_damaged_snapshot_is_skipped_if_the_log_has_all_its_records(
    cluster_with_snapshots: Cluster, harm: Callable[[Path], None]
) -> None:
    with damaged(cluster_with_snapshots, lambda where: harm(newest("checkpoint")(where))) as victim:
        name = newest("checkpoint")(metadata(victim)).name
        cluster_with_snapshots.start(victim.id)
        warnings = [line for line in Path(victim.log).read_text().splitlines() if "WARNING" in line and name in line]
        assert "doing without it" in warnings[-1]
        assert "topic-11" in topics(victim.endpoint)


def test_a_voter_with_only_a_truncated_snapshot_does_not_start(cluster_with_snapshots: Cluster) -> None:
    def leave_only_a_truncated_snapshot(where: Path) -> None:
        whole = newest("checkpoint")(where)
        end = int(whole.name.split("-")[0])
        for file in where.iterdir():
            if file != whole and file.suffix in (".checkpoint", ".log", ".index", ".timeindex", ".snapshot"):
                file.unlink()
        (where / f"{end:020}.log").touch()
        truncate_to_half(whole)

    with damaged(cluster_with_snapshots, leave_only_a_truncated_snapshot) as victim:
        why = startup_failure(cluster_with_snapshots, victim)
        assert newest("checkpoint")(metadata(victim)).name in why and "Restore" in why


def test_a_voter_whose_log_is_damaged_below_the_high_watermark_does_not_start(
    cluster_with_snapshots: Cluster,
) -> None:
    with damaged(cluster_with_snapshots, lambda where: flip_a_bit(newest("log")(where))) as victim:
        why = startup_failure(cluster_with_snapshots, victim)
        assert newest("log")(metadata(victim)).name in why and "damaged at byte" in why and "Nothing was changed" in why


def test_a_record_of_a_newer_version_in_a_snapshot_stops_the_node(
    cluster_with_snapshots: Cluster,
) -> None:
    damage = lambda where: set_newer_version(newest("checkpoint")(where), "topic-1")  # noqa: E731
    with damaged(cluster_with_snapshots, damage) as victim:
        why = startup_failure(cluster_with_snapshots, victim)
        assert "TopicRecord has no version 90" in why and "newer release" in why


def test_a_record_of_a_newer_version_in_the_log_stops_the_node(cluster_with_snapshots: Cluster) -> None:
    def change(where: Path) -> None:
        for snapshot in where.glob("*.checkpoint"):
            if not snapshot.name.startswith("0" * 20):
                snapshot.unlink()
        set_newer_version(newest("log")(where), "topic-1")

    with damaged(cluster_with_snapshots, change) as victim:
        why = startup_failure(cluster_with_snapshots, victim)
        assert "TopicRecord has no version 90" in why and "newer release" in why


def test_a_broker_that_is_not_a_voter_fetches_damaged_metadata_again(tmp_path: Path) -> None:
    with Cluster(tmp_path, controllers=1, brokers=1) as cluster:
        (victim,) = (node for node in cluster.nodes if node.is_broker)
        create_topic(victim.endpoint, "kept", 2, 1)
        cluster.kill(victim.id)
        flip_a_bit(newest("log")(metadata(victim)))
        cluster.start(victim.id)
        assert len(topics(victim.endpoint)["kept"].partitions) == 2
        assert [each.name for each in Path(victim.data).glob("__cluster_metadata-0.*-stray")]
        assert not list(Path(victim.data).glob("kept-*-stray"))
        errors = [line for line in Path(victim.log).read_text().splitlines() if "ERROR" in line]
        assert "is damaged at byte" in errors[-1] and "all metadata is fetched again" in errors[-1]
