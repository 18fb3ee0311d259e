"""quorum-state: read back as written, and never guessed at."""

from __future__ import annotations

import json
from random import Random

import pytest

from strandline.model.errors import NodeFault
from strandline.model.ids import Uuid
from strandline.raft.disk.quorum_state import read_quorum_state, write_quorum_state
from strandline.raft.disk.storage import MetadataStorage
from strandline.raft.machine.values import QuorumState
from strandline.raft.machine.voters import VoterSet
from strandline.simulation.disk import SimDisk
from strandline.simulation.volume import UnsyncedChanges, Volume

VOTED = QuorumState(epoch=7, leader_id=-1, voted_id=2, voted_directory_id=Uuid.of(3, 33))


def disk() -> SimDisk:
    made = SimDisk(Volume())
    made.make_dirs("/d")
    return made


def test_without_a_file_the_state_is_empty() -> None:
    assert read_quorum_state(disk(), "/d") == QuorumState(epoch=0, leader_id=-1, voted_id=-1)


def test_a_vote_is_read_back_with_its_directory_id() -> None:
    made = disk()
    write_quorum_state(made, "/d", VOTED, kraft_version=1, voters=[])
    assert read_quorum_state(made, "/d") == VOTED
    assert json.loads(made.read("/d/quorum-state")) == {
        "leaderId": -1,
        "leaderEpoch": 7,
        "votedId": 2,
        "votedDirectoryId": str(Uuid.of(3, 33)),
        "data_version": 1,
    }


def test_with_configured_voters_the_file_has_version_0() -> None:
    made = disk()
    write_quorum_state(made, "/d", QuorumState(epoch=7, leader_id=1), kraft_version=0, voters=[1, 2])
    assert read_quorum_state(made, "/d") == QuorumState(epoch=7, leader_id=1)
    data = json.loads(made.read("/d/quorum-state"))
    assert (data["data_version"], data["currentVoters"], data["appliedOffset"]) == (
        0,
        [{"voterId": 1}, {"voterId": 2}],
        0,
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"data_version":2}',
        b'{"data_version":1,"leaderId":1,"leaderEpoch":1,"votedId":1}',
        b'{"data_version":0,"leaderId":1,"leaderEpoch":"1","votedId":1}',
        b'{"data_version":0,"leaderId":1,"leaderEpoch":true,"votedId":1}',
        b"\xff\xfe",
    ],
)
def test_an_unreadable_file_stops_the_node(content: bytes) -> None:
    made = disk()
    file = made.open("/d/quorum-state", create=True)
    file.write_at(0, content)
    file.close()
    with pytest.raises(NodeFault, match="quorum-state"):
        read_quorum_state(made, "/d")


def test_a_new_state_replaces_the_old_one_atomically() -> None:
    made = disk()
    write_quorum_state(made, "/d", VOTED, kraft_version=1, voters=[])
    write_quorum_state(made, "/d", QuorumState(epoch=8, leader_id=2), kraft_version=1, voters=[])
    assert read_quorum_state(made, "/d") == QuorumState(epoch=8, leader_id=2)
    assert made.list("/d") == ["quorum-state"]


def test_a_state_left_in_the_page_cache_by_a_killed_process_is_synced_at_the_start() -> None:
    """It was killed between the rename and the sync of the directory; after the restart it is a candidate of that
    epoch."""
    made = disk()
    made.sync_dir("/")
    storage = MetadataStorage.open(made, "/d", wall_ms=0)
    storage.record_epoch(6)
    storage.write_state(QuorumState(epoch=6, leader_id=1), 1, VoterSet(()))
    storage.record_epoch(7)
    made.fail("sync_dir", times=1)
    with pytest.raises(OSError):
        storage.write_state(VOTED, 1, VoterSet(()))
    restarted = SimDisk(made.volume)
    opened = MetadataStorage.open(restarted, "/d", wall_ms=0)
    assert opened.read_state() == VOTED
    opened.sync_state()
    found = SimDisk(restarted.volume.after_power_loss(Random(1), UnsyncedChanges.LOST))
    assert read_quorum_state(found, storage.path) == VOTED
