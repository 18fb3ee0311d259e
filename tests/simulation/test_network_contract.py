"""Exchanges over the loopback interface and over the simulated network give the same protocol callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from strandline.runtime.network import Network, SystemNetwork
from strandline.runtime.world import World
from strandline.simulation.world import Simulation

Callbacks = list[str]


class End(asyncio.Protocol):
    """Records its callbacks; received bytes are joined, since they may be split anywhere."""

    def __init__(self, name: str, callbacks: Callbacks) -> None:
        self.name = name
        self.callbacks = callbacks
        self.data = bytearray()
        self.transport: asyncio.Transport
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stays_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.callbacks.append(f"{self.name} made")

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.callbacks.append(f"{self.name} end after {len(self.data)}")
        return self.stays_open

    def pause_writing(self) -> None:
        self.callbacks.append(f"{self.name} pause")

    def resume_writing(self) -> None:
        self.callbacks.append(f"{self.name} resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.callbacks.append(f"{self.name} lost")
        self.lost.set_result(None)


class Echo(End):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


async def a_request_and_a_response(client: End, server: End) -> None:
    client.transport.writelines([b"mess", b"age!"])
    while len(client.data) < 8:
        await asyncio.sleep(0.001)
    client.transport.close()
    await client.lost
    await server.lost


async def a_lot_of_data_and_a_close(client: End, server: End) -> None:
    client.transport.write(bytes(3_000_000))
    client.transport.close()
    client.transport.write(b"too late")
    await server.lost
    await client.lost
    assert len(server.data) == 3_000_000


async def half_a_close(client: End, server: End) -> None:
    client.transport.write(b"all")
    client.transport.write_eof()
    await client.lost
    await server.lost


async def a_slow_reader(client: End, server: End) -> None:
    server.transport.pause_reading()
    client.transport.set_write_buffer_limits(high=10_000)
    # More than both kernels' buffers hold.
    client.transport.write(bytes(30_000_000))
    assert client.transport.get_write_buffer_size() > 0
    await asyncio.sleep(0.05)
    server.transport.resume_reading()
    client.transport.close()
    await server.lost
    assert len(server.data) == 30_000_000


async def an_abort(client: End, server: End) -> None:
    client.transport.abort()
    assert client.transport.is_closing()
    await client.lost
    await server.lost


EXCHANGES: list[tuple[Callable[[End, End], Awaitable[None]], type[End]]] = [
    (a_request_and_a_response, Echo),
    (a_lot_of_data_and_a_close, End),
    (half_a_close, Echo),
    (a_slow_reader, End),
    (an_abort, End),
]


async def exchange(network: Network, act: Callable[[End, End], Awaitable[None]], kind: type[End]) -> Callbacks:
    callbacks: Callbacks = []
    accepted: asyncio.Future[End] = asyncio.get_running_loop().create_future()

    def accept() -> End:
        server = kind("server", callbacks)
        accepted.set_result(server)
        return server

    listener = await network.listen("127.0.0.1", 0, accept)
    client = End("client", callbacks)
    await network.connect("127.0.0.1", listener.port, lambda: client)
    server = await accepted
    while "server made" not in callbacks:
        await asyncio.sleep(0.001)
    await act(client, server)
    await listener.close()
    with pytest.raises(ConnectionRefusedError):
        await network.connect("127.0.0.1", listener.port, lambda: client)
    return sorted(callbacks)


@pytest.mark.parametrize(("act", "kind"), EXCHANGES)
def test_both_networks_give_the_same_callbacks(act: Callable[[End, End], Awaitable[None]], kind: type[End]) -> None:
    real = asyncio.run(exchange(SystemNetwork(), act, kind))

    async def program(world: World) -> Callbacks:
        return await exchange(world.network, act, kind)

    async def scenario() -> Callbacks:
        return await simulation.machine("host").boot(program)

    with Simulation(seed=1) as simulation:
        simulated = simulation.run(scenario(), max_virtual_s=600)
    # How much a kernel buffers, and whether an aborted connection ends with an end-of-file, is not specified.
    left_out = {an_abort: (" end",), a_lot_of_data_and_a_close: (" pause", " resume")}.get(act, ("nothing",))
    assert [each for each in simulated if not any(word in each for word in left_out)] == [
        each for each in real if not any(word in each for word in left_out)
    ]
