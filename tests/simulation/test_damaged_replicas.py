"""A damaged log on one of three nodes: no acknowledged record is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from strandline.client.admin.elections import Election
from strandline.client.client import Client
from strandline.client.settings import ProducerSettings
from strandline.metadata.values import PartitionInfo
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode
from strandline.model.ids import TopicPartition
from strandline.node.config import Config
from strandline.node.node import Node
from strandline.node.storage import FormatPlan, format_storage
from strandline.records.batch import batches
from strandline.runtime.world import World
from strandline.simulation.disk import SimDisk
from strandline.simulation.nodes import CLUSTER_ID, PORT
from strandline.simulation.world import Machine, Simulation

NODES = (1, 2, 3)
TOPIC = "orders"
HOME = f"/data/{TOPIC}-0"
VALUES = [f"order {number}".encode() for number in range(60)]
CONFIGS = {
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.index.interval.bytes": "200",
    "log.roll.ms": "1000",
    "auto.leader.rebalance.enable": "false",
    "controller.quorum.voters": ",".join(f"{node_id}@node{node_id}:{PORT + 1}" for node_id in NODES),
}


class ThreeNodes:
    """Three combined nodes with one topic of three replicas."""

    def __init__(self, simulation: Simulation, configs: Mapping[str, str]) -> None:
        self.simulation = simulation
        self.nodes: dict[int, Node] = {}
        self.machines: dict[int, Machine] = {}
        self.configs: dict[int, Config] = {}
        for node_id in NODES:
            name = f"node{node_id}"
            config = self.configs[node_id] = Config.of(
                {
                    "process.roles": "broker,controller",
                    "node.id": str(node_id),
                    "listeners": f"PLAINTEXT://{name}:{PORT},CONTROLLER://{name}:{PORT + 1}",
                    "controller.listener.names": "CONTROLLER",
                    "log.dirs": "/data",
                    **CONFIGS,
                    **configs,
                },
                hostname=name,
                where=f"{name}.properties",
            )
            machine = self.machines[node_id] = simulation.machine(name)
            disk, random = SimDisk(machine.volume), simulation.random(name)
            format_storage(config, CLUSTER_ID, FormatPlan(), disk=disk, random=random, wall_ms=1_800_000_000_000)

    def boot(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.machines[node_id].boot(self._program(node_id))

    def _program(self, node_id: int) -> Callable[[World], Awaitable[None]]:
        async def program(world: World) -> None:
            node = self.nodes[node_id] = Node(self.configs[node_id], world)
            try:
                await node.run(asyncio.Event())
            finally:
                world.close()

        return program

    def lose_power(self) -> int:
        """All nodes at once. Returns the last committed metadata offset."""
        view = self.view()
        for machine in self.machines.values():
            machine.lose_power()
        return 0 if view is None else view.offset - 1

    def view(self) -> View | None:
        """The committed view of the node with the most recent metadata."""
        views = [self.nodes[each].image.committed for each, machine in self.machines.items() if _is_running(machine)]
        return max(views, key=lambda view: view.offset, default=None)

    def info(self) -> PartitionInfo | None:
        view = self.view()
        topic = None if view is None else view.topic(TOPIC)
        return None if view is None or topic is None else view.partition(topic.id, 0)

    def registered_after(self, offset: int) -> bool:
        """Whether all brokers are active with registrations after this offset."""
        view = self.view()
        brokers = [] if view is None else [view.broker(each) for each in NODES]
        return bool(brokers) and all(
            broker is not None and broker.active and broker.epoch > offset for broker in brokers
        )

    async def until(self, condition: Callable[[PartitionInfo], bool], limit_s: float = 60) -> PartitionInfo:
        for _ in range(int(limit_s / 0.01)):
            info = self.info()
            if info is not None and condition(info):
                return info
            await asyncio.sleep(0.01)
        raise AssertionError(f"timed out: {self.info()}")

    async def as_client(self, work: Callable[[Client], Awaitable[None]]) -> None:
        async def program(world: World) -> None:
            async with Client(world, ",".join(f"node{each}:{PORT}" for each in NODES)) as client:
                await work(client)

        machine = self.simulation.machine(f"client {self.simulation.loop.now_us}")
        await machine.boot(program)

    async def write_records(self) -> None:
        async def work(client: Client) -> None:
            await client.topics.create(TOPIC, partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
            async with client.producer(ProducerSettings(linger_ms=0)) as producer:
                for value in VALUES:
                    if value == VALUES[50]:
                        await asyncio.sleep(1.5)  # the earlier records are in a segment of their own
                    await (await producer.send(TOPIC, value, partition=0))

        await self.as_client(work)

    async def check_records(self) -> None:
        async def work(client: Client) -> None:
            values: list[bytes] = []
            async with client.fetcher() as fetcher:
                fetcher.assign(TopicPartition(TOPIC, 0), 0)
                while len(values) < len(VALUES):
                    for fetched in await fetcher.poll(5_000):
                        values.extend(record.value or b"" for record in fetched.records())
            assert values == VALUES

        async with asyncio.timeout(60):
            await self.as_client(work)

    async def elect_preferred(self, node_id: int) -> None:
        """Elects the preferred leader, which must be this node."""

        async def work(client: Client) -> None:
            errors = await client.elect_leaders(Election.PREFERRED, [TopicPartition(TOPIC, 0)])
            assert [error.code for error in errors.values() if error is not None] in (
                [],
                [ErrorCode.ELECTION_NOT_NEEDED],
            )

        await self.as_client(work)
        await self.until(lambda info: info.leader == node_id)

    def content(self, node_id: int) -> list[tuple[int, bytes]]:
        """(Base offset, bytes covered by the checksum) of each batch in the node's segments."""
        disk, found = SimDisk(self.machines[node_id].volume), []
        for name in sorted(disk.list(HOME)):
            if name.endswith(".log"):
                data = disk.read(f"{HOME}/{name}")
                found += [(header.base_offset, data[at + 21 : at + header.size_bytes]) for at, header in batches(data)]
        return found

    def damage(self, node_id: int, part: float, *, segment: int = 0) -> None:
        """Flips one byte at this fraction of a segment, while the machine is off."""
        disk = SimDisk(self.machines[node_id].volume)
        name = sorted(name for name in disk.list(HOME) if name.endswith(".log"))[segment]
        file = disk.open(f"{HOME}/{name}")
        position = int(file.size() * part)
        file.write_at(position, bytes([file.read_at(position, 1)[0] ^ 0xFF]))
        file.sync()
        file.close()


