"""Snapshots from memory: when they are written, what they show, how long they stay. On virtual time."""

from __future__ import annotations

import asyncio
import errno

import pytest

from strandline.model.errors import ErrorCode, NodeFault
from strandline.model.ids import Uuid
from strandline.protocol.messages.metadata_records import BeginTransactionRecord, EndTransactionRecord
from strandline.protocol.messages.quorum import (
    FetchSnapshotResponse,
)
from strandline.raft.disk.storage import StorageSettings
from strandline.raft.machine.messages import fetch_snapshot_request
from strandline.raft.machine.values import SnapshotId
from strandline.raft.machine.voters import ReplicaKey
from strandline.raft.shell.snapshot_generator import SnapshotSettings
from strandline.runtime.world import World
from unit.raft.single_node_quorum import (
    ONE_VOTER,
    PARTITION,
    SingleNodeQuorum,
    disk_of,
    first_batch,
    format_dynamic,
    run_processes,
    setting,
    settings_in,
)


@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename"])
def test_a_snapshot_that_cannot_be_written_is_retried_and_does_no_harm(kind: str) -> None:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(world).running() as quorum:
            await quorum.write(setting(1))
            path = f"{PARTITION}/{SnapshotId(4, 1).file_name}.part"
            disk_of(world).fail(kind, under=path, code=errno.ENOSPC, times=1)
            assert await quorum.voter.write_snapshot() is None
            assert quorum.storage.snapshots == []
            await quorum.write(setting(2))
            assert await quorum.voter.write_snapshot() == SnapshotId(5, 1)
            assert [name for name in world.disk.list(PARTITION) if name.endswith(".part")] == []

    run_processes(process)


