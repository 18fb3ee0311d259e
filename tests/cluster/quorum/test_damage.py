"""A node whose metadata was damaged says what and where, and does no harm; the others go on, and it comes back."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import crc32c
import pytest

from cluster.quorum.asking import create_topic, eventually, quorum, topics
from strandline.launch.cluster_state import NodeState
from strandline.launch.errors import NodesExited
from strandline.testing import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("quorum")]

Damage = Callable[[Path], object]


@pytest.fixture(scope="session")
def furnished(lasting: Cluster) -> Cluster:
    """With snapshots on every node, and several topics in them."""
    for number in range(12):
        create_topic(lasting.nodes[number % 3].endpoint, f"furniture-{number}", 2, 3)
    for node in lasting.nodes:
        eventually(lambda node=node: len(list(metadata(node).glob("*.checkpoint"))) > 1)  # type: ignore[misc]
    return lasting


def metadata(node: NodeState) -> Path:
    return Path(node.data) / "__cluster_metadata-0"


@contextmanager
def damaged(cluster: Cluster, damage: Damage) -> Iterator[NodeState]:
    """A follower that is down and damaged for the length of the `with`; what it had is restored afterwards."""
    leader = eventually(lambda: quorum(cluster.nodes[0].endpoint).leader_id, lambda found: found > 0)
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


def refused(cluster: Cluster, victim: NodeState) -> str:
    """Why it does not start, in one line; the others run and write meanwhile."""
    with pytest.raises(NodesExited) as exited:
        cluster.start(victim.id)
    assert "Traceback" not in str(exited.value)
    others = [node for node in cluster.nodes if node.id != victim.id]
    assert [node.id for node in cluster.running()] == [node.id for node in others]
    create_topic(others[0].endpoint, f"without-{victim.id}-{len(topics(others[0].endpoint))}", 1, 2)
    return next(line for line in exited.value.exited[0].reason.splitlines() if "the node stops" in line)


def newest(suffix: str) -> Callable[[Path], Path]:
    return lambda where: max(where.glob(f"*.{suffix}"))


def cut_in_half(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(content)


def of_a_newer_version(file: Path, topic: str) -> None:
    """The record of this topic says version 90, in a batch whose checksum fits."""
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


IMPOSSIBLE = '{"leaderId":-1,"leaderEpoch":2147483647,"votedId":-1,"votedDirectoryId":"","data_version":1}'


@pytest.mark.parametrize("content", ["", '{"leaderId":1,"lead', IMPOSSIBLE], ids=["empty", "torn", "impossible"])
def test_a_vote_that_cannot_be_read_is_never_forgotten(furnished: Cluster, content: str) -> None:
    with damaged(furnished, lambda where: (where / "quorum-state").write_text(content)) as victim:
        why = refused(furnished, victim)
        assert str(metadata(victim) / "quorum-state") in why and "no longer knows how it voted" in why


def test_a_vote_that_is_missing_is_not_taken_for_one_that_was_never_given(furnished: Cluster) -> None:
    with damaged(furnished, lambda where: (where / "quorum-state").unlink()) as victim:
        why = refused(furnished, victim)
        assert "has no quorum-state" in why and "its vote and what it acknowledged are lost" in why


def test_a_voter_whose_metadata_is_gone_does_not_vote_as_if_it_had_never_lived(furnished: Cluster) -> None:
    with damaged(furnished, shutil.rmtree) as victim:
        why = refused(furnished, victim)
        assert "and what it acknowledged" in why and "strandline up --replace" in why


@pytest.mark.parametrize("harm", [cut_in_half, flip_a_bit])
def test_a_snapshot_that_was_damaged_is_left_aside_while_the_log_has_all_of_it(
    furnished: Cluster, harm: Callable[[Path], None]
) -> None:
    with damaged(furnished, lambda where: harm(newest("checkpoint")(where))) as victim:
        name = newest("checkpoint")(metadata(victim)).name
        furnished.start(victim.id)
        told = [line for line in Path(victim.log).read_text().splitlines() if "WARNING" in line and name in line]
        assert "doing without it" in told[-1]
        assert "furniture-11" in topics(victim.endpoint)


def test_a_snapshot_that_was_cut_off_and_is_all_there_is_is_named(furnished: Cluster) -> None:
    def leave_only_a_torn_snapshot(where: Path) -> None:
        whole = newest("checkpoint")(where)
        end = int(whole.name.split("-")[0])
        for file in where.iterdir():
            if file != whole and file.suffix in (".checkpoint", ".log", ".index", ".timeindex", ".snapshot"):
                file.unlink()
        (where / f"{end:020}.log").touch()
        cut_in_half(whole)

    with damaged(furnished, leave_only_a_torn_snapshot) as victim:
        why = refused(furnished, victim)
        assert newest("checkpoint")(metadata(victim)).name in why and "Restore" in why


def test_a_log_that_was_damaged_below_what_is_committed_is_named_with_the_place(furnished: Cluster) -> None:
    with damaged(furnished, lambda where: flip_a_bit(newest("log")(where))) as victim:
        why = refused(furnished, victim)
        assert newest("log")(metadata(victim)).name in why and "damaged at byte" in why and "Nothing was changed" in why


def test_a_record_of_a_newer_version_in_a_snapshot_stops_the_node_with_its_name(furnished: Cluster) -> None:
    damage = lambda where: of_a_newer_version(newest("checkpoint")(where), "furniture-1")  # noqa: E731
    with damaged(furnished, damage) as victim:
        why = refused(furnished, victim)
        assert "TopicRecord has no version 90" in why and "newer release" in why


def test_a_record_of_a_newer_version_in_the_log_stops_the_node_with_its_name(furnished: Cluster) -> None:
    def change(where: Path) -> None:
        for snapshot in where.glob("*.checkpoint"):
            if not snapshot.name.startswith("0" * 20):
                snapshot.unlink()
        of_a_newer_version(newest("log")(where), "furniture-1")

    with damaged(furnished, change) as victim:
        why = refused(furnished, victim)
        assert "TopicRecord has no version 90" in why and "newer release" in why


def test_a_broker_without_a_vote_sets_damaged_metadata_aside_and_fetches_them_anew(tmp_path: Path) -> None:
    with Cluster(tmp_path, controllers=1, brokers=1) as cluster:
        (victim,) = (node for node in cluster.nodes if node.is_broker)
        create_topic(victim.endpoint, "kept", 2, 1)
        cluster.kill(victim.id)
        flip_a_bit(newest("log")(metadata(victim)))
        cluster.start(victim.id)
        assert len(topics(victim.endpoint)["kept"].partitions) == 2
        assert [each.name for each in Path(victim.data).glob("__cluster_metadata-0.*-stray")]
        assert not list(Path(victim.data).glob("kept-*-stray"))
        told = [line for line in Path(victim.log).read_text().splitlines() if "ERROR" in line]
        assert "is damaged at byte" in told[-1] and "all metadata is fetched again" in told[-1]