def _is_running(machine: Machine) -> bool:
    return machine.process is not None and machine.process.alive


def run(scenario: Callable[[ThreeNodes], Awaitable[None]], seed: int, configs: Mapping[str, str] | None = None) -> None:
    with Simulation(seed=seed) as simulation:
        cluster = ThreeNodes(simulation, configs or {})

        async def whole_run() -> None:
            cluster.boot(*NODES)
            await cluster.write_records()
            await cluster.until(lambda info: len(info.isr) == 3)
            await asyncio.sleep(2)
            await scenario(cluster)
            for machine in cluster.machines.values():
                machine.kill()

        simulation.run(whole_run(), max_virtual_s=600)


@pytest.mark.parametrize("segment", [0, -1], ids=["found by a reader", "found by recovery"])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.95])
def test_a_damaged_log_of_a_restarted_leader_is_repaired_from_the_other_replicas(part: float, segment: int) -> None:
    async def scenario(cluster: ThreeNodes) -> None:
        leader = (await cluster.until(lambda info: info.leader >= 0)).leader
        healthy = next(each for each in NODES if each != leader)
        whole = cluster.content(healthy)
        cluster.machines[leader].kill()
        cluster.damage(leader, part, segment=segment)
        await cluster.until(lambda info: info.leader not in (leader, -1))
        cluster.boot(leader)
        await cluster.until(lambda info: leader in info.isr)
        if segment == 0:
            assert cluster.content(leader) != whole, "the damage is found only when the segment is read"
        await cluster.check_records()
        await cluster.elect_preferred((await cluster.until(lambda info: True)).replicas[0])
        await cluster.check_records()
        await cluster.until(lambda info: len(info.isr) == 3)
        assert [cluster.content(each) for each in NODES] == [whole] * 3

    run(scenario, 3)


UNCLEAN_ELECTIONS = "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec"
DURABLE = {"log.flush.interval.messages": "1"}


@pytest.mark.parametrize("seed", range(4))
def test_after_a_power_loss_of_all_nodes_a_replica_with_all_records_is_elected(seed: int) -> None:
    async def scenario(cluster: ThreeNodes) -> None:
        before = cluster.lose_power()
        cluster.boot(*NODES)
        await cluster.until(lambda info: cluster.registered_after(before) and len(info.isr) == 3)
        for node in cluster.nodes.values():
            assert node.metrics.snapshot(0)[UNCLEAN_ELECTIONS] == 0
        await cluster.check_records()

    run(scenario, seed, DURABLE)


@pytest.mark.parametrize("segment", [0, -1], ids=["found by a reader", "found by recovery"])
@pytest.mark.parametrize("victim", NODES)
@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_no_record_is_lost_when_all_nodes_lose_power_and_one_log_is_damaged(
    victim: int, order: tuple[int, ...], segment: int
) -> None:
    async def scenario(cluster: ThreeNodes) -> None:
        before = cluster.lose_power()
        cluster.damage(victim, 0.3, segment=segment)
        for node_id in order:
            cluster.boot(node_id)
            await asyncio.sleep(0.3)
        await cluster.until(lambda info: cluster.registered_after(before) and len(info.isr) == 3)
        await cluster.check_records()
        await cluster.elect_preferred((await cluster.until(lambda info: True)).replicas[0])
        await cluster.check_records()
        if segment == -1:
            assert cluster.content(1) == cluster.content(2) == cluster.content(3)

    run(scenario, 7, DURABLE)