def test_a_snapshot_is_written_after_enough_bytes_and_a_restart_loads_it() -> None:
    async def first(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(
            world, snapshot_settings=SnapshotSettings(max_bytes_between=3000)
        ).running() as quorum:
            await quorum.write(first_batch())
            for number in range(60):
                await quorum.write(setting(number))
            await asyncio.sleep(1)
            assert len(quorum.storage.snapshots) >= 1
            taken = quorum.storage.latest_snapshot
            assert taken is not None
            assert taken.epoch == 1
            assert world.disk.exists(f"{PARTITION}/{taken.file_name}")

    async def second(world: World) -> None:
        quorum = SingleNodeQuorum(world)
        latest = quorum.storage.latest_snapshot
        assert latest is not None
        snapshot = quorum.storage.read_latest_snapshot()
        assert snapshot is not None
        assert (snapshot.kraft_version, snapshot.voters) == (1, ONE_VOTER)
        async with quorum.running():
            assert settings_in(quorum.image) == list(range(60))
            assert quorum.voter.epoch == 2

    run_processes(first, second)


def test_a_snapshot_is_written_after_an_hour_if_anything_changed() -> None:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(world).running() as quorum:
            await quorum.write(setting(1))
            await asyncio.sleep(3601)
            assert [snapshot.end_offset for snapshot in quorum.storage.snapshots] == [4]
            await asyncio.sleep(3601)
            assert len(quorum.storage.snapshots) == 1

    run_processes(process)


def test_a_snapshot_contains_the_image_as_of_its_begin_while_appends_go_on() -> None:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(world).running() as quorum:
            for number in range(1000):
                quorum.append(setting(number))
            await quorum.voter.committed.reached(quorum.voter.end_offset)
            writing = asyncio.create_task(quorum.voter.write_snapshot())
            await asyncio.sleep(0)
            for number in range(1000, 1010):
                await quorum.write(setting(number))
            snapshot_id = await writing
            assert snapshot_id is not None
            assert snapshot_id.end_offset == 1003
            snapshot = quorum.storage.read_latest_snapshot()
            assert snapshot is not None
            assert len(list(snapshot.records())) == 1000

    run_processes(process)


def test_no_snapshot_is_written_during_a_metadata_transaction() -> None:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(world).running() as quorum:
            await quorum.write([BeginTransactionRecord(), *setting(1)])
            assert await quorum.voter.write_snapshot() is None
            await quorum.write([EndTransactionRecord()])
            assert await quorum.voter.write_snapshot() == SnapshotId(6, 1)
            assert await quorum.voter.write_snapshot() is None

    run_processes(process)


def test_old_snapshots_and_the_log_before_them_are_removed_but_never_the_latest() -> None:
    async def first(world: World) -> None:
        format_dynamic(world.disk)
        small = StorageSettings(segment_bytes=2000, retention_bytes=1)
        async with SingleNodeQuorum(world, storage=small).running() as quorum:
            await quorum.write(first_batch())
            for number in range(90):
                await quorum.write(setting(number % 7))
                if number % 30 == 29:
                    await quorum.voter.write_snapshot()
            assert [snapshot.end_offset for snapshot in quorum.storage.snapshots] == [94]
            assert quorum.storage.log.log_start_offset == 94
            files = world.disk.list(PARTITION)
            assert len([name for name in files if name.endswith(".checkpoint")]) == 2
            assert len([name for name in files if name.endswith(".log")]) == 1

    async def second(world: World) -> None:
        async with SingleNodeQuorum(world).running() as quorum:
            assert settings_in(quorum.image) == list(range(7))

    run_processes(first, second)


def test_a_snapshot_and_the_log_after_it_are_kept_while_a_replica_fetches_it() -> None:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        small = StorageSettings(segment_bytes=2000, retention_bytes=1)
        async with SingleNodeQuorum(world, storage=small).running() as quorum:
            await quorum.write(first_batch())
            fetched = await quorum.voter.write_snapshot()
            assert fetched is not None
            slow = ReplicaKey(9, Uuid.of(9, 9))
            for number in range(5):
                await quorum.write(setting(number))
                request = fetch_snapshot_request("a cluster of one", slow, 1, fetched, 0, 64)
                response = await quorum.voter.handle(request, 1)
                assert isinstance(response, FetchSnapshotResponse)
                assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
                await quorum.voter.write_snapshot()
                await asyncio.sleep(9)
            assert quorum.storage.snapshots[0] == fetched
            assert quorum.storage.log.log_start_offset <= fetched.end_offset, "so that a fetch can continue there"
            await asyncio.sleep(2)
            await quorum.write(setting(9))
            latest = await quorum.voter.write_snapshot()
            assert quorum.storage.snapshots == [latest], "it is no longer fetched"

    run_processes(process)


def test_a_log_that_ends_before_the_latest_snapshot_starts_at_its_end() -> None:
    async def first(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(world).running() as quorum:
            for number in range(10):
                await quorum.write(setting(number))
            await quorum.voter.write_snapshot()

    async def second(world: World) -> None:
        file = world.disk.open(f"{PARTITION}/00000000000000000000.log")
        file.truncate(300)
        file.close()
        async with SingleNodeQuorum(world).running() as quorum:
            assert settings_in(quorum.image) == list(range(10))
            assert (quorum.storage.log.log_start_offset, quorum.voter.end_offset) == (13, 14)

    run_processes(first, second)


def test_a_log_that_lacks_the_snapshot_before_its_start_prevents_the_start() -> None:
    async def first(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(
            world, storage=StorageSettings(segment_bytes=500, retention_bytes=1)
        ).running() as quorum:
            for _ in range(2):
                for number in range(20):
                    await quorum.write(setting(number))
                await quorum.voter.write_snapshot()

    async def second(world: World) -> None:
        for name in world.disk.list(PARTITION):
            if name.endswith("-0000000001.checkpoint"):
                world.disk.remove(f"{PARTITION}/{name}")
        with pytest.raises(NodeFault, match="missing"):
            SingleNodeQuorum(world)

    run_processes(first, second)
