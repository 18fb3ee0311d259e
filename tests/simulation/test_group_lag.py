"""Lag of groups, as metric and as the client finds it, with an unmodified node on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from strandline.client.admin.committed_offsets import CommittedOffset
from strandline.client.client import Client
from strandline.model.ids import TopicPartition
from strandline.node.node import Node
from strandline.runtime.world import World
from strandline.simulation.disk import SimDisk
from strandline.simulation.nodes import PORT, format_node, node_config, node_program
from strandline.simulation.world import Simulation

T = TypeVar("T")
SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2", "log.roll.ms": "600000"}
PARTITION = TopicPartition("t", 0)
RECORDS = "strandline.coordinator:type=group-lag,name=records,group=g,topic=t,partition=0"
SECONDS = "strandline.coordinator:type=group-lag,name=seconds,group=g,topic=t,partition=0"


def play(scenario: Callable[[Client, Node], Awaitable[T]]) -> T:
    config = node_config("broker", overrides=SETTINGS)
    with Simulation(seed=1) as simulation:
        machine = simulation.machine("broker")
        format_node(config, SimDisk(machine.volume), simulation.random("format"))
        nodes: list[Node] = []
        machine.boot(node_program(config, asyncio.Event(), nodes.append))

        async def program(world: World) -> T:
            async with Client(world, f"broker:{PORT}") as client:
                await client.topics.create("t", partitions=1)
                return await scenario(client, nodes[0])

        return simulation.run(simulation.machine("client").boot(program), max_virtual_s=900)


async def commit(client: Client, offset: int) -> None:
    assert await client.groups.set_offsets("g", {PARTITION: CommittedOffset(offset)}) == {}


async def metrics(node: Node, client: Client) -> tuple[float | None, float | None]:
    """Read twice, since the first reading starts the requests."""
    node.metrics.snapshot(node.world.clock.now_ms())
    await client.router.sleep(6_000)
    found = node.metrics.snapshot(node.world.clock.now_ms())
    return found.get(RECORDS), found.get(SECONDS)


async def ages(client: Client) -> tuple[int, int | None]:
    lag = (await client.group_lag("g"))[PARTITION]
    assert lag.error is None
    return lag.records, lag.oldest_ms


def test_the_metric_is_the_age_of_the_oldest_unread_record() -> None:
    async def scenario(client: Client, node: Node) -> None:
        sent_ms = node.world.clock.wall_ms()
        async with client.producer() as producer:
            for number in range(5):
                await producer.send("t", b"v", timestamp_ms=sent_ms + 1_000 * number)
        await commit(client, 2)
        records, seconds = await metrics(node, client)
        assert records == 3
        assert seconds == pytest.approx((node.world.clock.wall_ms() - sent_ms - 2_000) / 1000, abs=0.01)
        await commit(client, 5)
        assert await metrics(node, client) == (0, 0)

    play(scenario)


def test_a_record_is_looked_up_once_per_committed_offset() -> None:
    async def scenario(client: Client, node: Node) -> None:
        async with client.producer() as producer:
            for _ in range(5):
                await producer.send("t", b"v")
        await commit(client, 2)
        await metrics(node, client)
        before = _fetches(node)
        for _ in range(4):
            await metrics(node, client)
        assert _fetches(node) == before > 0
        await commit(client, 3)
        await metrics(node, client)
        assert _fetches(node) == before + 1

    play(scenario)


def _fetches(node: Node) -> float:
    found = node.metrics.snapshot(node.world.clock.now_ms())
    prefix, suffix = "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Fetch", ",attribute=Count"
    return sum(value for key, value in found.items() if key.startswith(prefix) and key.endswith(suffix))


def test_requests_end_when_the_metrics_are_not_read_any_more() -> None:
    async def scenario(client: Client, node: Node) -> None:
        await commit(client, 0)
        await metrics(node, client)
        await client.router.sleep(200_000)
        found = node.metrics.snapshot(node.world.clock.now_ms())
        assert RECORDS not in found
        assert await metrics(node, client) == (0, 0)

    play(scenario)


def test_transactions_aborted_open_and_committed() -> None:
    async def scenario(client: Client, node: Node) -> None:
        await commit(client, 0)
        async with client.transactional_producer("id") as producer:
            producer.begin()
            await (await producer.send("t", b"aborted", timestamp_ms=1_000))
            await producer.abort()
            await client.router.sleep(1_000)
            assert await ages(client) == (2, None), "a record and the marker, but nothing that a consumer reads"
            producer.begin()
            await (await producer.send("t", b"open", timestamp_ms=2_000))
            assert await ages(client) == (3, 2_000)
            await producer.commit()
            await client.router.sleep(1_000)
            assert await ages(client) == (4, 2_000)

    play(scenario)


def test_offsets_before_the_log_start_are_those_of_the_first_record() -> None:
    async def scenario(client: Client, node: Node) -> None:
        async with client.producer() as producer:
            for number in range(5):
                await producer.send("t", b"v", timestamp_ms=1_000 + number)
        await commit(client, 1)
        await client.topics.delete_records({PARTITION: 3})
        assert await ages(client) == (4, 1_003)

    play(scenario)


def test_a_timestamp_in_the_future_has_no_age() -> None:
    async def scenario(client: Client, node: Node) -> None:
        wall_ms = node.world.clock.wall_ms()
        async with client.producer() as producer:
            await producer.send("t", b"v", timestamp_ms=wall_ms + 60_000)
        await commit(client, 0)
        assert await metrics(node, client) == (1, 0)

    play(scenario)
