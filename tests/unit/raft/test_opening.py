"""Opening the metadata log: damaged snapshots, logs that contradict them, metadata of newer releases."""

from __future__ import annotations

import errno
import struct
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from strandline.model.errors import NodeFault
from strandline.raft.disk.batches import encode_data_batch
from strandline.raft.disk.committed_offset import (
    COMMITTED_OFFSET,
    CommittedOffset,
    CommittedOffsetFile,
    read_committed_offset,
)
from strandline.raft.disk.quorum_state import read_quorum_state, write_quorum_state
from strandline.raft.disk.snapshots import SnapshotWriter
from strandline.raft.disk.storage import MetadataStorage, StorageSettings
from strandline.raft.machine.values import QuorumState, SnapshotId
from strandline.raft.machine.voters import VoterSet
from strandline.records.batch import Record, encode_batch
from strandline.runtime.disk import Disk
from strandline.runtime.world import World
from strandline.simulation.disk import SimDisk
from strandline.simulation.volume import Volume
from unit.raft.single_node_quorum import (
    HOME,
    PARTITION,
    SingleNodeQuorum,
    format_dynamic,
    run_processes,
    setting,
    settings_in,
)

Process = Callable[[World], Awaitable[None]]


def writing(count: int, *, snapshots_after: tuple[int, ...], storage: StorageSettings | None = None) -> Process:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(world, storage=storage).running() as quorum:
            for number in range(count):
                await quorum.write(setting(number))
                if number in snapshots_after:
                    await quorum.voter.write_snapshot()

    return process


def checkpoints(disk: Disk) -> list[str]:
    return [name for name in disk.list(PARTITION) if name.endswith("-0000000001.checkpoint")]


def damage_latest(world: World) -> None:
    file = world.disk.open(f"{PARTITION}/{checkpoints(world.disk)[-1]}")
    file.truncate(file.size() - 10)
    file.close()


def test_a_damaged_snapshot_is_set_aside_when_an_older_one_and_the_log_are_complete(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check(world: World) -> None:
        damage_latest(world)
        quorum = SingleNodeQuorum(world)
        assert [snapshot.end_offset for snapshot in quorum.storage.snapshots] == [9]
        async with quorum.running():
            assert settings_in(quorum.image) == list(range(20))
        assert [name for name in world.disk.list(PARTITION) if name.endswith(".damaged")] != []

    async def again(world: World) -> None:
        async with SingleNodeQuorum(world).running() as quorum:
            assert settings_in(quorum.image) == list(range(20))

    run_processes(writing(20, snapshots_after=(5, 15)), check, again)
    assert "doing without it" in caplog.text


def test_a_damaged_snapshot_is_set_aside_when_the_log_starts_at_zero() -> None:
    async def check(world: World) -> None:
        damage_latest(world)
        async with SingleNodeQuorum(world).running() as quorum:
            assert quorum.storage.snapshots == []
            assert settings_in(quorum.image) == list(range(20))

    run_processes(writing(20, snapshots_after=(15,)), check)


def test_a_damaged_snapshot_that_is_needed_prevents_the_start_with_advice_and_changes_nothing() -> None:
    async def check(world: World) -> None:
        damage_latest(world)
        before = {name: world.disk.read(f"{PARTITION}/{name}") for name in world.disk.list(PARTITION)}
        with pytest.raises(NodeFault) as fault:
            SingleNodeQuorum(world)
        for words in (
            checkpoints(world.disk)[-1],
            "is truncated",
            "Nothing was changed",
            "Restore the file from a backup",
        ):
            assert words in str(fault.value)
        assert before == {name: world.disk.read(f"{PARTITION}/{name}") for name in world.disk.list(PARTITION)}

    tight = StorageSettings(segment_bytes=300, retention_bytes=1)
    run_processes(writing(20, snapshots_after=(5, 15), storage=tight), check)


def test_a_log_that_diverges_from_the_latest_snapshot_is_truncated_fully() -> None:
    """Power was lost after the leader's snapshot got its name and before the diverging log was truncated."""

    async def take_over(world: World) -> None:
        snapshot_id = SnapshotId(12, 5)
        writer = SnapshotWriter(
            world.disk, f"{PARTITION}/{snapshot_id.file_name}", epoch=snapshot_id.epoch, metadata_version=30
        )
        writer.begin(last_timestamp=1, wall_ms=1)
        writer.append(setting(77), 1)
        writer.finish(1)
        committed_file = CommittedOffsetFile(world.disk, PARTITION)
        file = world.disk.open(f"{PARTITION}/{COMMITTED_OFFSET}")
        file.truncate(0)
        committed_file.committed = replace(committed_file.committed, offset=0)
        committed_file.advance(4)
        file.close()
        storage = MetadataStorage.open(world.disk, HOME, wall_ms=1)
        assert (storage.log.log_start_offset, storage.log.log_end_offset) == (12, 12)
        assert storage.log.epochs.latest == 5
        assert storage.committed_offset == 12

    run_processes(writing(20, snapshots_after=()), take_over)


def test_a_log_that_agrees_with_the_latest_snapshot_is_kept() -> None:
    async def check(world: World) -> None:
        storage = MetadataStorage.open(world.disk, HOME, wall_ms=1)
        assert (storage.log.log_start_offset, storage.log.log_end_offset) == (0, 23)

    run_processes(writing(20, snapshots_after=(15,)), check)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"\x01\xf0\x07\x00\x00", "a metadata record of unknown type 1008"),
        (b"\x01\x02\x63\x00", "TopicRecord has no version 99"),
        (b"\x02\x02\x00\x00", "frame version 2"),
    ],
)
def test_metadata_of_a_newer_release_stops_the_node_with_advice(value: bytes, why: str) -> None:
    async def newer(world: World) -> None:
        file = world.disk.open(f"{PARTITION}/00000000000000000000.log")
        batch = encode_batch([Record(-1, 1, None, value)], base_offset=8, leader_epoch=1)
        file.write_at(file.size(), batch)
        file.sync()
        file.close()
        quorum = SingleNodeQuorum(world)
        await quorum.voter.start()
        with pytest.raises(NodeFault) as fault:
            await quorum.voter.run()
        for words in (PARTITION, "offset 8", why, "run this node with that release"):
            assert words in str(fault.value)

    run_processes(writing(5, snapshots_after=()), newer)


