"""How long a cluster takes to fence a broker that was killed, paused, partitioned, or lost power."""

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


class SimulatedCluster:
    """Three combined nodes, or three controllers and three brokers."""

    def __init__(self, simulation: Simulation, *, separate: bool, configs: Mapping[str, str]) -> None:
        self.simulation = simulation
        self.nodes: dict[int, Node] = {}
        self.machines: dict[int, Machine] = {}
        self.configs: dict[int, Config] = {}
        self.stops: dict[int, asyncio.Event] = {}
        self.broker_ids = (4, 5, 6) if separate else (1, 2, 3)
        for node_id in (1, 2, 3, *self.broker_ids):
            if node_id not in self.machines:
                self._build(node_id, configs)

    def _build(self, node_id: int, configs: Mapping[str, str]) -> None:
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
                **configs,
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

    async def start(self) -> None:
        for node_id in self.machines:
            self.boot(node_id)
        await self.until(lambda: all(self.is_active(broker_id) for broker_id in self.broker_ids))
        # By then the active controller has received heartbeats from all brokers.
        await asyncio.sleep(3)

    def running_nodes(self) -> list[Node]:
        processes = {node_id: machine.process for node_id, machine in self.machines.items()}
        return [
            node
            for node_id, node in self.nodes.items()
            if (process := processes[node_id]) is not None and process.alive and not process.paused
        ]

    def registrations(self, broker_id: int) -> list[BrokerInfo | None]:
        """The broker's registration in the images of the running nodes."""
        return [node.image.committed.broker(broker_id) for node in self.running_nodes() if node.node_id != broker_id]

    def is_active(self, broker_id: int) -> bool:
        known = self.registrations(broker_id)
        return bool(known) and all(info is not None and info.active for info in known)

    def is_fenced(self, broker_id: int) -> bool:
        return all(info is not None and info.fenced for info in self.registrations(broker_id))

    def leader(self) -> int:
        (leading,) = [
            node.node_id for node in self.running_nodes() if node.quorum is not None and node.quorum.is_leader
        ]
        return leading

    def follower(self) -> int:
        """A broker that is not the active controller."""
        return next(broker_id for broker_id in self.broker_ids if broker_id != self.leader())

    async def until(self, condition: Callable[[], bool], limit_s: float = 60) -> float:
        """Waits for the condition. Returns the seconds it took."""
        loop = self.simulation.loop
        began_us = loop.now_us
        while not condition():
            assert loop.now_us - began_us < limit_s * 1_000_000, "timed out"
            await asyncio.sleep(0.005)
        return (loop.now_us - began_us) / 1_000_000

    async def kill_all(self) -> None:
        for machine in self.machines.values():
            if machine.process is not None and machine.process.alive:
                machine.kill()


def run(
    scenario: Callable[[SimulatedCluster], Awaitable[None]],
    seed: int,
    *,
    separate: bool = False,
    configs: Mapping[str, str] | None = None,
) -> None:
    with Simulation(seed=seed) as simulation:
        cluster = SimulatedCluster(simulation, separate=separate, configs=configs or {})

        async def whole_run() -> None:
            await cluster.start()
            await scenario(cluster)
            await cluster.kill_all()

        simulation.run(whole_run(), max_virtual_s=300)


