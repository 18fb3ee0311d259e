"""Snapshot files and their batches: written, read back, and rejected when damaged."""

from __future__ import annotations

import pytest

from strandline.metadata.features import bootstrap_records
from strandline.metadata.record_versions import record_version
from strandline.model.errors import NodeFault
from strandline.model.ids import Endpoint, Uuid
from strandline.protocol.messages.control_records import SnapshotHeaderRecord
from strandline.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from strandline.protocol.types import Message
from strandline.raft.disk.batches import encode_data_batch, encode_in_slices, read_batches
from strandline.raft.disk.snapshots import (
    SnapshotWriter,
    list_snapshots,
    parse_snapshot_name,
    read_bootstrap_checkpoint,
    read_snapshot,
    remove_unfinished_snapshots,
    write_bootstrap_checkpoint,
    write_first_voters,
)
from strandline.raft.machine.values import SnapshotId
from strandline.raft.machine.voters import Voter, VoterSet
from strandline.simulation.disk import SimDisk
from strandline.simulation.volume import Volume

VOTERS = VoterSet(
    (
        Voter(1, Uuid.of(3, 31), (("CONTROLLER", Endpoint("a", 9093)),)),
        Voter(2, Uuid.of(3, 32), (("CONTROLLER", Endpoint("b", 9093)), ("OTHER", Endpoint("b", 9094)))),
    )
)


def disk() -> SimDisk:
    made = SimDisk(Volume())
    made.make_dirs("/d")
    return made


def settings(count: int) -> list[Message]:
    return [
        ConfigRecord(resource_type=2, resource_name="t", name=str(number), value=None if number % 3 else "v" * number)
        for number in range(count)
    ]


def written(made: SimDisk, *slices: list[Message]) -> str:
    path = f"/d/{SnapshotId(17, 3).file_name}"
    writer = SnapshotWriter(made, path, epoch=3, metadata_version=30)
    writer.begin(last_timestamp=99, wall_ms=100, kraft_version=1, voters=VOTERS)
    for slice_ in slices:
        writer.append(slice_, 101)
    writer.finish(102)
    return path


def test_file_names_have_end_offset_and_epoch() -> None:
    assert SnapshotId(17, 3).file_name == "00000000000000000017-0000000003.checkpoint"
    assert parse_snapshot_name("00000000000000000017-0000000003.checkpoint") == SnapshotId(17, 3)
    for other in ("bootstrap.checkpoint", "00000000000000000017-0000000003.checkpoint.part", "17-3.checkpoint"):
        assert parse_snapshot_name(other) is None


def test_a_snapshot_is_read_back_with_its_voters_and_records() -> None:
    made = disk()
    path = written(made, settings(5), settings(300))
    snapshot = read_snapshot(made, path)
    assert list(snapshot.records()) == [*settings(5), *settings(300)]
    assert (snapshot.kraft_version, snapshot.voters) == (1, VOTERS)
    first, *batches = read_batches(made.read(path), path)
    assert first.records[0] == SnapshotHeaderRecord(version=0, last_contained_log_timestamp=99)
    assert {batch.epoch for batch in batches} == {3}
    assert [batch.base_offset for batch in batches if not batch.is_control] == [3, 8]


def test_a_snapshot_gets_its_name_only_when_it_is_finished() -> None:
    made = disk()
    writer = SnapshotWriter(made, f"/d/{SnapshotId(5, 1).file_name}", epoch=1, metadata_version=30)
    writer.begin(last_timestamp=0, wall_ms=1)
    assert list_snapshots(made, "/d") == []
    remove_unfinished_snapshots(made, "/d")
    assert made.list("/d") == []


def test_snapshots_are_listed_oldest_first() -> None:
    made = disk()
    for end_offset, epoch in ((20, 2), (3, 1), (20, 1)):
        file = made.open(f"/d/{SnapshotId(end_offset, epoch).file_name}", create=True)
        file.close()
    assert list_snapshots(made, "/d") == [SnapshotId(3, 1), SnapshotId(20, 1), SnapshotId(20, 2)]


