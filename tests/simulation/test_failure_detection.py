"""How long a cluster of whole nodes takes to notice what became of a broker: killed, paused, cut off, without power."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from strandline.metadata.values import BrokerInfo
from strandline.node.config import Config
from strandline.node.node import Node
from strandline.node.storage import FormatPlan, format_storage
from strandline.runtime.world import World
from strandline.simulation.disk import SimDisk
from strandline.simulation.nodes import CLUSTER_ID, PORT
from strandline.simulation.world import Machine, Simulation

SESSION_S = 9.0
QUORUM = ",".join(f"{node_id}@node{node_id}:{PORT + 1}" for node_id in (1, 2, 3))


class Town:
    """Three nodes that are brokers and controllers, or three of each."""

    def __init__(self, simulation: Simulation, *, apart: bool, settings: Mapping[str, str]) -> None:
        self.simulation = simulation
        self.nodes: dict[int, Node] = {}
        self.machines: dict[int, Machine] = {}
        self.configs: dict[int, Config] = {}
        self.stops: dict[int, asyncio.Event] = {}
        self.broker_ids = (4, 5, 6) if apart else (1, 2, 3)
        for node_id in (1, 2, 3, *self.broker_ids):
            if node_id not in self.machines:
                self._build(node_id, settings)

    def _build(self, node_id: int, settings: Mapping[str, str]) -> None:
        name = f"node{node_id}"
        roles = ["broker"] * (node_id in self.broker_ids) + ["controller"] * (node_id <= 3)
        ports = {"broker": f"PLAINTEXT://{name}:{PORT}", "controller": f"CONTROLLER://{name}:{PORT + 1}"}
        config = self.configs[node_id] = Config.of(
            {
                "process.roles": ",".join(roles),
                "node.id": str(node_id),
                "listeners": ",".join(ports[role] for role in roles),
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": QUORUM,
                "log.dirs": "/data",
                **settings,
            },
            hostname=name,
            where=f"{name}.properties",
        )
        machine = self.machines[node_id] = self.simulation.machine(name)
        random = self.simulation.random(name)
        format_storage(
            config, CLUSTER_ID, FormatPlan(), disk=SimDisk(machine.volume), random=random, wall_ms=1_800_000_000_000
        )

    def boot(self, node_id: int) -> None:
        stop = self.stops[node_id] = asyncio.Event()

        async def program(world: World) -> None:
            node = self.nodes[node_id] = Node(self.configs[node_id], world)
            try:
                await node.run(stop)
            finally:
                world.close()

        self.machines[node_id].boot(program)

    async def up(self) -> None:
        for node_id in self.machines:
            self.boot(node_id)
        await self.until(lambda: all(self.is_active(broker_id) for broker_id in self.broker_ids))
        # Everybody has been heard by whoever leads.
        await asyncio.sleep(3)

    def alive(self) -> list[Node]:
        processes = {node_id: machine.process for node_id, machine in self.machines.items()}
        return [
            node
            for node_id, node in self.nodes.items()
            if (process := processes[node_id]) is not None and process.alive and not process.paused
        ]

    def known(self, broker_id: int) -> list[BrokerInfo | None]:
        """What the living have of it."""
        return [node.image.committed.broker(broker_id) for node in self.alive() if node.node_id != broker_id]

    def is_active(self, broker_id: int) -> bool:
        known = self.known(broker_id)
        return bool(known) and all(info is not None and info.active for info in known)

    def is_fenced(self, broker_id: int) -> bool:
        return all(info is not None and info.fenced for info in self.known(broker_id))

    def leader(self) -> int:
        (leading,) = [node.node_id for node in self.alive() if node.quorum is not None and node.quorum.is_leader]
        return leading

    def follower(self) -> int:
        """A broker that is not the active controller too."""
        return next(broker_id for broker_id in self.broker_ids if broker_id != self.leader())

    async def until(self, fact: Callable[[], bool], limit_s: float = 60) -> float:
        """How long it took."""
        loop = self.simulation.loop
        began_us = loop.now_us
        while not fact():
            assert loop.now_us - began_us < limit_s * 1_000_000, "it did not come to that"
            await asyncio.sleep(0.005)
        return (loop.now_us - began_us) / 1_000_000

    async def down(self) -> None:
        for machine in self.machines.values():
            if machine.process is not None and machine.process.alive:
                machine.kill()


def play(
    story: Callable[[Town], Awaitable[None]],
    seed: int,
    *,
    apart: bool = False,
    settings: Mapping[str, str] | None = None,
) -> None:
    with Simulation(seed=seed) as simulation:
        town = Town(simulation, apart=apart, settings=settings or {})

        async def scenario() -> None:
            await town.up()
            await story(town)
            await town.down()

        simulation.run(scenario(), max_virtual_s=300)


@pytest.mark.parametrize("apart", [False, True], ids=["combined", "apart"])
@pytest.mark.parametrize("seed", range(3))
def test_a_killed_broker_is_fenced_within_a_second(seed: int, apart: bool) -> None:
    async def story(town: Town) -> None:
        victim = town.follower()
        town.machines[victim].kill()
        assert await town.until(lambda: town.is_fenced(victim)) < 1.0

    play(story, seed, apart=apart)


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_active_controller_is_replaced_and_its_broker_fenced_within_a_second(seed: int) -> None:
    async def story(town: Town) -> None:
        victim = town.leader()
        town.machines[victim].kill()
        assert await town.until(lambda: town.is_fenced(victim)) < 1.0

    play(story, seed)


def test_two_brokers_and_the_active_controller_between_them_are_noticed_one_after_the_other() -> None:
    async def story(town: Town) -> None:
        leader, victim = town.leader(), town.broker_ids[0]
        town.machines[victim].kill()
        town.machines[leader].kill()
        assert await town.until(lambda: town.is_fenced(victim)) < 1.0

    play(story, 1, apart=True)


@pytest.mark.parametrize("hurt", ["paused", "cut off", "without power"])
def test_silence_is_no_evidence_and_the_session_decides(hurt: str) -> None:
    async def story(town: Town) -> None:
        victim = town.follower()
        name = f"node{victim}"
        others = tuple(f"node{each}" for each in town.machines if each != victim)
        if hurt == "paused":
            town.machines[victim].pause()
        elif hurt == "cut off":
            town.simulation.fabric.partition((name,), others)
        else:
            town.machines[victim].lose_power()
        left = [node for node in town.alive() if node.node_id != victim]

        def fenced() -> bool:
            known = [node.image.committed.broker(victim) for node in left]
            return all(info is not None and info.fenced for info in known)

        # The last heartbeat was up to two seconds ago.
        assert SESSION_S - 2.5 < await town.until(fenced) < SESSION_S + 1.5

    play(story, 5, apart=True)


@pytest.mark.parametrize("seed", range(3))
def test_a_silent_active_controller_has_no_longer_than_a_session_as_a_broker_either(seed: int) -> None:
    """Its successor knows when it was last heard, and counts from there."""

    async def story(town: Town) -> None:
        victim = town.leader()
        town.machines[victim].pause()
        assert SESSION_S - 0.6 < await town.until(lambda: town.is_fenced(victim)) < SESSION_S + 0.5

    play(story, seed)


def test_a_paused_broker_that_goes_on_in_time_has_never_been_away() -> None:
    async def story(town: Town) -> None:
        victim = town.follower()
        epoch = [info.epoch for info in town.known(victim) if info is not None]
        town.machines[victim].pause()
        await asyncio.sleep(5)
        town.machines[victim].resume()
        await asyncio.sleep(10)
        assert town.is_active(victim)
        assert [info.epoch for info in town.known(victim) if info is not None] == epoch

    play(story, 6, apart=True)


@pytest.mark.parametrize("after_s", [0.0, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("who", ["a broker", "the active controller"])
def test_a_broker_that_is_restarted_does_not_wait_for_its_own_ghost(who: str, after_s: float) -> None:
    async def story(town: Town) -> None:
        victim = town.leader() if who == "the active controller" else town.follower()
        before = max(info.epoch for info in town.known(victim) if info is not None)
        town.machines[victim].kill()
        await asyncio.sleep(after_s)
        town.boot(victim)

        def back() -> bool:
            known = town.known(victim)
            return all(info is not None and info.active and info.epoch > before for info in known)

        assert await town.until(back) < 4.0

    play(story, 7)


def test_an_active_controller_that_was_paused_fences_nobody_for_what_it_slept_through() -> None:
    async def story(town: Town) -> None:
        leader = town.leader()
        town.machines[leader].pause()
        await asyncio.sleep(30)
        town.machines[leader].resume()
        await asyncio.sleep(15)
        assert all(town.is_active(broker_id) for broker_id in town.broker_ids)
        assert town.leader() != leader

    play(story, 10, apart=True)


def test_without_the_detection_a_killed_broker_is_missed_for_a_session() -> None:
    async def story(town: Town) -> None:
        victim = town.follower()
        town.machines[victim].kill()
        assert await town.until(lambda: town.is_fenced(victim)) > SESSION_S - 2.5

    play(story, 8, apart=True, settings={"strandline.broker.death.detection.enable": "false"})


def test_a_broker_that_leaves_in_good_order_is_not_taken_for_dead(caplog: pytest.LogCaptureFixture) -> None:
    async def story(town: Town) -> None:
        victim = town.follower()
        town.stops[victim].set()
        await town.until(lambda: town.is_fenced(victim))
        await asyncio.sleep(2)
        assert "is dead" not in caplog.text

    play(story, 9, apart=True)
