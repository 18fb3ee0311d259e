"""A metadata directory read from its volume: what is cached, what is durable, what equals the committed log."""

from __future__ import annotations

from random import Random

import pytest

from strandline.model.ids import Endpoint, Uuid
from strandline.protocol.messages.control_records import LeaderChangeMessage
from strandline.protocol.messages.metadata_records import NoOpRecord
from strandline.raft.disk.batches import encode_control_batch, encode_data_batch, read_batches
from strandline.raft.disk.quorum_state import write_quorum_state
from strandline.raft.disk.snapshots import SnapshotWriter
from strandline.raft.machine.values import QuorumState, SnapshotId
from strandline.raft.machine.voters import Voter, VoterSet
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.metadata_files import METADATA_DIRECTORY, MetadataFiles, QuorumStateFile
from strandline.simulation.disk import SimDisk
from strandline.simulation.volume import UnsyncedChanges
from strandline.simulation.world import Machine, Simulation

VOTERS = VoterSet((Voter(1, Uuid.of(1, 1), (("CONTROLLER", Endpoint("node1", 9093)),)),))


class Log:
    """A metadata log whose segments are written directly."""

    def __init__(self) -> None:
        self.machine: Machine = Simulation(1).machine("node")
        self.disk = SimDisk(self.machine.volume)
        self.disk.make_dirs(METADATA_DIRECTORY)
        self.disk.sync_dir("/")
        self.disk.sync_dir("/data")
        self.files = MetadataFiles(self.machine)
        self.roll(0)

    def roll(self, offset: int) -> None:
        self.file = self.disk.open(f"{METADATA_DIRECTORY}/{offset:020d}.log", create=True)
        self.disk.sync_dir(METADATA_DIRECTORY)
        self.offset = offset

    def append(self, count: int = 1, epoch: int = 1, data: bytes | None = None) -> None:
        records = [NoOpRecord()] * count
        batch = data or encode_data_batch(
            records, base_offset=self.offset, epoch=epoch, timestamp=0, metadata_version=25
        )
        self.file.write_at(self.file.size(), batch)
        self.offset += count


def offsets(log: Log) -> list[int]:
    return [batch.base_offset for batch in log.files.batches()]


def test_batches_are_read_across_segments_and_incrementally() -> None:
    log = Log()
    log.append(2)
    assert offsets(log) == [0]
    log.append()
    log.roll(3)
    log.append(2, epoch=4)
    assert offsets(log) == [0, 2, 3]
    assert [batch.base_offset for batch in log.files.batches(since=3)] == [3]
    assert log.files.end() == (4, 5)
    (read,) = read_batches(log.files.content(log.files.batches()[1]), "the test")
    assert (read.base_offset, read.next_offset) == (2, 3)


def test_truncated_batches_are_not_returned() -> None:
    log = Log()
    log.append()
    size = log.file.size()
    log.append()
    assert offsets(log) == [0, 1]
    log.file.truncate(size)
    log.offset = 1
    log.append(epoch=2)
    assert [(batch.base_offset, batch.epoch) for batch in log.files.batches()] == [(0, 1), (1, 2)]


def test_batches_before_a_gap_are_not_returned() -> None:
    log = Log()
    log.append(3)
    log.roll(10)
    log.append()
    assert offsets(log) == [10]


def test_the_durable_end_counts_synced_batches_that_equal_the_committed_ones() -> None:
    leader, follower, metadata = Log(), Log(), CommittedMetadata()
    for log in (leader, follower):
        log.append()
        log.append()
        log.file.sync()
        log.append()
    metadata.extend(leader.files, 3)
    assert metadata.end == 3
    assert metadata.durable_end(follower.files) == 2
    follower.file.sync()
    assert metadata.durable_end(follower.files) == 3
    other = Log()
    other.append()
    other.append(epoch=7)
    other.file.sync()
    assert metadata.durable_end(other.files) == 1
    different = metadata.first_difference(other.files.batches(), 3)
    assert different is not None and different.base_offset == 1


def test_a_durable_snapshot_counts_up_to_its_end_offset() -> None:
    log, metadata = Log(), CommittedMetadata()
    assert metadata.durable_end(log.files) == 0
    snapshot_id = SnapshotId(20, 3)
    path = f"{METADATA_DIRECTORY}/{snapshot_id.file_name}"
    writer = SnapshotWriter(log.disk, path, epoch=3, metadata_version=25)
    writer.begin(last_timestamp=0, wall_ms=0)
    assert log.files.durable_snapshot() is None
    writer.finish(0)
    assert log.files.durable_snapshot() == snapshot_id
    assert metadata.durable_end(log.files) == 20
    assert log.files.end() == (3, 20)


def test_the_durable_quorum_state_is_the_one_that_a_power_loss_leaves() -> None:
    log = Log()
    assert log.files.quorum_state() is None
    write_quorum_state(log.disk, METADATA_DIRECTORY, QuorumState(3, 1), kraft_version=1, voters=[])
    log.disk.fail("sync_dir", times=1)
    with pytest.raises(OSError):
        write_quorum_state(log.disk, METADATA_DIRECTORY, QuorumState(4, voted_id=2), kraft_version=1, voters=[])
    durable, cached = log.files.quorum_state(), log.files.quorum_state(cached=True)
    assert durable is not None and (durable.epoch, durable.leader_id) == (3, 1)
    assert cached is not None and (cached.epoch, cached.voted_id) == (4, 2)
    log.machine.volume = log.machine.volume.after_power_loss(Random(1), UnsyncedChanges.LOST)
    assert log.files.quorum_state() == log.files.quorum_state(cached=True) == durable
    assert isinstance(durable, QuorumStateFile)


def test_the_last_voter_set_of_the_log_is_returned() -> None:
    log = Log()
    first = LeaderChangeMessage(version=0, leader_id=1)
    log.append(data=bytes(encode_control_batch([first], base_offset=0, epoch=1, timestamp=0)))
    assert log.files.last_voters() is None
    log.append(data=bytes(encode_control_batch([VOTERS.record()], base_offset=1, epoch=1, timestamp=0)))
    assert log.files.last_voters() == VOTERS