def test_a_truncated_or_corrupt_snapshot_is_rejected() -> None:
    made = disk()
    path = written(made, settings(4))
    whole = made.read(path)
    file = made.open(path)
    for length in range(0, len(whole), 7):
        file.truncate(length)
        with pytest.raises(NodeFault, match=r"0000000003\.checkpoint"):
            read_snapshot(made, path)
        file.write_at(0, whole)
    for position in range(16, len(whole), 5):
        flipped = bytearray(whole)
        flipped[position] ^= 4
        file.write_at(0, flipped)
        # Base offset and leader epoch are not covered by the checksum: a flip there changes no content.
        if not _outside_of_checksum(whole, position):
            with pytest.raises(NodeFault):
                read_snapshot(made, path)


def _outside_of_checksum(data: bytes, position: int) -> bool:
    for batch_at, size in _bounds(data):
        if batch_at <= position < batch_at + size:
            within = position - batch_at
            return within < 8 or 12 <= within < 16
    raise AssertionError(position)


def _bounds(data: bytes) -> list[tuple[int, int]]:
    bounds, at = [], 0
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        bounds.append((at, size))
        at += size
    return bounds


def test_the_first_voters_of_a_dynamic_quorum_are_a_snapshot_without_metadata() -> None:
    made = disk()
    write_first_voters(made, "/d/__cluster_metadata-0", VOTERS, wall_ms=5)
    (found,) = list_snapshots(made, "/d/__cluster_metadata-0")
    assert found.is_bootstrap
    snapshot = read_snapshot(made, f"/d/__cluster_metadata-0/{found.file_name}")
    assert (snapshot.kraft_version, snapshot.voters, list(snapshot.records())) == (1, VOTERS, [])


def test_bootstrap_records_are_read_back() -> None:
    made = disk()
    assert read_bootstrap_checkpoint(made, "/d") is None
    write_bootstrap_checkpoint(made, "/d", bootstrap_records(), metadata_version=30, wall_ms=5)
    assert read_bootstrap_checkpoint(made, "/d") == bootstrap_records()


@pytest.mark.parametrize("count", [1, 299, 300, 301, 900, 1000])
def test_a_batch_encoded_in_slices_is_the_same_bytes(count: int) -> None:
    where = {"base_offset": 40, "epoch": 3, "timestamp": 1234, "metadata_version": 30}
    steps = encode_in_slices(settings(count), **where)
    yields = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            batch = end.value
            break
        yields += 1
    assert batch == encode_data_batch(settings(count), **where)
    assert yields == (count - 1) // 300
    (read,) = read_batches(batch, "here")
    assert (read.base_offset, read.next_offset, list(read.records)) == (40, 40 + count, settings(count))


@pytest.mark.parametrize(
    ("record", "metadata_version", "version"),
    [
        (TopicRecord(), 30, 0),
        (PartitionRecord(), 7, 0),
        (PartitionRecord(), 17, 1),
        (PartitionRecord(), 22, 1),
        (PartitionRecord(), 30, 2),
        (RegisterBrokerRecord(), 7, 1),
        (RegisterBrokerRecord(), 17, 3),
        (RegisterBrokerRecord(), 30, 4),
        (BrokerRegistrationChangeRecord(fenced=-1), 30, 0),
        (BrokerRegistrationChangeRecord(in_controlled_shutdown=1), 30, 1),
        (BrokerRegistrationChangeRecord(log_dirs=[Uuid.of(1, 1)]), 30, 2),
        (BrokerRegistrationChangeRecord(cordoned_log_dirs=[]), 30, 3),
    ],
)
def test_records_are_written_in_a_version_that_the_metadata_version_allows(
    record: Message, metadata_version: int, version: int
) -> None:
    assert record_version(record, metadata_version) == version


def test_voters_must_be_unique_and_sorted() -> None:
    with pytest.raises(ValueError, match="unique and sorted by id"):
        VoterSet((Voter(2), Voter(1)))
    with pytest.raises(ValueError, match="unique and sorted by id"):
        VoterSet((Voter(1), Voter(1)))
    assert VoterSet.of_record(VOTERS.record()) == VOTERS
