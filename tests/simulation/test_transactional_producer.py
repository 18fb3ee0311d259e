"""Transactions of our own client with an unmodified node, on virtual time: with transaction.version 1 and 2."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from strandline.client.admin.committed_offsets import CommittedOffset
from strandline.client.client import Client
from strandline.client.settings import FetcherSettings, GroupSettings, ProducerSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.node.storage import FormatPlan, format_storage
from strandline.runtime.world import World
from strandline.simulation.disk import SimDisk
from strandline.simulation.nodes import CLUSTER_ID, PORT, node_config, node_program
from strandline.simulation.world import Machine, Simulation

T = TypeVar("T")
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}
CONFIG = node_config("broker", overrides=SETTINGS)
GROUP = GroupSettings(offset_reset="earliest", session_timeout_ms=10_000, auto_commit=False)


@pytest.fixture(params=[1, 2], ids=["transaction.version 1", "transaction.version 2"])
def level(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


def play(scenario: Callable[[Client, Machine], Awaitable[T]], level: int) -> T:
    with Simulation(seed=1) as simulation:
        machine = simulation.machine("broker")
        plan = FormatPlan(standalone=True, features={"transaction.version": level})
        random = simulation.random("format")
        format_storage(CONFIG, CLUSTER_ID, plan, disk=SimDisk(machine.volume), random=random, wall_ms=1_800_000_000_000)
        machine.boot(node_program(CONFIG, asyncio.Event()))

        async def program(world: World) -> T:
            async with Client(world, f"broker:{PORT}") as client:
                for topic in ("t", "copy"):
                    await client.topics.create(topic, partitions=2)
                return await scenario(client, machine)

        return simulation.run(simulation.machine("client").boot(program), max_virtual_s=600)


async def committed_values(client: Client, topic: str, count: int) -> list[int]:
    """What a reader of committed records sees, up to the end of the partitions."""
    found: list[int] = []
    async with client.fetcher(FetcherSettings(read_committed=True)) as fetcher:
        for index in range(2):
            fetcher.assign(TopicPartition(topic, index), 0)
        for _ in range(10):
            for fetched in await fetcher.poll(600):
                found += [int(record.value or b"") for record in fetched.records()]
            if len(found) > count:
                break
    return sorted(found)


def test_committed_records_are_read_and_aborted_ones_are_not(level: int) -> None:
    async def scenario(client: Client, machine: Machine) -> list[int]:
        async with client.transactional_producer("id") as producer:
            for number in range(6):
                producer.begin()
                for each in (10 * number, 10 * number + 1):
                    await producer.send("t", b"%d" % each, partition=each % 2)
                if number % 2:
                    await producer.abort()
                else:
                    await producer.commit()
        return await committed_values(client, "t", 6)

    assert play(scenario, level) == [0, 1, 20, 21, 40, 41]


def test_records_that_were_sent_before_an_abort_stay_invisible(level: int) -> None:
    async def scenario(client: Client, machine: Machine) -> list[int]:
        async with client.transactional_producer("id") as producer:
            producer.begin()
            await (await producer.send("t", b"1", partition=0))
            await producer.abort()
            async with producer.transaction():
                await producer.send("t", b"2", partition=0)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await (await producer.send("t", b"3", partition=0))
                    raise ZeroDivisionError
            async with producer.transaction():
                await producer.send("t", b"4", partition=0)
        return await committed_values(client, "t", 2)

    assert play(scenario, level) == [2, 4]


def test_an_empty_transaction_can_be_committed_and_aborted(level: int) -> None:
    async def scenario(client: Client, machine: Machine) -> None:
        async with client.transactional_producer("id") as producer:
            for end in (producer.commit, producer.abort, producer.commit):
                producer.begin()
                await end()

    play(scenario, level)


def test_a_second_producer_of_the_same_id_fences_the_first_and_aborts_its_transaction(level: int) -> None:
    async def scenario(client: Client, machine: Machine) -> tuple[list[int], ErrorCode]:
        async with client.transactional_producer("id") as first:
            first.begin()
            await (await first.send("t", b"1", partition=0))
            async with client.transactional_producer("id") as second:
                async with second.transaction():
                    await second.send("t", b"2", partition=0)
                with pytest.raises(KafkaError) as error:
                    await first.send("t", b"3", partition=0)
                    await first.commit()
                with pytest.raises(KafkaError):
                    await first.abort()
        return await committed_values(client, "t", 1), error.value.code

    values, code = play(scenario, level)
    assert values == [2]
    assert code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


def test_offsets_are_committed_with_the_transaction_and_not_without_it(level: int) -> None:
    partition = TopicPartition("t", 0)

    async def scenario(client: Client, machine: Machine) -> list[int | None]:
        found = []
        async with client.transactional_producer("id") as producer:
            for offset, commit in ((3, True), (7, False), (9, True)):
                producer.begin()
                await producer.send_offsets({partition: CommittedOffset(offset)}, "g")
                await (producer.commit() if commit else producer.abort())
                committed = await client.groups.offsets("g", [partition], require_stable=True)
                found.append(committed[partition].offset if partition in committed else None)
        return found

    assert play(scenario, level) == [3, 3, 9]


def test_a_copy_with_restarts_of_the_node_has_every_record_once(level: int) -> None:
    """Read, process, write: a transaction that fails is repeated from the committed offsets."""

    transactions = 0
    before_restarts: list[int] = []

    async def copy(client: Client) -> None:
        nonlocal transactions
        settings = ProducerSettings(delivery_timeout_ms=200)
        fetching = FetcherSettings(read_committed=True, partition_max_bytes=400)
        async with (
            client.transactional_producer("copier", settings) as producer,
            client.consumer("copier", ["t"], GROUP, fetching) as consumer,
        ):
            copied = 0
            while copied < 200:
                batch = await consumer.poll(500)
                if not batch:
                    committed = await client.groups.offsets("copier", require_stable=True)
                    copied = sum(each.offset for each in committed.values())
                    continue
                try:
                    async with producer.transaction():
                        for fetched in batch:
                            for record in fetched.records():
                                await producer.send("copy", record.value, partition=fetched.partition.partition)
                        ends = {each.partition: CommittedOffset(each.next_offset) for each in batch}
                        await asyncio.sleep(0.1)
                        await producer.send_offsets(ends, "copier", consumer.membership)
                    transactions += 1
                except KafkaError:
                    committed = await consumer.committed([each.partition for each in batch])
                    for each in batch:
                        if each.partition in consumer.assignment:
                            start = committed.get(each.partition, CommittedOffset(0))
                            consumer.seek(each.partition, start.offset)

    async def scenario(client: Client, machine: Machine) -> list[int]:
        async with client.producer(ProducerSettings(batch_bytes=200)) as producer:
            for number in range(200):
                await producer.send("t", b"%d" % number, partition=number % 2)
        copying = asyncio.get_running_loop().create_task(copy(client))
        for pause_s in (0.3, 0.6, 0.6):
            await asyncio.sleep(pause_s)
            before_restarts.append(transactions)
            machine.kill()
            await asyncio.sleep(0.5)
            machine.boot(node_program(CONFIG, asyncio.Event()))
        await copying
        return await committed_values(client, "copy", 200)

    assert play(scenario, level) == list(range(200))
    assert 0 < before_restarts[0] < before_restarts[1] < transactions
