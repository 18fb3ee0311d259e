"""Damage to the metadata log: committed metadata is never truncated silently, and a torn tail never stops a node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from strandline.model.errors import NodeFault
from strandline.raft.disk.committed_offset import COMMITTED_OFFSET, CommittedOffset, read_committed_offset
from strandline.raft.disk.storage import StorageSettings
from strandline.records.batch import HEADER_SIZE, batches
from strandline.runtime.disk import Disk
from strandline.runtime.world import World
from strandline.simulation.journal import Journal
from strandline.simulation.volume import Volume
from strandline.simulation.world import Simulation
from unit.raft.single_node_quorum import (
    PARTITION,
    SingleNodeQuorum,
    format_dynamic,
    run_processes,
    setting,
    settings_in,
)

FIRST_LOG = f"{PARTITION}/00000000000000000000.log"
COMMITTED_FILE = f"{PARTITION}/{COMMITTED_OFFSET}"
SMALL_SEGMENTS = StorageSettings(segment_bytes=500)

Process = Callable[[World], Awaitable[None]]


async def twenty_settings(world: World) -> None:
    format_dynamic(world.disk)
    async with SingleNodeQuorum(world).running() as quorum:
        for number in range(20):
            await quorum.write(setting(number))


async def twenty_settings_in_small_segments(world: World) -> None:
    format_dynamic(world.disk)
    async with SingleNodeQuorum(world, storage=SMALL_SEGMENTS).running() as quorum:
        for number in range(20):
            await quorum.write(setting(number))


async def all_twenty_are_there(world: World) -> None:
    async with SingleNodeQuorum(world).running() as quorum:
        assert settings_in(quorum.image) == list(range(20))


def flip(disk: Disk, path: str, position: int) -> None:
    file = disk.open(path)
    (byte,) = file.read_at(position, 1)
    file.write_at(position, bytes([byte ^ 0x40]))
    file.close()


def corrupt(disk: Disk, offset: int) -> None:
    """The batch that begins at this offset: a byte of its records."""
    (position,) = [at for at, header in batches(disk.read(FIRST_LOG)) if header.base_offset == offset]
    flip(disk, FIRST_LOG, position + HEADER_SIZE)


def truncate(disk: Disk, path: str, size: int) -> None:
    file = disk.open(path)
    file.truncate(size)
    file.close()


def content(disk: Disk) -> dict[str, bytes]:
    return {name: disk.read(f"{PARTITION}/{name}") for name in disk.list(PARTITION)}


def prevented_by(damage: Callable[[Disk], None], *expected: str) -> Process:
    """The node does not start, and leaves every file as it was."""

    async def process(world: World) -> None:
        damage(world.disk)
        before = content(world.disk)
        with pytest.raises(NodeFault) as fault:
            SingleNodeQuorum(world)
        for words in (*expected, "Nothing was changed", "from a backup or from a copy"):
            assert words in str(fault.value)
        assert content(world.disk) == before

    return process


def remove_committed_offset(disk: Disk) -> None:
    """As Apache Kafka, or an earlier version, would have left the directory."""
    disk.remove(COMMITTED_FILE)


def test_a_flipped_byte_anywhere_in_the_log_after_a_clean_stop_prevents_the_start() -> None:
    def at(position: int) -> Process:
        async def process(world: World) -> None:
            if position >= world.disk.size(FIRST_LOG):
                return
            flip(world.disk, FIRST_LOG, position)
            try:
                with pytest.raises(NodeFault, match="is damaged"):
                    SingleNodeQuorum(world)
            finally:
                flip(world.disk, FIRST_LOG, position)

        return process

    # Within one byte in seven, every field of a header and of a record is met.
    run_processes(twenty_settings, *[at(position) for position in range(0, 1800, 7)], all_twenty_are_there)


def test_the_fault_names_the_file_the_byte_and_the_offset() -> None:
    expected = (f"{FIRST_LOG} is damaged at byte ", "at offset 13 (wrong checksum", "up to offset 23 was committed")
    run_processes(twenty_settings, prevented_by(lambda disk: corrupt(disk, 13), *expected))


def test_without_a_committed_offset_damage_before_intact_batches_prevents_the_start() -> None:
    def damage(disk: Disk) -> None:
        remove_committed_offset(disk)
        corrupt(disk, 13)

    run_processes(
        twenty_settings, prevented_by(damage, "is damaged at byte", "intact metadata follows it, at offset 14")
    )


@pytest.mark.parametrize("position", [70, 200, 350])
def test_without_a_committed_offset_damage_before_a_later_segment_prevents_the_start(position: int) -> None:
    def damage(disk: Disk) -> None:
        remove_committed_offset(disk)
        flip(disk, FIRST_LOG, position)

    run_processes(
        twenty_settings_in_small_segments, prevented_by(damage, f"{FIRST_LOG} is damaged", "holds later metadata")
    )


@pytest.mark.parametrize("noted", [True, False])
def test_a_missing_segment_in_the_middle_prevents_the_start(noted: bool) -> None:
    def damage(disk: Disk) -> None:
        if not noted:
            remove_committed_offset(disk)
        logs = [name for name in disk.list(PARTITION) if name.endswith(".log")]
        assert len(logs) > 2
        disk.remove(f"{PARTITION}/{logs[1]}")

    run_processes(twenty_settings_in_small_segments, prevented_by(damage, "the next segment begins at offset"))


@pytest.mark.parametrize("noted", [True, False])
def test_a_missing_log_file_prevents_the_start(noted: bool) -> None:
    def damage(disk: Disk) -> None:
        if not noted:
            remove_committed_offset(disk)
        disk.remove(FIRST_LOG)

    run_processes(twenty_settings, prevented_by(damage, f"{PARTITION} has no .log file", "was committed"))


@pytest.mark.parametrize("size", [0, 300, 1500])
def test_a_log_truncated_after_a_clean_stop_prevents_the_start(size: int) -> None:
    run_processes(
        twenty_settings, prevented_by(lambda disk: truncate(disk, FIRST_LOG, size), f"{FIRST_LOG} ", "up to offset 23")
    )


def test_a_log_that_ends_before_a_known_epoch_prevents_the_start() -> None:
    def damage(disk: Disk) -> None:
        remove_committed_offset(disk)
        truncate(disk, FIRST_LOG, 300)

    expected = "leader-epoch-checkpoint says"
    run_processes(
        twenty_settings, all_twenty_are_there, prevented_by(damage, "up to offset 23 was committed", expected)
    )


def test_damage_after_a_kill_prevents_the_start_as_well() -> None:
    async def killed(world: World) -> None:
        format_dynamic(world.disk)
        quorum = SingleNodeQuorum(world)
        await quorum.voter.start()
        run = asyncio.create_task(quorum.voter.run())
        await quorum.leading.wait()
        for number in range(20):
            await quorum.write(setting(number))
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    run_processes(killed, prevented_by(lambda disk: corrupt(disk, 13), "at offset 13", "up to offset 23 was committed"))


def test_damage_below_the_end_of_a_complete_snapshot_does_no_harm() -> None:
    async def first(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(world).running() as quorum:
            for number in range(20):
                await quorum.write(setting(number))
            await quorum.voter.write_snapshot()

    async def damage(world: World) -> None:
        corrupt(world.disk, 13)

    run_processes(first, damage, all_twenty_are_there, all_twenty_are_there)


def test_damage_below_a_snapshot_prevents_the_start_when_the_log_continues_after_it() -> None:
    async def first(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(world).running() as quorum:
            for number in range(20):
                await quorum.write(setting(number))
                if number == 15:
                    await quorum.voter.write_snapshot()

    run_processes(first, prevented_by(lambda disk: corrupt(disk, 13), "everything from offset 19 on would be lost"))


@pytest.mark.parametrize("garbage", [b"", b"\0" * 100, b"no json", b'{"leaderEpoch":true,"committedOffset":"5"}'])
def test_an_unreadable_committed_offset_does_not_prevent_opening_an_intact_log(garbage: bytes) -> None:
    async def damage(world: World) -> None:
        truncate(world.disk, COMMITTED_FILE, 0)
        file = world.disk.open(COMMITTED_FILE)
        file.write_at(0, garbage)
        file.close()
        assert read_committed_offset(world.disk, PARTITION) is None

    run_processes(twenty_settings, damage, all_twenty_are_there)


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("torn", [b"\0" * 700, b"\0\0\0\0\0\0\0\x17\0\0\0\x50\0\0\0\x01\x02half of it"])
def test_a_torn_tail_is_truncated(torn: bytes, noted: bool) -> None:
    async def damage(world: World) -> None:
        if not noted:
            remove_committed_offset(world.disk)
        file = world.disk.open(FIRST_LOG)
        file.write_at(file.size(), torn)
        file.close()

    run_processes(twenty_settings, damage, all_twenty_are_there, all_twenty_are_there)


def test_a_group_of_batches_torn_before_it_was_committed_is_truncated_too() -> None:
    """One write, one sync, many batches: the first sector of it may be lost and the others be there."""

    async def damage(world: World) -> None:
        file = world.disk.open(COMMITTED_FILE)
        file.write_at(0, json.dumps({"leaderEpoch": 1, "committedOffset": 8}).encode().ljust(127) + b"\n")
        file.close()
        corrupt(world.disk, 13)

    async def check(world: World) -> None:
        async with SingleNodeQuorum(world).running() as quorum:
            assert settings_in(quorum.image) == list(range(10))

    run_processes(twenty_settings, damage, check)


def test_a_committed_offset_older_than_the_last_leader_does_not_excuse_damage() -> None:
    """Apache Kafka used the directory in between: a later epoch in quorum-state, an old committed-offset."""

    def damage(disk: Disk) -> None:
        file = disk.open(COMMITTED_FILE)
        file.write_at(0, json.dumps({"leaderEpoch": 0, "committedOffset": 2}).encode().ljust(127) + b"\n")
        file.close()
        corrupt(disk, 13)

    run_processes(twenty_settings, prevented_by(damage, "intact metadata follows it, at offset 14"))


def test_the_committed_offset_is_recorded_with_every_commit() -> None:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(world).running() as quorum:
            assert read_committed_offset(world.disk, PARTITION) == CommittedOffset(1, 3)
            await quorum.write(setting(1))
            assert read_committed_offset(world.disk, PARTITION) == CommittedOffset(1, 4)
            assert world.disk.size(COMMITTED_FILE) == 128

    run_processes(process)


@pytest.mark.parametrize("seed", range(2))
def test_the_node_restarts_after_a_power_loss_at_any_point_of_a_group_of_batches(seed: int) -> None:
    """Three runs that write in groups, over several segments; then a restart after a power loss at each operation."""
    journal = Journal()
    acked: list[tuple[int, int]] = []
    storage = StorageSettings(segment_bytes=4000)

    async def format_first(world: World) -> None:
        format_dynamic(world.disk)

    async def process(world: World) -> None:
        async with SingleNodeQuorum(world, storage=storage).running() as quorum:
            for _ in range(3):
                first = len(settings_in(quorum.image))
                await asyncio.gather(*[quorum.write(setting(number)) for number in range(first, first + 20)])
                acked.append((len(journal.operations), first + 20))

    formatted = 0
    with Simulation(seed=seed) as simulation:
        machine = simulation.machine("node", journal=journal)

        async def scenario() -> None:
            nonlocal formatted
            await machine.boot(format_first)
            formatted = len(journal.operations)
            for _ in range(3):
                await machine.boot(process)

        simulation.run(scenario(), max_virtual_s=100)
    assert acked[-1][1] == 180

    volume = Volume()
    for moment in journal.replay(volume):
        if moment < formatted:
            continue
        for draw in range(2):
            with Simulation(seed=10_000 * seed + 10 * moment + draw) as simulation:
                survivor = simulation.machine("node", volume=volume.after_power_loss(simulation.random("loss")))

                async def check(world: World, moment: int = moment) -> None:
                    async with SingleNodeQuorum(world, storage=storage).running() as quorum:
                        due = max((count for at, count in acked if at <= moment), default=0)
                        found = settings_in(quorum.image)
                        assert len(found) >= due, f"power lost before operation {moment}"
                        assert found == list(range(len(found)))

                async def reboot(machine=survivor, check=check) -> None:  # type: ignore[no-untyped-def]
                    await machine.boot(check)
                    await machine.boot(check)

                simulation.run(reboot(), max_virtual_s=100)
