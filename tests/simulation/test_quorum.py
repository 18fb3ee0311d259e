"""Quorums of several nodes on virtual time: elections, losses, divergence, snapshots, and faults at will."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from simulation.quorum_chaos import Chaos
from simulation.quorum_node import CLUSTER, PARTITION, PORT, Node, append, voter
from simulation.quorum_stage import Stage
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import ZERO_UUID
from strandline.protocol.messages.cluster import UpdateFeaturesResponse
from strandline.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from strandline.raft.disk.storage import StorageSettings
from strandline.raft.machine.voters import VoterSet
from strandline.raft.shell.snapshot_generator import SnapshotSettings
from strandline.simulation.network import Weather
from strandline.simulation.world import Simulation


def play(scene: Callable[[Stage], Awaitable[None]], seed: int = 1, **options: Any) -> None:
    with Simulation(seed=seed) as simulation:
        stage = Stage(simulation, **options)

        async def scenario() -> None:
            stage.boot()
            await scene(stage)
            stage.check_alive()

        simulation.run(scenario(), max_virtual_s=2000)


def others(stage: Stage, node: Node) -> list[Node]:
    return [each for each in stage.nodes.values() if each is not node]


@pytest.mark.parametrize("dynamic", [False, True])
def test_one_of_three_leads_and_everybody_has_what_it_writes(dynamic: bool) -> None:
    async def scene(stage: Stage) -> None:
        await stage.until_written(100)
        await stage.until_settled()
        assert len(stage.ledger.leaders) == 1
        assert {node.quorum.kraft_version for node in stage.nodes.values()} == {int(dynamic)}

    play(scene, dynamic=dynamic, observers=(9,))


def test_a_killed_leader_is_replaced_within_a_second() -> None:
    async def scene(stage: Stage) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(5):
            leader = await stage.until_led()
            await stage.until_written(5)
            leader.machine.kill()
            killed = loop.time()
            assert (await stage.until_led()) is not leader
            assert loop.time() - killed < 1
            leader.boot()
            await stage.until_settled()

    play(scene)


def test_a_leader_that_stops_in_good_order_is_replaced_at_once_and_nothing_is_lost() -> None:
    async def scene(stage: Stage) -> None:
        loop = asyncio.get_running_loop()
        leader = await stage.until_led()
        await stage.until_written(20)
        leader.stop.set()
        began = loop.time()
        while stage.leader() in (leader, None):
            await asyncio.sleep(0.001)
        assert loop.time() - began < 0.3
        await stage.until_settled()

    play(scene)


def test_a_silent_leader_is_replaced_and_finds_that_it_leads_no_more() -> None:
    async def scene(stage: Stage) -> None:
        leader = await stage.until_led()
        await stage.until_written(10)
        leader.machine.pause()
        rest = others(stage, leader)
        while not any(node.quorum.is_leader for node in rest):
            await asyncio.sleep(0.01)
        before = len(stage.ledger.acked)
        while len(stage.ledger.acked) < before + 10:
            await asyncio.sleep(0.01)
        leader.machine.resume()
        await stage.until_settled()
        assert not leader.quorum.is_leader

    play(scene)


def test_a_leader_without_a_majority_acknowledges_nothing_and_gives_up() -> None:
    async def scene(stage: Stage) -> None:
        leader = await stage.until_led()
        await stage.until_written(10)
        await stage.until_settled()
        rest = others(stage, leader)
        fabric = stage.simulation.fabric
        fabric.partition((leader.machine.name,), tuple(node.machine.name for node in rest))
        committed = leader.quorum.committed
        offset = append(leader.quorum, leader.image, 999)
        with pytest.raises(KafkaError) as refusal:
            await committed.reached(offset + 1)
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        assert leader.image.end_offset == offset, "what was not committed is not in the image"
        assert leader.storage.log.log_end_offset > offset, "the tail stays until the quorum decides"
        assert not leader.quorum.is_leader
        fabric.heal()
        await stage.until_settled()
        assert "999" not in leader.image.committed.configs(2, "r").values()

    play(scene)


@pytest.mark.parametrize("how", ["kill", "lose_power"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_all_go_down_at_once_and_come_back_with_all_that_was_acknowledged(how: str, dynamic: bool) -> None:
    async def scene(stage: Stage) -> None:
        for _ in range(4):
            await stage.until_written(15)
            for node in stage.nodes.values():
                getattr(node.machine, how)()
            stage.boot()
            await stage.until_settled()

    play(scene, dynamic=dynamic, observers=(9,))


def test_a_log_that_went_another_way_is_cut_and_becomes_the_leaders() -> None:
    async def scene(stage: Stage) -> None:
        leader = await stage.until_led()
        await stage.until_written(10)
        rest = others(stage, leader)
        stage.simulation.fabric.partition((leader.machine.name,), tuple(node.machine.name for node in rest))
        for number in range(1000, 1040):
            append(leader.quorum, leader.image, number)
        await asyncio.sleep(0.5)
        leader.machine.lose_power()
        await stage.until_written(20)
        stage.simulation.fabric.heal()
        leader.boot()
        await stage.until_settled()
        contents = [
            b"".join(bytes(data[at : at + header.size_bytes]) for data, at, header in node.storage.chunks_from(start))
            for start in [max(node.storage.log.log_start_offset for node in stage.nodes.values())]
            for node in stage.nodes.values()
        ]
        assert len(set(contents)) == 1

    play(scene)


LOST = range(1000, 1010)


async def until_observer_went_another_way(stage: Stage, observer: Node, held: str, when_done: bool) -> Node:
    """It has fetched what only a leader that is gone had, and some of its disk's work is held back. That leader."""
    await stage.until_written(60)
    await observer.quorum.write_snapshot()
    await stage.until_written(60)
    await stage.until_settled()
    stage.is_writing = False
    leader = await stage.until_led()
    rest = [node for node in others(stage, leader) if node is not observer]
    stage.simulation.fabric.partition(
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


async def check_cut(stage: Stage, observer: Node) -> None:
    """Nothing is left of what was cut off, and the next life finds the rest."""
    await stage.until_settled()
    shown = observer.image.committed.configs(2, "r").values()
    assert not {str(number) for number in LOST} & set(shown)
    segments = [name for name in observer.machine.disk.list(PARTITION) if name.endswith(".log")]
    assert len(segments) == len(observer.storage.log.segments)
    observer.machine.lose_power()
    await stage.until_settled()


@pytest.mark.parametrize("when_done", [False, True])
@pytest.mark.parametrize("held", ["flush", "finish"])
def test_a_log_is_cut_while_it_is_being_synced_or_a_snapshot_is_being_written(held: str, when_done: bool) -> None:
    """`flush` is the log's, `finish` the snapshot's. Observers sync beside their fetches; a voter is not told of a
    difference before what it has is synced."""

    async def scene(stage: Stage) -> None:
        observer = stage.nodes[9]
        leader = await until_observer_went_another_way(stage, observer, held, when_done)
        generation = observer.storage.log.generation
        snapshot = asyncio.create_task(observer.quorum.write_snapshot())
        stage.simulation.fabric.heal()
        stage.is_writing = True
        await stage.until_written(10)
        async with asyncio.timeout(10):
            while observer.storage.log.generation == generation:
                await asyncio.sleep(0.001)
        assert observer.offload.is_holding
        observer.offload.release()
        taken = await snapshot
        assert taken is not None and observer.machine.disk.exists(f"{PARTITION}/{taken.file_name}")
        leader.boot()
        await check_cut(stage, observer)

    play(scene, observers=(9,), policy=SnapshotSettings())


@pytest.mark.parametrize("when_done", [False, True])
def test_a_snapshot_is_written_while_the_log_is_being_cut(when_done: bool) -> None:
    async def scene(stage: Stage) -> None:
        observer = stage.nodes[9]
        leader = await until_observer_went_another_way(stage, observer, "run", when_done)
        stage.simulation.fabric.heal()
        async with asyncio.timeout(10):
            while not observer.offload.is_holding:
                await asyncio.sleep(0.001)
        assert await observer.quorum.write_snapshot() is not None
        assert observer.storage.log.truncating_to is not None
        observer.offload.release()
        leader.boot()
        await check_cut(stage, observer)

    play(scene, observers=(9,), policy=SnapshotSettings())


def test_whoever_is_too_far_behind_gets_a_snapshot() -> None:
    async def scene(stage: Stage) -> None:
        await stage.until_written(5)
        behind = [stage.nodes[9], next(node for node in stage.nodes.values() if not node.quorum.is_leader)]
        for node in behind:
            node.machine.kill()
        await stage.until_written(200)
        leader = await stage.until_led()
        assert leader.storage.log.log_start_offset > 50
        for node in behind:
            node.boot()
        await stage.until_settled()
        for node in behind:
            assert node.storage.log.log_start_offset > 50
            (snapshot,) = [node.storage.read_latest_snapshot()]
            assert snapshot is not None
            assert snapshot.voters == (stage.dynamic and leader.quorum._log.voters)

    play(scene, dynamic=True, observers=(9,))


def test_a_broker_reads_its_own_disk_first_and_shows_nothing_that_may_not_be_committed() -> None:
    async def scene(stage: Stage) -> None:
        await stage.until_written(30)
        await stage.until_settled()
        broker = stage.nodes[9]
        known = broker.image.committed.offset
        broker.machine.kill()
        stage.simulation.fabric.partition(("node9",), ("node1", "node2", "node3"))
        broker.boot()
        while not broker.is_ready:
            await asyncio.sleep(0.001)
        await asyncio.sleep(5)
        assert broker.quorum.high_watermark.value == broker.image.committed.offset == known
        stage.simulation.fabric.heal()
        await stage.until_written(5)
        await stage.until_settled()

    play(scene, observers=(9,))


def test_a_thousand_writes_at_once_cost_few_syncs_on_every_voter() -> None:
    async def scene(stage: Stage) -> None:
        leader = await stage.until_led()
        await stage.until_written(5)
        await stage.until_settled()
        stage.is_writing = False
        await asyncio.sleep(1)
        before = {node.number: node.machine.disk.syncs for node in stage.nodes.values()}
        committed = leader.quorum.committed
        last = [append(leader.quorum, leader.image, number) for number in range(10_000, 11_000)][-1]
        await committed.reached(last + 1)
        await stage.until_settled()
        for node in stage.nodes.values():
            assert node.machine.disk.syncs - before[node.number] <= 8

    # Nothing is cut into segments or snapshots meanwhile: those have syncs of their own.
    play(scene, storage=StorageSettings(), policy=SnapshotSettings())


def test_a_voter_is_added_only_when_the_controller_has_no_offset_reserved() -> None:
    async def scene(stage: Stage) -> None:
        leader = await stage.until_led()
        await stage.until_written(5)
        stage.dynamic = None  # whoever is formatted from now on knows of no voters
        added = Node(stage, 4)
        stage.nodes[4] = added
        added.boot()
        await stage.until_settled()
        reserved = leader.quorum.reserve()
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER,
            timeout_ms=10_000,
            voter_id=4,
            voter_directory_id=voter(4).directory_id,
            listeners=[Listener(name="CONTROLLER", host="node4", port=PORT)],
        )
        stage.is_writing = False
        asking = asyncio.create_task(leader.quorum.handle(request, 1))
        await asyncio.sleep(0.5)
        assert not asking.done()
        assert leader.quorum.end_offset == reserved
        leader.quorum.release()
        answer = await asking
        assert isinstance(answer, AddRaftVoterResponse)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert [each.id for each in leader.quorum._log.voters.voters] == [1, 2, 3, 4]
        stage.is_writing = True
        await stage.until_written(5)
        await stage.until_settled()
        assert [each.id for each in added.quorum._log.voters.voters] == [1, 2, 3, 4]

    play(scene, dynamic=True)


