"""Listing, describing and aborting transactions with an unmodified node, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from strandline.cli.txn import _hanging, _open_on
from strandline.client.client import Client
from strandline.client.core.hanging_transactions import older_than
from strandline.client.settings import FetcherSettings
from strandline.model.errors import KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from strandline.records.batch import Record, encode_batch
from strandline.runtime.world import World
from strandline.simulation.disk import SimDisk
from strandline.simulation.nodes import PORT, format_node, node_config, node_program
from strandline.simulation.world import Simulation

T = TypeVar("T")
SETTINGS = {"transaction.state.log.num.partitions": "2", "transaction.partition.verification.enable": "false"}
PARTITION = TopicPartition("t", 0)


def play(scenario: Callable[[Client], Awaitable[T]]) -> T:
    config = node_config("broker", overrides=SETTINGS)
    with Simulation(seed=1) as simulation:
        machine = simulation.machine("broker")
        format_node(config, SimDisk(machine.volume), simulation.random("format"))
        machine.boot(node_program(config, asyncio.Event()))

        async def program(world: World) -> T:
            async with Client(world, f"broker:{PORT}") as client:
                await client.topics.create("t", partitions=1)
                return await scenario(client)

        return simulation.run(simulation.machine("client").boot(program), max_virtual_s=600)


def test_transactional_ids_are_listed_and_described() -> None:
    async def scenario(client: Client) -> None:
        async with client.transactional_producer("busy") as busy, client.transactional_producer("idle"):
            busy.begin()
            await (await busy.send("t", b"v", partition=0))
            await client.router.sleep(2_000)
            listed = await client.transactions.list()
            assert [(each.transactional_id, each.state) for each in listed] == [("busy", "Ongoing"), ("idle", "Empty")]
            ids = {each.transactional_id: each.producer_id for each in listed}
            for filters, expected in (
                ({"states": ["Ongoing"]}, ["busy"]),
                ({"producer_ids": [ids["idle"]]}, ["idle"]),
                ({"states": ["Ongoing"], "min_duration_ms": 1_000}, ["busy"]),
                ({"states": ["Ongoing"], "min_duration_ms": 60_000}, []),
            ):
                found = await client.transactions.list(**filters)  # type: ignore[arg-type]
                assert [each.transactional_id for each in found] == expected, filters
            described = await client.transactions.describe("busy")
            assert (described.state, described.partitions, described.producer_id) == (
                "Ongoing",
                (PARTITION,),
                ids["busy"],
            )
            assert (await client.transactions.describe("idle")).start_ms == -1
            with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_NOT_FOUND"):
                await client.transactions.describe("unknown")

    play(scenario)


async def leave_hanging(client: Client) -> None:
    """Appends transactional records of which no coordinator knows."""
    records = encode_batch(
        [Record(0, 1_000, None, b"hanging")], producer_id=4711, producer_epoch=0, base_sequence=0, transactional=True
    )
    await client.router.refresh(["t"])
    connection = await client.router.broker(1)
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])]
    request = ProduceRequest(transactional_id="gone", acks=-1, timeout_ms=1_000, topic_data=data)
    response = await connection.call(request, ProduceResponse, version=11)
    assert response.responses[0].partition_responses[0].error_code == 0


def test_a_transaction_without_a_coordinator_is_found_and_aborted() -> None:
    async def scenario(client: Client) -> None:
        await leave_hanging(client)
        async with client.transactional_producer("busy") as busy:
            busy.begin()
            await (await busy.send("t", b"v", partition=0))
            is_open = await _open_on(client, [PARTITION])
            assert [each.start_offset for each in is_open] == [0, 1]
            hanging = await _hanging(client, is_open)
            assert [(each.producer_id, each.start_offset) for each in hanging] == [(4711, 0)]
            assert older_than(hanging, 900_000, 1_000 + 899_999) == []
            assert older_than(hanging, 900_000, 1_000 + 900_000) == hanging
            await busy.commit()
            await client.transactions.abort(hanging[0])
            assert await _open_on(client, [PARTITION]) == []
        async with client.fetcher(FetcherSettings(read_committed=True)) as fetcher:
            fetcher.assign(PARTITION, 0)
            values: list[bytes | None] = []
            while not values:
                values += [record.value for fetched in await fetcher.poll(5_000) for record in fetched.records()]
        assert values == [b"v"]

    play(scenario)
