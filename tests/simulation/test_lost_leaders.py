"""A client that lost its connection to a killed leader requests metadata of another broker and gets the next leader."""

from __future__ import annotations

import asyncio

import pytest

from simulation.test_failure_detection import SimulatedCluster, run
from strandline.client.client import Client
from strandline.client.connection import Connection
from strandline.client.settings import ClientSettings
from strandline.model.ids import Endpoint
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from strandline.runtime.world import World
from strandline.simulation.nodes import PORT

TOPIC = "orders"
# Between the brokers' and the client's noticing of the closed connection.
_CLIENT_DELAY_S = 0.01


async def create_topic(cluster: SimulatedCluster, leader: int) -> None:
    """With one partition, led by this broker and followed by the others."""
    replicas = sorted(cluster.broker_ids, key=lambda broker_id: broker_id != leader)

    async def program(world: World) -> None:
        async with Client(world, ",".join(f"node{each}:{PORT}" for each in cluster.broker_ids)) as client:
            await client.topics.create(TOPIC, assignments=[replicas])
        world.close()

    await cluster.simulation.machine("admin").boot(program)
    await asyncio.sleep(1)


async def kill_and_request_metadata(cluster: SimulatedCluster, victim: int) -> tuple[int, float]:
    """The leader that a running broker names first after the kill, and the seconds until its response."""
    asked = next(broker_id for broker_id in cluster.broker_ids if broker_id != victim)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    answers: list[tuple[int, float]] = []

    async def program(world: World) -> None:
        connection = await Connection.open(world.network, Endpoint(f"node{asked}", PORT), ClientSettings())
        await connection.call(request, MetadataResponse)
        cluster.machines[victim].kill()
        await asyncio.sleep(_CLIENT_DELAY_S)
        began_us = cluster.simulation.loop.now_us
        response = await connection.call(request, MetadataResponse)
        took_s = (cluster.simulation.loop.now_us - began_us) / 1_000_000
        answers.append((response.topics[0].partitions[0].leader_id, took_s))
        connection.close()
        world.close()

    await cluster.simulation.machine("client").boot(program)
    return answers[0]


@pytest.mark.parametrize("of", ["broker", "active controller"])
@pytest.mark.parametrize("seed", range(3))
def test_the_first_metadata_response_after_a_kill_names_the_next_leader(seed: int, of: str) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        victim = cluster.leader() if of == "active controller" else cluster.follower()
        await create_topic(cluster, victim)
        leader, took_s = await kill_and_request_metadata(cluster, victim)
        assert leader not in (victim, -1)
        assert took_s < 0.5

    run(scenario, seed)


def test_without_the_wait_the_response_names_the_killed_leader() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        victim = cluster.follower()
        await create_topic(cluster, victim)
        assert (await kill_and_request_metadata(cluster, victim))[0] == victim

    run(scenario, 1, configs={"strandline.lost.leader.max.wait.ms": "0"})