@pytest.mark.parametrize("separate", [False, True], ids=["combined", "separate"])
@pytest.mark.parametrize("seed", range(3))
def test_a_killed_broker_is_fenced_within_a_second(seed: int, separate: bool) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        victim = cluster.follower()
        cluster.machines[victim].kill()
        assert await cluster.until(lambda: cluster.is_fenced(victim)) < 1.0

    run(scenario, seed, separate=separate)


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_active_controller_is_replaced_and_its_broker_fenced_within_a_second(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        victim = cluster.leader()
        cluster.machines[victim].kill()
        assert await cluster.until(lambda: cluster.is_fenced(victim)) < 1.0

    run(scenario, seed)


def test_a_broker_killed_together_with_the_active_controller_is_fenced_within_a_second() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        leader, victim = cluster.leader(), cluster.broker_ids[0]
        cluster.machines[victim].kill()
        cluster.machines[leader].kill()
        assert await cluster.until(lambda: cluster.is_fenced(victim)) < 1.0

    run(scenario, 1, separate=True)


@pytest.mark.parametrize("fault", ["paused", "partitioned", "without power"])
def test_an_unreachable_broker_is_fenced_when_its_session_expires(fault: str) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        victim = cluster.follower()
        name = f"node{victim}"
        others = tuple(f"node{each}" for each in cluster.machines if each != victim)
        if fault == "paused":
            cluster.machines[victim].pause()
        elif fault == "partitioned":
            cluster.simulation.fabric.partition((name,), others)
        else:
            cluster.machines[victim].lose_power()
        left = [node for node in cluster.running_nodes() if node.node_id != victim]

        def fenced() -> bool:
            known = [node.image.committed.broker(victim) for node in left]
            return all(info is not None and info.fenced for info in known)

        # The last heartbeat was up to two seconds ago.
        assert SESSION_S - 2.5 < await cluster.until(fenced) < SESSION_S + 1.5

    run(scenario, 5, separate=True)


@pytest.mark.parametrize("seed", range(3))
def test_the_broker_of_an_unreachable_active_controller_is_fenced_when_its_session_expires(seed: int) -> None:
    """The next active controller counts the session from the last message of its predecessor."""

    async def scenario(cluster: SimulatedCluster) -> None:
        victim = cluster.leader()
        cluster.machines[victim].pause()
        assert SESSION_S - 0.6 < await cluster.until(lambda: cluster.is_fenced(victim)) < SESSION_S + 0.5

    run(scenario, seed)


def test_a_broker_that_resumes_within_its_session_keeps_its_registration() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        victim = cluster.follower()
        epoch = [info.epoch for info in cluster.registrations(victim) if info is not None]
        cluster.machines[victim].pause()
        await asyncio.sleep(5)
        cluster.machines[victim].resume()
        await asyncio.sleep(10)
        assert cluster.is_active(victim)
        assert [info.epoch for info in cluster.registrations(victim) if info is not None] == epoch

    run(scenario, 6, separate=True)


@pytest.mark.parametrize("after_s", [0.0, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("target", ["a broker", "the active controller"])
def test_a_restarted_broker_does_not_wait_for_the_session_of_its_former_process(target: str, after_s: float) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        victim = cluster.leader() if target == "the active controller" else cluster.follower()
        before = max(info.epoch for info in cluster.registrations(victim) if info is not None)
        cluster.machines[victim].kill()
        await asyncio.sleep(after_s)
        cluster.boot(victim)

        def back() -> bool:
            known = cluster.registrations(victim)
            return all(info is not None and info.active and info.epoch > before for info in known)

        assert await cluster.until(back) < 4.0

    run(scenario, 7)


def test_an_active_controller_that_was_paused_fences_no_broker_when_it_resumes() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        leader = cluster.leader()
        cluster.machines[leader].pause()
        await asyncio.sleep(30)
        cluster.machines[leader].resume()
        await asyncio.sleep(15)
        assert all(cluster.is_active(broker_id) for broker_id in cluster.broker_ids)
        assert cluster.leader() != leader

    run(scenario, 10, separate=True)


def test_without_failure_detection_a_killed_broker_is_fenced_when_its_session_expires() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        victim = cluster.follower()
        cluster.machines[victim].kill()
        assert await cluster.until(lambda: cluster.is_fenced(victim)) > SESSION_S - 2.5

    run(scenario, 8, separate=True, configs={"strandline.broker.death.detection.enable": "false"})


def test_a_controlled_shutdown_is_not_reported_as_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        victim = cluster.follower()
        cluster.stops[victim].set()
        await cluster.until(lambda: cluster.is_fenced(victim))
        await asyncio.sleep(2)
        assert "it has failed" not in caplog.text

    run(scenario, 9, separate=True)
