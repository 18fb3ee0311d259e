"""An unmodified node with our own client on virtual time: restarts, kills, network and disk faults, determinism."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from strandline.client.client import Client
from strandline.client.settings import ProducerSettings
from strandline.model.errors import KafkaError, NodeFault
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.cluster import UnregisterBrokerRequest, UnregisterBrokerResponse
from strandline.runtime.world import World
from strandline.simulation.disk import SimDisk
from strandline.simulation.network import Weather
from strandline.simulation.nodes import PORT, format_node, node_config, node_program
from strandline.simulation.world import Machine, Simulation

ORDERS = TopicPartition("orders", 0)


class SingleNode:
    """A formatted node on one machine, and clients on others."""

    def __init__(self, seed: int = 1, weather: Weather | None = None, overrides: dict[str, str] | None = None) -> None:
        self.simulation = Simulation(seed, weather)
        self.config = node_config("node1", overrides=overrides)
        self.machine: Machine = self.simulation.machine("node1")
        self.stop = asyncio.Event()
        format_node(self.config, SimDisk(self.machine.volume), self.simulation.random("format"))

    def boot(self) -> asyncio.Task[None]:
        self.stop = asyncio.Event()
        return self.machine.boot(node_program(self.config, self.stop))

    async def client(self, name: str, act: Callable[[Client], Awaitable[object]]) -> None:
        async def program(world: World) -> None:
            async with Client(world, f"node1:{PORT}") as client:
                await act(client)

        await self.simulation.machine(name).boot(program)

    def run(self, scenario: Callable[[SingleNode], Awaitable[None]], max_virtual_s: float = 600) -> None:
        with self.simulation:
            self.simulation.run(scenario(self), max_virtual_s=max_virtual_s)


async def produce(client: Client, count: int, start: int = 0) -> list[int]:
    async with client.producer(ProducerSettings(linger_ms=1)) as producer:
        deliveries = [
            await producer.send("orders", str(number).encode(), partition=0) for number in range(start, start + count)
        ]
        return [(await delivery).offset for delivery in deliveries]


async def consume(client: Client, count: int) -> list[bytes]:
    values: list[bytes] = []
    async with client.fetcher() as fetcher:
        fetcher.assign(ORDERS, 0)
        while len(values) < count:
            for fetched in await fetcher.poll(5_000):
                values.extend(record.value or b"" for record in fetched.records())
    return values


def numbers(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def test_a_client_creates_a_topic_writes_to_it_and_reads_it_back() -> None:
    async def scenario(single: SingleNode) -> None:
        async def act(client: Client) -> None:
            await client.topics.create("orders", partitions=1, replication_factor=1)
            assert await produce(client, 100) == list(range(100))
            assert await consume(client, 100) == numbers(100)

        node = single.boot()
        await single.client("client", act)
        single.stop.set()
        await node

    SingleNode().run(scenario)


def test_an_idle_node_runs_for_a_virtual_hour() -> None:
    async def scenario(single: SingleNode) -> None:
        node = single.boot()
        await asyncio.sleep(3600)
        assert not node.done()
        single.stop.set()
        await node

    SingleNode().run(scenario, max_virtual_s=4000)


def test_a_restarted_node_has_all_records() -> None:
    async def scenario(single: SingleNode) -> None:
        async def write(client: Client) -> None:
            await client.topics.create("orders", partitions=1, replication_factor=1)
            await produce(client, 50)

        async def read(client: Client) -> None:
            assert await consume(client, 50) == numbers(50)
            assert await produce(client, 1, start=50) == [50]

        node = single.boot()
        await single.client("first", write)
        single.stop.set()
        await node
        single.boot()
        await single.client("second", read)

    SingleNode().run(scenario)


def test_kills_during_idempotent_writes_neither_lose_nor_duplicate_records() -> None:
    async def scenario(single: SingleNode) -> None:
        async def write(client: Client) -> None:
            await client.topics.create("orders", partitions=1, replication_factor=1)
            async with client.producer(ProducerSettings(linger_ms=0)) as producer:
                for number in range(300):
                    await (await producer.send("orders", str(number).encode(), partition=0))

        async def read(client: Client) -> None:
            assert await consume(client, 300) == numbers(300)

        async def kill_now_and_then() -> None:
            for _ in range(4):
                await asyncio.sleep(0.2)
                single.machine.kill()
                await asyncio.sleep(0.3)
                single.boot()

        single.boot()
        killer = asyncio.ensure_future(kill_now_and_then())
        await single.client("writer", write)
        await killer
        await single.client("reader", read)

    SingleNode(weather=Weather(least_delay_us=500, most_delay_us=3_000)).run(scenario)


@pytest.mark.parametrize("seed", range(5))
def test_connection_resets_during_idempotent_writes_neither_lose_duplicate_nor_reorder_records(seed: int) -> None:
    async def scenario(single: SingleNode) -> None:
        async def write(client: Client) -> None:
            await client.topics.create("orders", partitions=1, replication_factor=1)
            single.simulation.fabric.weather.reset_chance = 0.03
            single.simulation.fabric.weather.split_chance = 0.6
            await produce(client, 200)
            single.simulation.fabric.weather.reset_chance = 0

        async def read(client: Client) -> None:
            assert await consume(client, 200) == numbers(200)

        single.boot()
        await single.client("writer", write)
        await single.client("reader", read)

    SingleNode(seed, Weather(slow_chance=0.05)).run(scenario)


def test_a_full_disk_fails_writes_and_serves_reads_until_there_is_room_again() -> None:
    async def scenario(single: SingleNode) -> None:
        async def act(client: Client) -> None:
            await client.topics.create("orders", partitions=1, replication_factor=1)
            await produce(client, 20)
            full = single.machine.disk.fail("write", "create", under="/data/orders-0", code=errno.ENOSPC)
            async with client.producer(ProducerSettings(delivery_timeout_ms=5_000)) as producer:
                delivery = await producer.send("orders", b"does not fit", partition=0)
                with pytest.raises(Exception, match=r"KAFKA_STORAGE_ERROR|not delivered"):
                    await delivery
            assert await consume(client, 20) == numbers(20)
            single.machine.disk.remove_fault(full)
            assert await produce(client, 1, start=20) == [20]

        single.boot()
        await single.client("client", act)

    SingleNode().run(scenario)


def test_a_failed_sync_takes_only_its_log_directory_offline() -> None:
    async def scenario(single: SingleNode) -> None:
        async def act(client: Client) -> None:
            for name in ("a", "b", "c", "d"):
                await client.topics.create(name, partitions=1, replication_factor=1)
                async with client.producer() as producer:
                    await (await producer.send(name, b"before", partition=0))
            single.machine.disk.fail("sync", under="/disk2", code=errno.EIO, times=1)
            on_disk2 = [name for name in ("a", "b", "c", "d") if single.machine.disk.exists(f"/disk2/{name}-0")]
            assert 0 < len(on_disk2) < 4
            outcomes = {}
            for name in ("a", "b", "c", "d"):
                async with client.producer(ProducerSettings(delivery_timeout_ms=4_000)) as producer:
                    try:
                        outcomes[name] = (await (await producer.send(name, b"after", partition=0))).offset
                    except Exception as error:
                        outcomes[name] = type(error)
            failed = [name for name, outcome in outcomes.items() if outcome != 1]
            assert failed == on_disk2

        node = single.boot()
        await single.client("client", act)
        assert not node.done()

    overrides = {"log.dirs": "/disk1,/disk2", "log.flush.interval.messages": "1"}
    SingleNode(overrides=overrides).run(scenario)


def test_partitions_of_an_offline_log_directory_are_not_recreated_in_another() -> None:
    names = ("a", "b", "c", "d")
    on_disk2: list[str] = []

    async def scenario(single: SingleNode) -> None:
        async def write(client: Client) -> None:
            for name in names:
                await client.topics.create(name, partitions=1, replication_factor=1)
                async with client.producer() as producer:
                    await (await producer.send(name, b"before", partition=0))
            on_disk2.extend(name for name in names if single.machine.disk.exists(f"/disk2/{name}-0"))
            assert 0 < len(on_disk2) < 4

        async def write_without_disk2(client: Client) -> None:
            for name in names:
                async with client.producer(ProducerSettings(delivery_timeout_ms=4_000)) as producer:
                    try:
                        assert (await (await producer.send(name, b"after", partition=0))).offset == 1
                        assert name not in on_disk2
                    except KafkaError:
                        assert name in on_disk2
            await client.topics.create("new", partitions=1, replication_factor=1)
            async with client.producer() as producer:
                assert (await (await producer.send("new", b"x", partition=0))).offset == 0

        async def write_again(client: Client) -> None:
            for name in names:
                async with client.producer() as producer:
                    offset = (await (await producer.send(name, b"again", partition=0))).offset
                    assert offset == (1 if name in on_disk2 else 2)

        node = single.boot()
        await single.client("first", write)
        single.stop.set()
        await node
        node = single.boot()
        single.machine.disk.make_read_only(under="/disk2")
        await single.client("second", write_without_disk2)
        single.stop.set()
        await node
        single.boot()
        await single.client("third", write_again)

    SingleNode(overrides={"log.dirs": "/disk1,/disk2"}).run(scenario)


def test_a_failure_of_the_last_log_directory_stops_the_node() -> None:
    async def scenario(single: SingleNode) -> None:
        async def act(client: Client) -> None:
            await client.topics.create("orders", partitions=1, replication_factor=1)
            await produce(client, 1)
            single.machine.disk.fail("write", under="/data/orders-0", code=errno.EIO, times=1)
            with pytest.raises(KafkaError):
                await produce(client, 1)

        node = single.boot()
        await single.client("client", act)
        with pytest.raises(NodeFault, match="all log directories have failed"):
            await node

    SingleNode().run(scenario)


def test_a_running_broker_that_was_unregistered_registers_again() -> None:
    async def scenario(single: SingleNode) -> None:
        async def act(client: Client) -> None:
            await client.topics.create("orders", partitions=1, replication_factor=1)
            await client.router.call(UnregisterBrokerRequest(broker_id=1), UnregisterBrokerResponse)
            await asyncio.sleep(10)
            assert await produce(client, 3) == [0, 1, 2]

        node = single.boot()
        await single.client("client", act)
        assert not node.done()

    SingleNode().run(scenario)


def test_a_failed_sync_of_the_metadata_log_stops_the_node_and_loses_no_committed_record() -> None:
    async def scenario(single: SingleNode) -> None:
        async def create(client: Client) -> None:
            await client.topics.create("orders", partitions=1, replication_factor=1)
            single.machine.disk.fail("sync", under="/data/__cluster_metadata-0", code=errno.EIO, times=1)
            with pytest.raises(KafkaError):
                await client.topics.create("maybe", partitions=1, replication_factor=1)

        async def check(client: Client) -> None:
            names = [topic.name for topic in await client.topics.list()]
            assert names in (["orders"], ["maybe", "orders"])

        node = single.boot()
        await single.client("client", create)
        with pytest.raises(NodeFault):
            await node
        single.boot()
        await single.client("again", check)

    SingleNode().run(scenario)


def test_metadata_committed_after_a_failed_sync_and_a_restart_survives_a_power_loss() -> None:
    """Linux marks pages clean whose writing failed: the new process reads data from the cache that is not on disk."""

    async def scenario(single: SingleNode) -> None:
        async def create(client: Client) -> None:
            await client.topics.create("orders", partitions=1, replication_factor=1)
            single.machine.disk.fail("sync", under="/data/__cluster_metadata-0", code=errno.EIO, times=1)
            with pytest.raises(KafkaError):
                await client.topics.create("maybe", partitions=300, replication_factor=1)

        async def create_another(client: Client) -> None:
            await client.topics.create("payments", partitions=1, replication_factor=1)

        async def check(client: Client) -> None:
            assert {"orders", "payments"} <= {topic.name for topic in await client.topics.list()}

        node = single.boot()
        await single.client("client", create)
        with pytest.raises(NodeFault):
            await node
        single.boot()
        await single.client("another", create_another)
        single.machine.lose_power()
        single.boot()
        await single.client("again", check)

    SingleNode().run(scenario)


_PROGRAM = """
import logging, sys
logging.disable(logging.CRITICAL)
from simulation.power_loss.node_workload import NodeWorkload
for mode in ("flush", "replicated"):
    workload = NodeWorkload(int(sys.argv[1]), mode)
    workload.run(300)
    print(mode, workload.digest, workload.steps, workload.now)
"""


def test_the_same_seed_gives_the_same_trace_in_two_processes_with_different_hash_seeds() -> None:
    source, tests = Path(__file__).parents[2] / "src", Path(__file__).parents[1]

    def run_in_process(hash_seed: str, seed: str) -> str:
        environment = {**os.environ, "PYTHONPATH": f"{source}:{tests}", "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", _PROGRAM, seed]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    first, second = run_in_process("1", "3"), run_in_process("2", "3")
    assert first == second
    assert len(first.splitlines()) == 2
    assert run_in_process("1", "4") != first