def test_a_change_of_voters_that_is_cut_off_has_never_been() -> None:
    async def scene(stage: Stage) -> None:
        leader = await stage.until_led()
        await stage.until_written(5)
        rest = others(stage, leader)
        stage.simulation.fabric.partition((leader.machine.name,), tuple(node.machine.name for node in rest))
        leaving = voter(rest[0].number)
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER, voter_id=leaving.id, voter_directory_id=leaving.directory_id
        )
        answer = await leader.quorum.handle(request, 0)
        assert isinstance(answer, RemoveRaftVoterResponse)
        assert answer.error_code != ErrorCode.NONE
        assert len(leader.quorum._log.voters) == 2, "it counts from its record on"
        await stage.until_written(5)
        stage.simulation.fabric.heal()
        await stage.until_settled()
        assert [len(node.quorum._log.voters) for node in stage.nodes.values()] == [3, 3, 3]

    play(scene, dynamic=True)


def test_configured_voters_move_into_the_log_and_stay_there() -> None:
    async def scene(stage: Stage) -> None:
        leader = await stage.until_led()
        await stage.until_written(5)
        await asyncio.sleep(7)  # voters tell their leader where they are every few seconds
        answer = await leader.quorum.upgrade_kraft_version(1)
        assert isinstance(answer, UpdateFeaturesResponse)
        assert (answer.error_code, answer.error_message) == (0, None)
        await stage.until_settled()
        for node in stage.nodes.values():
            assert node.quorum.kraft_version == 1
            assert node.quorum._log.voters == VoterSet((voter(1), voter(2), voter(3)))
            node.machine.kill()
        stage.boot()
        await stage.until_written(100)
        await stage.until_settled()
        for node in stage.nodes.values():
            assert node.storage.log.log_start_offset > 0
            snapshot = node.storage.read_latest_snapshot()
            assert snapshot is not None
            assert (snapshot.kraft_version, len(snapshot.voters or ())) == (1, 3)
            assert node.storage.read_state().voted_id == -1 or node.storage.read_state().voted_directory_id != ZERO_UUID

    play(scene)


def storm(seed: int, seconds: float) -> str:
    """A run with faults at will, then without: what was acknowledged is there, and everybody has the same."""
    random = Random(f"storm {seed}")
    weather = Weather(slow_chance=random.choice([0, 0.01]), most_delay_us=random.choice([200, 5000]))
    with Simulation(seed=seed, weather=weather) as simulation:
        voters = random.choice([(1, 2, 3), (1, 2, 3), (1, 2), (1, 2, 3, 4, 5)])
        stage = Stage(simulation, voters, observers=random.choice([(), (9,)]), dynamic=random.random() < 0.5)
        chaos = Chaos(stage, random)

        async def scenario() -> None:
            stage.boot()
            await chaos.run(seconds)
            chaos.heal()
            await stage.until_settled()
            await stage.until_written(5)
            await stage.until_settled()

        simulation.run(scenario(), max_virtual_s=2000)
        return simulation.trace.digest()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_nothing_acknowledged_is_lost_and_all_agree(seed: int) -> None:
    storm(seed, 15)


def test_a_storm_is_the_same_whenever_it_is_run_again() -> None:
    assert storm(7, 5) == storm(7, 5)
