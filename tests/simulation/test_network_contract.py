"""The same conversations over the loopback interface and over the simulated network: both ends must hear the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from strandline.runtime.network import Network, SystemNetwork
from strandline.runtime.world import World
from strandline.simulation.world import Simulation

Heard = list[str]


class End(asyncio.Protocol):
    """Writes down what it hears; bytes are joined, since where they are cut is nobody's business."""

    def __init__(self, name: str, heard: Heard) -> None:
        self.name = name
        self.heard = heard
        self.data = bytearray()
        self.transport: asyncio.Transport
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stays_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.heard.append(f"{self.name} made")

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.heard.append(f"{self.name} end after {len(self.data)}")
        return self.stays_open

    def pause_writing(self) -> None:
        self.heard.append(f"{self.name} pause")

    def resume_writing(self) -> None:
        self.heard.append(f"{self.name} resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.heard.append(f"{self.name} lost")
        self.lost.set_result(None)


class Echo(End):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


async def a_question_and_an_answer(client: End, server: End) -> None:
    client.transport.writelines([b"ques", b"tion"])
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


async def a_reader_that_takes_its_time(client: End, server: End) -> None:
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


CONVERSATIONS: list[tuple[Callable[[End, End], Awaitable[None]], type[End]]] = [
    (a_question_and_an_answer, Echo),
    (a_lot_of_data_and_a_close, End),
    (half_a_close, Echo),
    (a_reader_that_takes_its_time, End),
    (an_abort, End),
]


async def converse(network: Network, act: Callable[[End, End], Awaitable[None]], kind: type[End]) -> Heard:
    heard: Heard = []
    accepted: asyncio.Future[End] = asyncio.get_running_loop().create_future()

    def accept() -> End:
        server = kind("server", heard)
        accepted.set_result(server)
        return server

    listener = await network.listen("127.0.0.1", 0, accept)
    client = End("client", heard)
    await network.connect("127.0.0.1", listener.port, lambda: client)
    server = await accepted
    while "server made" not in heard:
        await asyncio.sleep(0.001)
    await act(client, server)
    await listener.close()
    with pytest.raises(ConnectionRefusedError):
        await network.connect("127.0.0.1", listener.port, lambda: client)
    return sorted(heard)


@pytest.mark.parametrize(("act", "kind"), CONVERSATIONS)
def test_both_networks_let_both_ends_hear_the_same(act: Callable[[End, End], Awaitable[None]], kind: type[End]) -> None:
    real = asyncio.run(converse(SystemNetwork(), act, kind))

    async def program(world: World) -> Heard:
        return await converse(world.network, act, kind)

    async def scenario() -> Heard:
        return await simulation.machine("host").boot(program)

    with Simulation(seed=1) as simulation:
        simulated = simulation.run(scenario(), max_virtual_s=600)
    # How much a kernel buffers, and whether an aborted connection ends with an end-of-file, is not promised.
    left_out = {an_abort: (" end",), a_lot_of_data_and_a_close: (" pause", " resume")}.get(act, ("nothing",))
    assert [each for each in simulated if not any(word in each for word in left_out)] == [
        each for each in real if not any(word in each for word in left_out)
    ]
