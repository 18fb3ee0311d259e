"""The driver with a quorum of one: epochs, commits, snapshots, restarts, failing disks, power losses. On virtual time.

Quorums of several are in tests/simulation."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator

import pytest

from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.model.ids import METADATA_TOPIC, Uuid
from strandline.model.timeline import Touched
from strandline.protocol.messages.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from strandline.protocol.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from strandline.raft.disk.storage import StorageSettings
from strandline.raft.machine.values import QuorumState
from strandline.raft.machine.voters import Voter, VoterSet
from strandline.raft.shell.snapshot_generator import SnapshotSettings
from strandline.runtime.world import World
from strandline.simulation.journal import Journal
from strandline.simulation.volume import Volume
from strandline.simulation.world import Simulation
from unit.raft.single_node_quorum import (
    HOME,
    ONE_VOTER,
    PARTITION,
    SingleNodeQuorum,
    batches_in,
    disk_of,
    first_batch,
    format_dynamic,
    run_processes,
    setting,
    settings_in,
)


def test_a_sole_voter_leads_at_once_and_writes_the_voters_in_its_first_epoch_only() -> None:
    async def first(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(world).running() as quorum:
            assert (quorum.voter.is_leader, quorum.voter.epoch, quorum.voter.end_offset) == (True, 1, 3)
            assert quorum.voter.committed.value == quorum.image.committed.offset == 3
            (batch,) = batches_in(quorum.storage)
            assert [type(record) for record in batch.records] == [LeaderChangeMessage, KRaftVersionRecord, VotersRecord]
            assert quorum.storage.read_state() == QuorumState(epoch=1, leader_id=1)

    async def second(world: World) -> None:
        async with SingleNodeQuorum(world).running() as quorum:
            assert (quorum.voter.epoch, quorum.voter.end_offset) == (2, 4)
            batches = batches_in(quorum.storage)
            assert [type(record) for record in batches[1].records] == [LeaderChangeMessage]
            assert [batch.epoch for batch in batches] == [1, 2]

    run_processes(first, second)


def test_configured_voters_are_not_written_to_the_log() -> None:
    async def process(world: World) -> None:
        async with SingleNodeQuorum(world, configured=VoterSet((Voter(1),))).running() as quorum:
            assert quorum.voter.end_offset == 1
            state = world.disk.read(f"{PARTITION}/quorum-state").decode()
            assert '"data_version":0' in state
            assert '"currentVoters":[{"voterId":1}]' in state

    run_processes(process)


@pytest.mark.parametrize(
    ("node_id", "directory_id", "configured", "why"),
    [
        (2, None, VoterSet((Voter(1),)), "not among the voters"),
        (1, None, None, "voters are unknown"),
        (1, Uuid.of(9, 9999), ONE_VOTER, "elsewhere"),
    ],
)
def test_a_node_that_is_not_the_voter_does_not_start(
    node_id: int, directory_id: Uuid | None, configured: VoterSet | None, why: str
) -> None:
    async def process(world: World) -> None:
        if directory_id is None:
            quorum = SingleNodeQuorum(world, node_id=node_id, configured=configured)
        else:
            format_dynamic(world.disk)
            quorum = SingleNodeQuorum(world, node_id=node_id, directory_id=directory_id)
        with pytest.raises(NodeFault, match=why):
            await quorum.voter.start()

    run_processes(process)


def test_committed_records_survive_a_restart() -> None:
    async def first(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(world).running() as quorum:
            await quorum.write(first_batch())
            for number in range(5):
                await quorum.write(setting(number))

    async def second(world: World) -> None:
        async with SingleNodeQuorum(world).running() as quorum:
            assert settings_in(quorum.image) == [0, 1, 2, 3, 4]
            assert quorum.image.committed.metadata_version == 30
            await quorum.write(setting(5))
            assert settings_in(quorum.image) == [0, 1, 2, 3, 4, 5]

    run_processes(first, second)


def test_a_thousand_writes_at_once_cost_few_syncs() -> None:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(world).running() as quorum:
            await quorum.write(first_batch())
            before = disk_of(world).syncs
            await asyncio.gather(*[quorum.write(setting(number)) for number in range(1000)])
            assert disk_of(world).syncs - before <= 3
            assert len(settings_in(quorum.image)) == 1000

    run_processes(process)


def test_the_image_is_committed_and_listeners_are_notified_before_waiters_are_woken() -> None:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        notified: list[tuple[int, list[object]]] = []

        def on_commit(touched: list[Touched]) -> None:
            notified.append((quorum.image.committed.offset, [entry.key for entry in touched]))
            assert quorum.voter.committed.value < quorum.image.committed.offset

        quorum = SingleNodeQuorum(world, on_commit=on_commit)
        async with quorum.running():
            await quorum.write(setting(1))
            assert notified == [(3, []), (4, [(2, "r")])]

    run_processes(process)


def test_waiters_for_a_commit_wait_until_a_slow_listener_has_finished() -> None:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        notified: list[tuple[int, int]] = []

        def on_commit(touched: list[Touched]) -> Iterator[None]:
            offset = quorum.image.committed.offset
            for slice_ in range(3):
                assert quorum.image.committed.offset == offset, "the next commit follows the last slice"
                assert quorum.voter.committed.value <= quorum.voter.high_watermark.value < offset
                notified.append((offset, slice_))
                yield

        quorum = SingleNodeQuorum(world, on_commit=on_commit)
        async with quorum.running():
            for number in range(5):
                quorum.append(setting(number))
                await asyncio.sleep(0)
            await quorum.write(setting(5))
            assert notified[-1] == (9, 2)
            assert notified == sorted(notified)
            assert quorum.voter.high_watermark.value == quorum.voter.committed.value == 9

    run_processes(process)


def test_nothing_is_committed_before_it_is_synced() -> None:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(world).running() as quorum:
            quorum.append(setting(1))
            while quorum.storage.log.log_end_offset < 4:
                await asyncio.sleep(0)
            assert quorum.voter.committed.value == 3
            assert settings_in(quorum.image) == []
            await quorum.voter.committed.reached(4)
            assert settings_in(quorum.image) == [1]

    run_processes(process)


def test_a_failed_sync_ends_the_leadership_and_fails_pending_appends() -> None:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        quorum = SingleNodeQuorum(world)
        await quorum.voter.start()
        run = asyncio.create_task(quorum.voter.run())
        await quorum.leading.wait()
        disk_of(world).fail("sync", under=PARTITION, code=errno.EIO)
        with pytest.raises(KafkaError) as rejection:
            await quorum.write(setting(1))
        assert rejection.value.code is ErrorCode.NOT_CONTROLLER
        with pytest.raises(NodeFault, match="cannot be written"):
            await run
        assert not quorum.voter.is_leader
        assert settings_in(quorum.image) == []
        with pytest.raises(KafkaError):
            quorum.voter.append(setting(2))

    run_processes(process)


def test_a_full_disk_stops_the_leader_with_a_clear_message() -> None:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        quorum = SingleNodeQuorum(world)
        await quorum.voter.start()
        run = asyncio.create_task(quorum.voter.run())
        await quorum.leading.wait()
        await quorum.write(setting(1))
        disk_of(world).fail("write", under=f"{PARTITION}/00000000000000000000.log", code=errno.ENOSPC)
        quorum.append(setting(2))
        with pytest.raises(NodeFault, match=r"cannot be written.*No space left"):
            await run

    async def again(world: World) -> None:
        async with SingleNodeQuorum(world).running() as quorum:
            assert settings_in(quorum.image) == [1]

    run_processes(process, again)


@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename", "sync_dir"])
def test_a_disk_that_fails_at_the_start_is_named_in_the_fault(kind: str) -> None:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        quorum = SingleNodeQuorum(world)
        disk_of(world).fail(kind, under=PARTITION, code=errno.EIO)
        await quorum.voter.start()
        with pytest.raises(NodeFault, match=r"cannot be (used|written)"):
            await quorum.voter.run()
        assert not quorum.voter.is_leader

    run_processes(process)


def test_describe_quorum_lists_the_sole_voter() -> None:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(world).running() as quorum:
            await quorum.write(setting(1))
            partitions = [DescribeQuorumRequestPartitionData(partition_index=0)]
            topics = [DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=partitions)]
            response = await quorum.voter.handle(DescribeQuorumRequest(topics=topics), 2)
            assert isinstance(response, DescribeQuorumResponse)
            (partition,) = response.topics[0].partitions
            assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 1, 4)
            assert response.nodes[0].listeners[0].port == 9093

    run_processes(process)


def test_a_stop_between_two_steps_of_a_commit_records_no_committed_offset_within_a_batch() -> None:
    class Killed(Exception):
        pass

    async def first(world: World) -> None:
        format_dynamic(world.disk)
        commit_offsets: list[int] = []

        def on_commit(touched: list[Touched]) -> None:
            commit_offsets.append(quorum.image.committed.offset)
            if len(commit_offsets) == 3:
                raise Killed

        quorum = SingleNodeQuorum(world, on_commit=on_commit)
        await quorum.voter.start()
        run = asyncio.create_task(quorum.voter.run())
        await quorum.leading.wait()
        for number in range(2500):
            quorum.append(setting(number))
        with pytest.raises(Killed):
            await run
        ends = [batch.next_offset for batch in batches_in(quorum.storage)]
        assert commit_offsets[1] not in ends, (
            "many small appends share a batch, but not all of them a step of the commit"
        )

    async def second(world: World) -> None:
        async with SingleNodeQuorum(world).running() as quorum:
            assert settings_in(quorum.image) == list(range(2500))

    run_processes(first, second)


def test_a_start_costs_few_syncs() -> None:
    async def first(world: World) -> None:
        format_dynamic(world.disk)
        before = disk_of(world).syncs
        async with SingleNodeQuorum(world).running():
            # The directory entry of the log; committed-offset, quorum-state and their entries; the leader's first
            # record. Only once: quorum-begun and its entry.
            assert disk_of(world).syncs - before <= 7

    async def second(world: World) -> None:
        async with SingleNodeQuorum(world).running():
            assert disk_of(world).syncs <= 4

    run_processes(first, second)


def test_metrics_have_the_names_of_kafkas_raft_metrics() -> None:
    async def process(world: World) -> None:
        format_dynamic(world.disk)
        async with SingleNodeQuorum(world).running() as quorum:
            await asyncio.gather(*[quorum.write(setting(number)) for number in range(60)])
            shown = quorum.metrics.snapshot(world.clock.now_ms())
            group = "kafka.server:type=raft-metrics,name="
            assert (shown[group + "current-leader"], shown[group + "current-epoch"]) == (1, 1)
            assert shown[group + "high-watermark"] == shown[group + "log-end-offset"] == 63
            assert shown[group + "current-state,state=leader"] == 1
            assert shown[group + "current-state,state=follower"] == 0
            assert shown[group + "append-records-rate"] == pytest.approx(2, abs=0.1)
            assert shown[group + "commit-latency,attribute=Count"] >= 1

    run_processes(process)


@pytest.mark.parametrize("seed", range(3))
def test_committed_records_survive_a_power_loss_at_any_point_and_the_epoch_increases(seed: int) -> None:
    """One run, then one more for each of its disk operations, with a power loss just before it."""
    journal = Journal()
    acked: list[tuple[int, int]] = []

    async def process(world: World) -> None:
        disk = disk_of(world)
        format_dynamic(disk)
        snapshot_settings, storage = (
            SnapshotSettings(max_bytes_between=900),
            StorageSettings(segment_bytes=1500, retention_bytes=4000),
        )
        async with SingleNodeQuorum(world, snapshot_settings=snapshot_settings, storage=storage).running() as quorum:
            for number in range(40):
                await quorum.write(setting(number))
                acked.append((len(journal.operations), number))

    with Simulation(seed=seed) as simulation:
        machine = simulation.machine("node", journal=journal)

        async def scenario() -> None:
            await machine.boot(process)

        simulation.run(scenario(), max_virtual_s=100)

    formatted = _formatted_after(journal)
    volume = Volume()
    for moment in journal.replay(volume):
        if moment < formatted:
            continue
        with Simulation(seed=1000 * seed + moment) as simulation:
            damaged = volume.after_power_loss(simulation.random("loss"))
            survivor = simulation.machine("node", volume=damaged)

            async def check(world: World, moment: int = moment) -> None:
                async with SingleNodeQuorum(world).running() as quorum:
                    due = [number for at, number in acked if at <= moment]
                    found = settings_in(quorum.image)
                    assert found[: len(due)] == due, f"power lost before operation {moment}"
                    assert found == list(range(len(found)))
                    await quorum.write(setting(len(found)))
                    elections = [batch.epoch for batch in batches_in(quorum.storage, _tail(quorum)) if batch.is_control]
                    assert elections == sorted(set(elections)), "an epoch was led twice"

            async def reboot(machine=survivor, check=check) -> None:  # type: ignore[no-untyped-def]
                await machine.boot(check)

            simulation.run(reboot(), max_virtual_s=100)


def _tail(quorum: SingleNodeQuorum) -> int:
    latest = quorum.storage.latest_snapshot
    return 0 if latest is None else latest.end_offset


def _formatted_after(journal: Journal) -> int:
    """The first operation after formatting: before it there is no cluster to keep."""
    for number, operation in enumerate(journal.operations):
        if operation.kind == "sync_dir" and operation.path == PARTITION:
            return number + 1
    raise AssertionError(f"{HOME} was never formatted")
