"""A bit of a stopped leader's log is flipped: the log is repaired from the other replicas after the restart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.client.admin.elections import Election
from strandline.client.client import Client
from strandline.client.core.descriptions import TopicDescription
from strandline.client.settings import ProducerSettings
from strandline.model.ids import TopicPartition
from strandline.records.batch import batches
from strandline.runtime.world import system_world
from strandline.testing import Cluster

TOPIC = "orders"
PARTITION = TopicPartition(TOPIC, 0)
VALUES = [f"order {number} ".encode() * 20 for number in range(400)]
SETTINGS = {
    # Recovery after a crash reads only the last two seconds.
    "log.roll.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
}


async def write(client: Client) -> None:
    await client.topics.create(TOPIC, partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
    async with client.producer(ProducerSettings()) as producer:
        for values in (VALUES[:300], VALUES[300:]):
            for sent in [await producer.send(TOPIC, value, partition=0) for value in values]:
                await sent
            await asyncio.sleep(1.5)


async def read(client: Client) -> list[bytes]:
    found: list[bytes] = []
    async with client.fetcher() as fetcher:
        fetcher.assign(PARTITION, 0)
        while len(found) < len(VALUES):
            for fetched in await fetcher.poll(5_000):
                found.extend(record.value or b"" for record in fetched.records())
    return found


async def wait_until(client: Client, condition: Callable[[TopicDescription], bool]) -> TopicDescription:
    deadline = time.monotonic() + 90
    while not condition(described := await client.topics.describe(TOPIC)):
        assert time.monotonic() < deadline, described
        await asyncio.sleep(0.05)
    return described


def content(directory: str) -> list[tuple[int, bytes]]:
    """(base offset, bytes covered by the checksum) of each batch."""
    found = []
    for file in sorted(Path(directory, str(PARTITION)).glob("*.log")):
        data = file.read_bytes()
        found += [(header.base_offset, data[at + 21 : at + header.size_bytes]) for at, header in batches(data)]
    return found


def damage(directory: str) -> None:
    """Flips a bit of the first segment, which recovery does not read: a fetch finds the damage."""
    file = min(Path(directory, str(PARTITION)).glob("*.log"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x40
    file.write_bytes(data)


@pytest.mark.slow
def test_a_killed_leader_with_a_damaged_log_is_repaired_from_the_other_replicas(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        await write(client)
        leader = (await wait_until(client, lambda it: len(it.partitions[0].isr) == 3)).partitions[0].leader
        homes = {node.id: node.data for node in cluster.nodes}
        expected = content(homes[next(each for each in homes if each != leader)])
        cluster.kill(leader)
        damage(homes[leader])
        await wait_until(client, lambda it: it.partitions[0].leader not in (leader, -1))
        await asyncio.to_thread(cluster.start, leader)
        await wait_until(client, lambda it: leader in it.partitions[0].isr)
        assert await read(client) == VALUES
        await client.elect_leaders(Election.PREFERRED, [PARTITION])
        assert await read(client) == VALUES
        await wait_until(client, lambda it: len(it.partitions[0].isr) == 3)
        assert [content(home) for home in homes.values()] == [expected] * 3

    async def with_client(cluster: Cluster) -> None:
        async with asyncio.timeout(300), Client(system_world(threads=1), cluster.bootstrap) as client:
            await scenario(cluster, client)

    with Cluster(tmp_path, nodes=3, settings=SETTINGS) as cluster:
        asyncio.run(with_client(cluster))
