"""Quorum tests beyond the cluster simulator: timing, number of syncs, truncation during disk work, upgrades.

Elections, divergence, snapshots and changes of voters under faults are covered by test_cluster.py and test_planted.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from simulation.quorum_cluster import QuorumCluster
from simulation.quorum_node import CLUSTER, PARTITION, PORT, QuorumNode, append, voter
from strandline.model.ids import ZERO_UUID
from strandline.protocol.messages.cluster import UpdateFeaturesResponse
from strandline.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from strandline.raft.disk.storage import StorageSettings
from strandline.raft.machine.voters import VoterSet
from strandline.raft.shell.snapshot_generator import SnapshotSettings
from strandline.simulation.world import Simulation


def run(scenario: Callable[[QuorumCluster], Awaitable[None]], seed: int = 1, **options: Any) -> None:
    with Simulation(seed=seed) as simulation:
        cluster = QuorumCluster(simulation, **options)

        async def booted() -> None:
            cluster.boot()
            await scenario(cluster)
            cluster.check_running()

        simulation.run(booted(), max_virtual_s=2000)


def others(cluster: QuorumCluster, node: QuorumNode) -> list[QuorumNode]:
    return [each for each in cluster.nodes.values() if each is not node]


def test_a_leader_that_resigns_is_replaced_within_300_ms() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        loop = asyncio.get_running_loop()
        leader = await cluster.until_elected()
        await cluster.until_written(20)
        leader.stop.set()
        started = loop.time()
        while cluster.leader() in (leader, None):
            await asyncio.sleep(0.001)
        assert loop.time() - started < 0.3
        await cluster.until_settled()

    run(scenario)


LOST = range(1000, 1010)


async def until_observer_diverged(
    cluster: QuorumCluster, observer: QuorumNode, held: str, when_done: bool
) -> QuorumNode:
    """Until the observer has fetched records that only a failed leader had, and one of its disk jobs is held back.
    Returns that leader."""
    await cluster.until_written(60)
    await observer.quorum.write_snapshot()
    await cluster.until_written(60)
    await cluster.until_settled()
    cluster.is_writing = False
    leader = await cluster.until_elected()
    rest = [node for node in others(cluster, leader) if node is not observer]
    cluster.simulation.fabric.partition(
        (leader.machine.name, observer.machine.name), tuple(node.machine.name for node in rest)
    )
    observer.offload.hold(held, when_done=when_done)
    end_offset = observer.storage.log.log_end_offset
    for number in LOST:
        append(leader.quorum, leader.image, number)
    while observer.storage.log.log_end_offset < end_offset + len(LOST):
        await asyncio.sleep(0.001)
    leader.machine.lose_power()
    while not any(node.quorum.is_leader for node in rest):
        await asyncio.sleep(0.01)
    return leader


async def check_truncated(cluster: QuorumCluster, observer: QuorumNode) -> None:
    """None of the truncated records is left, and a restart after a power loss finds the others."""
    await cluster.until_settled()
    shown = observer.image.committed.configs(2, "r").values()
    assert not {str(number) for number in LOST} & set(shown)
    segments = [name for name in observer.machine.disk.list(PARTITION) if name.endswith(".log")]
    assert len(segments) == len(observer.storage.log.segments)
    observer.machine.lose_power()
    await cluster.until_settled()


@pytest.mark.parametrize("when_done", [False, True])
@pytest.mark.parametrize("held", ["flush", "finish"])
def test_a_log_is_truncated_while_it_is_being_synced_or_a_snapshot_is_being_written(held: str, when_done: bool) -> None:
    """`flush` is a job of the log, `finish` of the snapshot. Observers sync concurrently with their fetches; a voter
    receives a diverging epoch only after its log is synced."""

    async def scenario(cluster: QuorumCluster) -> None:
        observer = cluster.nodes[9]
        leader = await until_observer_diverged(cluster, observer, held, when_done)
        generation = observer.storage.log.generation
        snapshot = asyncio.create_task(observer.quorum.write_snapshot())
        cluster.simulation.fabric.heal()
        cluster.is_writing = True
        await cluster.until_written(10)
        async with asyncio.timeout(10):
            while observer.storage.log.generation == generation:
                await asyncio.sleep(0.001)
        assert observer.offload.is_holding
        observer.offload.release()
        taken = await snapshot
        assert taken is not None and observer.machine.disk.exists(f"{PARTITION}/{taken.file_name}")
        leader.boot()
        await check_truncated(cluster, observer)

    run(scenario, observers=(9,), policy=SnapshotSettings())


@pytest.mark.parametrize("when_done", [False, True])
def test_a_snapshot_is_written_while_the_log_is_being_truncated(when_done: bool) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        observer = cluster.nodes[9]
        leader = await until_observer_diverged(cluster, observer, "run", when_done)
        cluster.simulation.fabric.heal()
        async with asyncio.timeout(10):
            while not observer.offload.is_holding:
                await asyncio.sleep(0.001)
        assert await observer.quorum.write_snapshot() is not None
        assert observer.storage.log.truncating_to is not None
        observer.offload.release()
        leader.boot()
        await check_truncated(cluster, observer)

    run(scenario, observers=(9,), policy=SnapshotSettings())


def test_a_partitioned_broker_restarts_with_the_committed_metadata_on_its_disk() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        await cluster.until_written(30)
        await cluster.until_settled()
        broker = cluster.nodes[9]
        known = broker.image.committed.offset
        broker.machine.kill()
        cluster.simulation.fabric.partition(("node9",), ("node1", "node2", "node3"))
        broker.boot()
        while not broker.is_ready:
            await asyncio.sleep(0.001)
        await asyncio.sleep(5)
        assert broker.quorum.high_watermark.value == broker.image.committed.offset == known
        cluster.simulation.fabric.heal()
        await cluster.until_written(5)
        await cluster.until_settled()

    run(scenario, observers=(9,))


def test_a_thousand_concurrent_writes_need_few_syncs_on_every_voter() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_elected()
        await cluster.until_written(5)
        await cluster.until_settled()
        cluster.is_writing = False
        await asyncio.sleep(1)
        before = {node.number: node.machine.disk.syncs for node in cluster.nodes.values()}
        committed = leader.quorum.committed
        last = [append(leader.quorum, leader.image, number) for number in range(10_000, 11_000)][-1]
        await committed.reached(last + 1)
        await cluster.until_settled()
        for node in cluster.nodes.values():
            assert node.machine.disk.syncs - before[node.number] <= 8

    # With large limits: rolling segments and writing snapshots would need syncs of their own.
    run(scenario, storage=StorageSettings(), policy=SnapshotSettings())


def test_a_voter_is_added_only_when_the_controller_has_no_offset_reserved() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_elected()
        await cluster.until_written(5)
        cluster.dynamic = None  # nodes formatted from now on get no initial voters
        added = QuorumNode(cluster, 4)
        cluster.nodes[4] = added
        added.boot()
        await cluster.until_settled()
        reserved = leader.quorum.reserve()
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER,
            timeout_ms=10_000,
            voter_id=4,
            voter_directory_id=voter(4).directory_id,
            listeners=[Listener(name="CONTROLLER", host="node4", port=PORT)],
        )
        cluster.is_writing = False
        adding = asyncio.create_task(leader.quorum.handle(request, 1))
        await asyncio.sleep(0.5)
        assert not adding.done()
        assert leader.quorum.end_offset == reserved
        leader.quorum.release()
        response = await adding
        assert isinstance(response, AddRaftVoterResponse)
        assert (response.error_code, response.error_message) == (0, None)
        assert [each.id for each in leader.quorum._log.voters.voters] == [1, 2, 3, 4]
        cluster.is_writing = True
        await cluster.until_written(5)
        await cluster.until_settled()
        assert [each.id for each in added.quorum._log.voters.voters] == [1, 2, 3, 4]

    run(scenario, dynamic=True)


def test_an_upgrade_of_kraft_version_moves_static_voters_into_the_log() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_elected()
        await cluster.until_written(5)
        await asyncio.sleep(7)  # voters send UpdateRaftVoter with their endpoints every few seconds
        response = await leader.quorum.upgrade_kraft_version(1)
        assert isinstance(response, UpdateFeaturesResponse)
        assert (response.error_code, response.error_message) == (0, None)
        await cluster.until_settled()
        for node in cluster.nodes.values():
            assert node.quorum.kraft_version == 1
            assert node.quorum._log.voters == VoterSet((voter(1), voter(2), voter(3)))
            node.machine.kill()
        cluster.boot()
        await cluster.until_written(100)
        await cluster.until_settled()
        for node in cluster.nodes.values():
            assert node.storage.log.log_start_offset > 0
            snapshot = node.storage.read_latest_snapshot()
            assert snapshot is not None
            assert (snapshot.kraft_version, len(snapshot.voters or ())) == (1, 3)
            assert node.storage.read_state().voted_id == -1 or node.storage.read_state().voted_directory_id != ZERO_UUID

    run(scenario)