def test_a_corrupt_quorum_state_prevents_the_start_with_advice() -> None:
    async def check(world: World) -> None:
        file = world.disk.open(f"{PARTITION}/quorum-state")
        file.truncate(5)
        file.close()
        with pytest.raises(NodeFault, match=r"quorum-state cannot be read .* from a backup"):
            SingleNodeQuorum(world)

    run_processes(writing(5, snapshots_after=()), check)


def test_records_of_an_unknown_epoch_prevent_the_start() -> None:
    async def check(world: World) -> None:
        path = f"{PARTITION}/00000000000000000000.log"
        file = world.disk.open(path)
        batch = encode_data_batch(setting(1), base_offset=8, epoch=1, timestamp=1, metadata_version=30)
        struct.pack_into(">i", batch, 12, 0x4000_0001)
        file.write_at(file.size(), batch)
        file.close()
        with pytest.raises(NodeFault, match=r"claim to be of epoch 1073741825, but quorum-state has epoch 1"):
            SingleNodeQuorum(world)

    run_processes(writing(5, snapshots_after=()), check)


@pytest.mark.parametrize("power_is_lost", [False, True])
def test_a_start_may_fail_any_number_of_times_before_quorum_state_names_its_epoch(power_is_lost: bool) -> None:
    async def failing(world: World) -> None:
        quorum = SingleNodeQuorum(world)
        synced_note = world.disk.read(f"{PARTITION}/{COMMITTED_OFFSET}")
        assert isinstance(world.disk, SimDisk)
        world.disk.fail("create", under=f"{PARTITION}/quorum-state.tmp", code=errno.ENOSPC, times=1)
        await quorum.voter.start()
        with pytest.raises(NodeFault, match="No space left"):
            await quorum.voter.run()
        if power_is_lost:
            file = world.disk.open(f"{PARTITION}/{COMMITTED_OFFSET}")
            file.write_at(0, synced_note)
            file.close()

    async def at_last(world: World) -> None:
        async with SingleNodeQuorum(world).running() as quorum:
            assert settings_in(quorum.image) == list(range(5))
            assert quorum.voter.epoch == 5

    run_processes(writing(5, snapshots_after=()), failing, failing, failing, at_last)


def test_only_records_known_to_be_committed_are_replayed_before_a_leader_is_known() -> None:
    async def check(world: World) -> None:
        committed_file = CommittedOffsetFile(world.disk, PARTITION)
        committed_file.committed = CommittedOffset(committed_file.committed.epoch, 0)
        committed_file.advance(7)
        quorum = SingleNodeQuorum(world)
        await quorum.voter.start()
        assert quorum.storage.log.log_end_offset == 23
        assert settings_in(quorum.image) == [0, 1, 2, 3]
        assert quorum.voter.high_watermark.value == quorum.image.committed.offset == quorum.image.end_offset == 7

    async def then(world: World) -> None:
        async with SingleNodeQuorum(world).running() as quorum:
            assert settings_in(quorum.image) == list(range(20))

    run_processes(writing(20, snapshots_after=()), check, then)


def test_a_directory_written_by_kafka_gets_a_committed_offset() -> None:
    disk = SimDisk(Volume())
    disk.make_dirs(PARTITION)
    write_quorum_state(disk, PARTITION, QuorumState(epoch=6, leader_id=2), kraft_version=0, voters=[1, 2, 3])
    storage = MetadataStorage.open(disk, HOME, wall_ms=1)
    assert read_committed_offset(disk, PARTITION) == CommittedOffset(6, 0)
    storage.close()


def test_an_epoch_is_recorded_with_the_committed_offset_before_quorum_state() -> None:
    disk = SimDisk(Volume())
    disk.make_dirs(HOME)
    storage = MetadataStorage.open(disk, HOME, wall_ms=1)
    storage.write_state(QuorumState(), 1, VoterSet(()))
    storage.record_epoch(3)
    assert (read_committed_offset(disk, PARTITION), read_quorum_state(disk, PARTITION).epoch) == (
        CommittedOffset(3, 0),
        0,
    )
    before = disk.syncs
    storage.write_state(QuorumState(epoch=3), 1, VoterSet(()))
    assert disk.syncs - before == 3
    storage.record_epoch(3)
    storage.write_state(QuorumState(epoch=3, leader_id=2), 1, VoterSet(()))
    assert disk.syncs - before == 5, "within an epoch the committed offset needs no sync"


def test_a_disk_that_cannot_be_written_at_the_start_is_named_in_the_fault() -> None:
    disk = SimDisk(Volume())
    disk.make_dirs(HOME)
    disk.fail("create", under=PARTITION, code=errno.ENOSPC)
    with pytest.raises(NodeFault, match=f"the metadata log in {PARTITION} cannot be opened: .*No space left"):
        MetadataStorage.open(disk, HOME, wall_ms=1)
