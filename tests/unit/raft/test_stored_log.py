"""The machine's log on disk: offsets, epochs, snapshots, voters, appends."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest

from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.model.ids import Endpoint, Uuid
from strandline.protocol.messages.control_records import KRaftVersionRecord, LeaderChangeMessage
from strandline.protocol.messages.metadata_records import ConfigRecord
from strandline.raft.disk.batches import encode_control_batch, encode_data_batch
from strandline.raft.disk.committed_offset import read_committed_offset
from strandline.raft.disk.snapshots import SnapshotWriter
from strandline.raft.disk.storage import MetadataStorage, StorageSettings
from strandline.raft.machine.values import SnapshotId
from strandline.raft.machine.voters import Voter, VoterHistory, VoterSet
from strandline.raft.shell.appends import Accumulator
from strandline.raft.shell.stored_log import StoredLog
from strandline.records.batch import CorruptBatch
from strandline.simulation.disk import SimDisk
from strandline.simulation.volume import Volume
from unit.log.logs import truncate


class StoppedClock:
    def now_ms(self) -> int:
        return 1

    def wall_ms(self) -> int:
        return 1000


def voters(*numbers: int) -> VoterSet:
    return VoterSet(tuple(Voter(each, Uuid.of(1, 100 + each), (("C", Endpoint(f"n{each}", 9)),)) for each in numbers))


class OpenedLog:
    def __init__(self, *, epoch: int = 9, settings: StorageSettings | None = None) -> None:
        self.disk = SimDisk(Volume())
        self.disk.make_dirs("/d")
        self.epoch = epoch
        self.storage = MetadataStorage.open(self.disk, "/d", wall_ms=1, settings=settings)
        self.log = StoredLog(self.storage, VoterHistory(voters(1)), StoppedClock(), lambda: self.epoch)

    def reopened(self) -> StoredLog:
        self.storage.close()
        self.storage = MetadataStorage.open(self.disk, "/d", wall_ms=2)
        return StoredLog(self.storage, VoterHistory(voters(1)), StoppedClock(), lambda: self.epoch)


def data(base_offset: int, epoch: int, count: int = 1) -> bytes:
    records = [ConfigRecord(resource_type=2, resource_name="r", name=str(n), value="v") for n in range(count)]
    return bytes(encode_data_batch(records, base_offset=base_offset, epoch=epoch, timestamp=1, metadata_version=30))


def write_epochs(log: StoredLog, spans: Sequence[tuple[int, int]]) -> None:
    """(epoch, how many records)."""
    for epoch, count in spans:
        log.append_as_follower(data(log.end_offset, epoch, count))


def test_an_empty_log_has_no_epoch() -> None:
    log = OpenedLog().log
    assert (log.start_offset, log.end_offset, log.last_epoch) == (0, 0, 0)
    assert log.end_offset_for_epoch(0) == (0, 0)
    assert (log.latest_snapshot, log.earliest_snapshot, log.voters_offset, log.kraft_version) == (None, None, -1, 0)


@pytest.mark.parametrize(
    ("epoch", "found"), [(0, (0, 0)), (1, (1, 3)), (2, (1, 3)), (3, (3, 7)), (4, (3, 7)), (6, (6, 8)), (7, (6, 8))]
)
def test_an_epoch_ends_where_the_next_one_begins(epoch: int, found: tuple[int, int]) -> None:
    log = OpenedLog().log
    write_epochs(log, [(1, 3), (3, 4), (6, 1)])
    assert log.last_epoch == 6
    assert log.end_offset_for_epoch(epoch) == found


def snapshot_at(made: OpenedLog, snapshot_id: SnapshotId) -> None:
    writer = SnapshotWriter(made.disk, made.storage.path_of(snapshot_id), epoch=snapshot_id.epoch, metadata_version=30)
    writer.begin(last_timestamp=1, wall_ms=1)
    writer.finish(1)
    made.storage.add_snapshot(snapshot_id)


def test_below_all_epochs_the_earliest_snapshot_is_the_common_point() -> None:
    made = OpenedLog(settings=StorageSettings(retention_bytes=1, segment_bytes=100))
    write_epochs(made.log, [(1, 3), (3, 4), (6, 1)])
    made.storage.log.advance_high_watermark(8)
    for snapshot_id in (SnapshotId(3, 1), SnapshotId(7, 3)):
        snapshot_at(made, snapshot_id)
    assert made.storage.surplus_snapshots(1) == [SnapshotId(3, 1)]
    made.storage.drop([SnapshotId(3, 1)], 1)
    assert (made.log.start_offset, made.log.earliest_snapshot) == (7, SnapshotId(7, 3))
    assert made.log.end_offset_for_epoch(2) == (3, 7)
    assert made.log.end_offset_for_epoch(5) == (3, 7)
    assert made.log.end_offset_for_epoch(6) == (6, 8)


def test_an_empty_log_after_a_snapshot_has_the_epoch_of_the_snapshot_also_after_a_restart() -> None:
    made = OpenedLog()
    snapshot_at(made, SnapshotId(50, 4))
    log = made.reopened()
    assert (log.start_offset, log.end_offset, log.last_epoch) == (50, 50, 4)
    assert log.end_offset_for_epoch(9) == (4, 50)
    assert made.storage.committed_offset == 50


def test_the_size_of_a_snapshot_is_that_of_its_file_and_none_without_it() -> None:
    made = OpenedLog()
    snapshot_id = SnapshotId(5, 1)
    assert made.log.snapshot_size(snapshot_id) is None
    snapshot_at(made, snapshot_id)
    assert made.log.snapshot_size(snapshot_id) == made.disk.size(made.storage.path_of(snapshot_id))
    made.disk.remove(made.storage.path_of(snapshot_id))
    assert made.log.snapshot_size(snapshot_id) is None


def test_voters_count_from_their_record_on_and_a_truncation_undoes_them() -> None:
    made = OpenedLog()
    base_offset = made.log.append_control(
        [
            LeaderChangeMessage(version=0, leader_id=1),
            KRaftVersionRecord(version=0, kraft_version=1),
            voters(1, 2).record(),
        ],
        3,
    )
    assert (base_offset, made.log.end_offset, made.log.last_epoch) == (0, 3, 3)
    assert (made.log.voters, made.log.voters_offset, made.log.kraft_version) == (voters(1, 2), 2, 1)
    fetched = encode_control_batch([voters(1, 2, 3).record()], base_offset=4, epoch=3, timestamp=1)
    made.log.append_as_follower(data(3, 3) + bytes(fetched))
    assert (made.log.voters, made.log.voters_offset) == (voters(1, 2, 3), 4)
    truncate(made.storage.log, 4)
    made.log.on_truncated()
    assert (made.log.voters, made.log.voters_offset) == (voters(1, 2), 2)


def test_a_partial_batch_at_the_end_is_not_appended() -> None:
    log = OpenedLog().log
    log.append_as_follower(data(0, 1, 2) + data(2, 1)[:-3])
    assert log.end_offset == 2


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (data(1, 2), "a batch at offset 1 of epoch 2 cannot follow offset 1"),
        (data(3, 2), "a batch at offset 3 of epoch 2 cannot follow offset 1"),
        (data(2, 10), "of epoch 10 cannot follow"),
        (data(2, 1), "leader epoch 1 cannot follow 2"),
        (data(2, 2) + data(4, 2), "a batch at offset 4"),
    ],
)
def test_batches_that_do_not_follow_the_log_end_are_rejected(records: bytes, why: str) -> None:
    log = OpenedLog().log
    write_epochs(log, [(2, 2)])
    with pytest.raises(KafkaError, match=why) as rejection:
        log.append_as_follower(records)
    assert rejection.value.code is ErrorCode.INVALID_RECORD
    assert log.end_offset == 2


@pytest.mark.parametrize("is_control", [False, True])
def test_a_batch_with_a_bad_checksum_is_rejected(is_control: bool) -> None:
    log = OpenedLog().log
    batch = bytearray(
        encode_control_batch([voters(1, 2).record()], base_offset=0, epoch=1, timestamp=1) if is_control else data(0, 1)
    )
    batch[-1] ^= 1
    with pytest.raises((CorruptBatch, KafkaError)):
        log.append_as_follower(batch)
    assert (log.end_offset, log.voters) == (0, voters(1))


def test_only_the_first_of_very_many_batches_are_appended() -> None:
    log = OpenedLog().log
    log.append_as_follower(b"".join(data(offset, 1) for offset in range(2000)))
    assert 1000 < log.end_offset < 2000


def test_a_follower_with_a_full_disk_keeps_what_it_could_write() -> None:
    made = OpenedLog(settings=StorageSettings(segment_bytes=200))
    batches = b"".join(data(offset, 1) for offset in range(6))
    full = made.disk.fail("create", under="/d", code=errno.ENOSPC)
    made.log.append_as_follower(batches)
    assert made.log.end_offset == 2
    with pytest.raises(KafkaError, match="No space left"):
        made.log.append_as_follower(batches[2 * len(data(0, 1)) :])
    made.disk.remove_fault(full)
    made.log.append_as_follower(batches[2 * len(data(0, 1)) :])
    assert made.log.end_offset == 6


def test_a_disk_that_fails_stops_the_node() -> None:
    made = OpenedLog()
    made.disk.fail("write", under="/d", code=errno.EIO)
    with pytest.raises(NodeFault, match="cannot be written"):
        made.log.append_as_follower(data(0, 1))


def test_control_records_follow_everything_that_was_appended_before() -> None:
    made = OpenedLog()
    made.log.accumulator = accumulator = Accumulator(2, 0)
    accumulator.append([ConfigRecord(resource_type=2, resource_name="r", name="n", value="v")] * 3, 1, 30)
    assert made.log.append_control([voters(1, 2).record()], 2) == 3
    assert accumulator.end_offset == made.log.end_offset == 4
    accumulator.reserve()
    with pytest.raises(NodeFault, match="reserved"):
        made.log.append_control([voters(1).record()], 2)


def test_the_recorded_committed_offset_covers_only_what_is_synced() -> None:
    made = OpenedLog()
    write_epochs(made.log, [(1, 3), (1, 2)])
    made.storage.record_committed(5)
    assert read_committed_offset(made.disk, made.storage.path) is None
    made.storage.log.flush()
    made.log.append_as_follower(data(5, 1))
    made.storage.record_committed(6)
    assert made.storage.committed_file.committed.offset == 5
    made.storage.log.flush()
    made.storage.record_committed(6)
    found = read_committed_offset(made.disk, made.storage.path)
    assert found is not None and found.offset == 6
