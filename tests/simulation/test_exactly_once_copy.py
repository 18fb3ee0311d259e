"""An exactly-once copy of a topic by our own client, on a cluster of three unmodified nodes that are killed in turn."""

from __future__ import annotations

import asyncio

import pytest

from strandline.client.admin.committed_offsets import CommittedOffset
from strandline.client.client import Client
from strandline.client.settings import FetcherSettings, GroupSettings, ProducerSettings
from strandline.model.errors import KafkaError
from strandline.model.ids import TopicPartition
from strandline.runtime.world import World
from strandline.simulation.cluster.chronicle import Chronicle
from strandline.simulation.cluster.cluster import Cluster
from strandline.simulation.cluster.plan import Layout, Options, draw_plan
from strandline.simulation.nodes import PORT
from strandline.simulation.world import Simulation

COUNT = 300
BOOTSTRAP = ",".join(f"node{number}:{PORT}" for number in (1, 2, 3))


class Copier:
    """Copies until every record is committed; what fails is repeated from the committed offsets by a new producer."""

    def __init__(self, protocol: str) -> None:
        self.transactions = 0
        self.failures: list[KafkaError] = []
        self._group = GroupSettings(
            protocol=protocol, offset_reset="earliest", session_timeout_ms=6_000, auto_commit=False
        )

    async def program(self, world: World) -> None:
        async with Client(world, BOOTSTRAP) as client:
            is_complete = False
            while not is_complete:
                try:
                    await self._copy(client)
                    is_complete = True
                except KafkaError as error:
                    self.failures.append(error)

    async def _committed(self, client: Client) -> int:
        offsets = await client.groups.offsets("copier", require_stable=True)
        return sum(each.offset for each in offsets.values())

    async def _copy(self, client: Client) -> None:
        settings = ProducerSettings(delivery_timeout_ms=5_000, batch_bytes=200)
        fetching = FetcherSettings(read_committed=True, partition_max_bytes=300)
        async with (
            client.transactional_producer("copier", settings) as producer,
            client.consumer("copier", ["t"], self._group, fetching) as consumer,
        ):
            while True:
                batch = await consumer.poll(1_000)
                if not batch:
                    if await self._committed(client) >= COUNT:
                        return
                    continue
                async with producer.transaction():
                    for fetched in batch:
                        for record in fetched.records():
                            await producer.send("copy", record.value, partition=fetched.partition.partition)
                    await asyncio.sleep(0.1)
                    ends = {each.partition: CommittedOffset(each.next_offset) for each in batch}
                    await producer.send_offsets(ends, "copier", consumer.membership)
                self.transactions += 1


async def filled(world: World) -> None:
    async with Client(world, BOOTSTRAP) as client:
        for topic in ("t", "copy"):
            await client.topics.create(topic, partitions=2, replication_factor=3)
        async with client.producer(ProducerSettings(batch_bytes=200)) as producer:
            for number in range(COUNT):
                await producer.send("t", b"%d" % number, partition=number % 2)


async def copied(world: World) -> list[list[int]]:
    async with Client(world, BOOTSTRAP) as client, client.fetcher(FetcherSettings(read_committed=True)) as fetcher:
        found: dict[int, list[int]] = {0: [], 1: []}
        for index in found:
            fetcher.assign(TopicPartition("copy", index), 0)
        for _ in range(20):
            for fetched in await fetcher.poll(600):
                found[fetched.partition.partition] += [int(record.value or b"") for record in fetched.records()]
        return [found[0], found[1]]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("seed", range(1, 5))
def test_every_record_is_copied_once_and_in_order_although_brokers_are_killed(seed: int, protocol: str) -> None:
    plan = draw_plan(seed, Options(layout=Layout((1, 2, 3), (1, 2, 3)), faults=[]))
    copier = Copier(protocol)

    async def scenario(cluster: Cluster, simulation: Simulation) -> list[list[int]]:
        cluster.start()
        await asyncio.sleep(5)
        machine = simulation.machine("client")
        await machine.boot(filled)
        copying = machine.boot(copier.program)
        await asyncio.sleep(2)
        for number in (1, 2, 3, 1):
            member = cluster.member(number)
            member.kill()
            await asyncio.sleep(2)
            member.boot()
            await asyncio.sleep(4)
        await copying
        return await machine.boot(copied)

    with Simulation(plan.seed, plan.weather) as simulation:
        cluster = Cluster(simulation, plan, Chronicle(simulation.loop))
        found = simulation.run(scenario(cluster, simulation), max_virtual_s=900)
    assert found == [list(range(0, COUNT, 2)), list(range(1, COUNT, 2))], copier.failures
    assert copier.transactions > 10
