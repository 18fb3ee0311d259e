"""The server on real sockets, with both event loops: what a transport in memory cannot show."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from strandline.client.admin.metrics_page import read_metrics
from strandline.model.ids import Endpoint
from strandline.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from strandline.runtime.file_slice import FileSlice
from strandline.runtime.metrics import Metrics
from strandline.runtime.network import SystemNetwork
from strandline.runtime.world import World, system_world
from strandline.server.connection import Connection
from strandline.server.dispatch import Handler
from strandline.server.requests import Call
from strandline.server.server import Server
from strandline.server.settings import ListenerSpec, ServerSettings
from unit.server.memory_server import fetch, handle_metadata, handle_produce, handlers, metadata, produce

MIB = 1024 * 1024
CONNECTIONS = "kafka.server:type=socket-server-metrics,name=connection-count"

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run_within_a_minute(scenario: Coroutine[Any, Any, None]) -> None:
        request.param(asyncio.wait_for(scenario, 60))

    return run_within_a_minute


@contextlib.asynccontextmanager
async def serving(
    table: dict[int, Handler], world: World | None = None, metrics: Metrics | None = None
) -> AsyncIterator[Server]:
    world = world or system_world(threads=1)
    server = Server([ListenerSpec("B", "127.0.0.1", 0)], world, ServerSettings(), metrics or Metrics())
    await server.start({"B": table})
    try:
        yield server
    finally:
        await server.stop(1_000)
        world.offload.close()


async def eventually(condition: Callable[[], bool]) -> None:
    """Within the minute that a scenario has."""
    while not condition():
        await asyncio.sleep(0.01)


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(size)
    return int.from_bytes(frame[:4], "big", signed=True), frame


def test_requests_in_any_segments_are_answered_in_order(run: Run) -> None:
    async def scenario() -> None:
        async with serving(handlers(METADATA=handle_metadata, PRODUCE=handle_produce)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["B"])
            stream = b"".join(metadata(n) if n % 2 else produce(n) for n in range(300))
            for begin in range(0, len(stream), 777):
                writer.write(stream[begin : begin + 777])
                await asyncio.sleep(0)
            for n in range(300):
                assert (await answer(reader))[0] == n
            writer.close()

    run(scenario())


def test_a_client_that_sends_and_leaves_is_served_and_let_go(run: Run) -> None:
    async def scenario() -> None:
        appended: list[int] = []

        async def append(call: Call, request: Any) -> None:
            appended.append(call.correlation_id)

        metrics = Metrics()
        async with serving(handlers(PRODUCE=append), metrics=metrics) as server:
            client = socket.create_connection(("127.0.0.1", server.ports["B"]))
            client.sendall(b"".join(produce(n, acks=0) for n in range(500)))
            client.close()
            await eventually(lambda: len(appended) == 500 and metrics.snapshot(0)[CONNECTIONS] == 0)
            assert appended == list(range(500))

    run(scenario())


def test_a_slow_reader_of_a_large_file_holds_less_than_a_mebibyte_and_gets_every_byte(run: Run, tmp_path: Path) -> None:
    content = os.urandom(MIB) * 50
    (tmp_path / "segment.log").write_bytes(content)

    async def scenario() -> None:
        world = system_world(threads=1)
        file = world.disk.open(str(tmp_path / "segment.log"))

        async def read(call: Call, request: Any) -> FetchResponse:
            records: Any = FileSlice(file, 0, len(content))
            partition = PartitionData(partition_index=0, records=records)
            return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

        metrics = Metrics()
        backlog = "strandline.server:type=Requests,name=ResponseQueueBytes"
        async with serving(handlers(FETCH=read, METADATA=handle_metadata), world, metrics) as server:
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
            client.connect(("127.0.0.1", server.ports["B"]))
            client.sendall(fetch(1))
            await eventually(lambda: metrics.snapshot(0)[backlog] > 0)
            await asyncio.sleep(0.3)
            # The kernel's send buffer may hold a few mebibytes; the rest must not have been read from the file at all.
            assert metrics.snapshot(0)[backlog] > len(content) - 8 * MIB
            (connection,) = server._processor._connections
            assert connection._transport.get_write_buffer_size() <= MIB
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", server.ports["B"])
            other_writer.write(metadata(2))
            assert (await answer(other_reader))[0] == 2
            other_writer.close()
            client.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=client)
            correlation, frame = await answer(reader)
            assert correlation == 1
            assert content in frame
            assert metrics.snapshot(0)[backlog] == 0
            writer.close()

    run(scenario())


def test_a_reset_in_the_middle_of_an_answer_disturbs_nobody(run: Run, tmp_path: Path) -> None:
    (tmp_path / "segment.log").write_bytes(bytes(20 * MIB))

    async def scenario() -> None:
        world = system_world(threads=1)
        file = world.disk.open(str(tmp_path / "segment.log"))

        async def read(call: Call, request: Any) -> FetchResponse:
            records: Any = FileSlice(file, 0, 20 * MIB)
            partition = PartitionData(partition_index=0, records=records)
            return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

        metrics = Metrics()
        async with serving(handlers(FETCH=read, METADATA=handle_metadata), world, metrics) as server:
            client = socket.create_connection(("127.0.0.1", server.ports["B"]))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(fetch(1))
            await asyncio.sleep(0.05)
            client.close()
            await eventually(lambda: metrics.snapshot(0)[CONNECTIONS] == 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["B"])
            writer.write(metadata(2))
            assert (await answer(reader))[0] == 2
            writer.close()

    run(scenario())


def test_garbage_is_disconnected(run: Run) -> None:
    async def scenario() -> None:
        async with serving(handlers(METADATA=handle_metadata)) as server:
            for garbage in (b"PUT / HTTP/1.1\r\n\r\n", b"\xff" * 100, bytes(100), b"\x16\x03\x01\x02\x00\x01\x00"):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["B"])
                writer.write(garbage)
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()

    run(scenario())


def test_the_metrics_of_a_node_are_read_at_its_listener_and_of_anything_else_there_are_none(run: Run) -> None:
    async def scenario() -> None:
        async with serving(handlers(METADATA=handle_metadata)) as server:
            network, here = SystemNetwork(), Endpoint("127.0.0.1", server.ports["B"])
            numbers = await read_metrics(network, here, 10_000)
            assert numbers["kafka_server_socket_server_metrics_connection_count"] == 1
        assert await read_metrics(network, here, 10_000) == {}, "nobody listens there any more"

        async def disconnect(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        async with await asyncio.start_server(disconnect, "127.0.0.1", 0) as other:
            port = other.sockets[0].getsockname()[1]
            assert await read_metrics(network, Endpoint("127.0.0.1", port), 10_000) == {}

        async def show_a_page(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n<html>not a number\xff</html>")
            writer.close()

        async with await asyncio.start_server(show_a_page, "127.0.0.1", 0) as other:
            port = other.sockets[0].getsockname()[1]
            assert await read_metrics(network, Endpoint("127.0.0.1", port), 10_000) == {}

    run(scenario())


def test_a_connection_that_has_ended_is_freed_without_a_collector(run: Run) -> None:
    def connections() -> int:
        return sum(type(each) is Connection for each in gc.get_objects())

    async def scenario() -> None:
        async with serving(handlers(METADATA=handle_metadata)) as server:
            gc.collect()
            before = connections()
            for number in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["B"])
                writer.write(metadata(number))
                await answer(reader)
                assert connections() == before + 1
                writer.close()
                await eventually(lambda: connections() == before)

    gc.disable()
    try:
        run(scenario())
    finally:
        gc.enable()
