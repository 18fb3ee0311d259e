"""Clients and servers on a simulated network that record what they receive."""

from __future__ import annotations

import asyncio
from typing import Any

from strandline.runtime.world import World
from strandline.simulation.world import Machine, Simulation


class RecordingProtocol(asyncio.Protocol):
    """Records received data, and the other callbacks as `events`."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.data = bytearray()
        self.pieces = 0
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces += 1
        self.data += data

    def eof_received(self) -> bool | None:
        self.events.append("eof")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Echo(RecordingProtocol):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class BufferedEcho(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.buffer = bytearray(197)
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(self.buffer[:nbytes])


class Server:
    """A program that listens with one kind of protocol and keeps the instances."""

    def __init__(self, kind: Any = Echo, host: str = "0.0.0.0") -> None:
        self.kind = kind
        self.host = host
        self.protocols: list[Any] = []
        self.operations = 0

    def factory(self) -> Any:
        protocol = self.kind()
        self.protocols.append(protocol)
        return protocol

    async def run(self, world: World) -> None:
        await world.network.listen(self.host, 9092, self.factory)
        await asyncio.get_running_loop().create_future()


async def connect(
    simulation: Simulation, machine: Machine, protocol: Any = None, host: str = "server"
) -> RecordingProtocol:
    """Connects from a machine that runs nothing else."""
    client: RecordingProtocol = protocol or RecordingProtocol()

    async def program(world: World) -> None:
        await world.network.connect(host, 9092, lambda: client)
        ready.set_result(None)
        await asyncio.get_running_loop().create_future()

    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task = machine.boot(program)
    task.add_done_callback(
        lambda task: ready.set_exception(task.exception()) if task.exception() and not ready.done() else None
    )
    await ready
    return client
