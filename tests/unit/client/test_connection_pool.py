"""Connections are shared per address and lane, and replaced once they have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from strandline.client.connection_pool import ConnectionPool
from strandline.client.errors import BrokerUnreachable, ConnectionLost
from strandline.client.settings import ClientSettings
from strandline.model.ids import Endpoint
from strandline.protocol.apis import ApiKey
from strandline.runtime.tasks import yield_to_loop
from strandline.runtime.world import World
from strandline.simulation.world import Simulation
from unit.client.fake_broker import PORT, FakeBroker

BROKER = Endpoint("broker", PORT)


def play(scenario: Callable[[ConnectionPool[str]], Awaitable[None]]) -> FakeBroker:
    broker = FakeBroker("broker", {})

    async def program(world: World) -> None:
        await scenario(ConnectionPool(world.network, ClientSettings()))

    with Simulation(seed=1) as simulation:
        simulation.machine("broker").boot(broker.run)
        simulation.run(simulation.machine("client").boot(program), max_virtual_s=60)
    return broker


def test_concurrent_callers_share_the_connection_of_a_lane() -> None:
    async def scenario(pool: ConnectionPool[str]) -> None:
        first, second, other = await asyncio.gather(
            pool.connection(BROKER, "a"), pool.connection(BROKER, "a"), pool.connection(BROKER, "b")
        )
        assert first is second is await pool.connection(BROKER, "a")
        assert other is not first and pool.open_connection("b") is other

    assert [key for key, _ in play(scenario).received] == [ApiKey.API_VERSIONS] * 2


def test_an_ended_connection_is_replaced() -> None:
    async def scenario(pool: ConnectionPool[str]) -> None:
        before = await pool.connection(BROKER, "")
        pool.disconnect(Endpoint("elsewhere", PORT))
        assert before.is_open
        pool.disconnect(BROKER)
        assert not before.is_open and pool.open_connection("") is None
        assert (await pool.connection(BROKER, "")).is_open

    play(scenario)


def test_an_invalid_address_is_unreachable() -> None:
    async def scenario(pool: ConnectionPool[str]) -> None:
        with pytest.raises(BrokerUnreachable):
            await pool.connection(Endpoint("nowhere", 99_999), "")
        assert not pool.has_ever_connected

    play(scenario)


def test_a_closed_pool_closes_its_connections_and_opens_no_more() -> None:
    async def scenario(pool: ConnectionPool[str]) -> None:
        connection = await pool.connection(BROKER, "open")
        opening = asyncio.ensure_future(pool.connection(BROKER, "being opened"))
        await yield_to_loop()
        pool.close()
        assert not connection.is_open
        for later in (opening, pool.connection(BROKER, "later")):
            with pytest.raises(ConnectionLost, match="the client is closed"):
                await later

    play(scenario)
