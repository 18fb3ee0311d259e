"""The server on real sockets, with asyncio's event loop and with uvloop."""

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
    def run_with_timeout(scenario: Coroutine[Any, Any, None]) -> None:
        request.param(asyncio.wait_for(scenario, 60))

    return run_with_timeout


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
    """Within the timeout of the scenario."""
    while not condition():
        await asyncio.sleep(0.01)


async def response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(size)
    return int.from_bytes(frame[:4], "big", signed=True), frame


def test_requests_in_arbitrary_tcp_segments_get_responses_in_order(run: Run) -> None:
    async def scenario() -> None:
        async with serving(handlers(METADATA=handle_metadata, PRODUCE=handle_produce)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["B"])
            stream = b"".join(metadata(n) if n % 2 else produce(n) for n in range(300))
            for begin in range(0, len(stream), 777):
                writer.write(stream[begin : begin + 777])
                await asyncio.sleep(0)
            for n in range(300):
                assert (await response(reader))[0] == n
            writer.close()

    run(scenario())


def test_requests_of_a_client_that_disconnects_at_once_are_handled(run: Run) -> None:
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


def test_a_slow_reader_of_a_large_response_costs_less_than_a_mebibyte_of_memory(run: Run, tmp_path: Path) -> None:
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
            # The kernel's send buffer may hold a few mebibytes; the rest must not have been read from the file.
            assert metrics.snapshot(0)[backlog] > len(content) - 8 * MIB
            (connection,) = server._processor._connections
            assert connection._transport.get_write_buffer_size() <= MIB
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", server.ports["B"])
            other_writer.write(metadata(2))
            assert (await response(other_reader))[0] == 2
            other_writer.close()
            client.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=client)
            correlation, frame = await response(reader)
            assert correlation == 1
            assert content in frame
            assert metrics.snapshot(0)[backlog] == 0
            writer.close()

    run(scenario())


def test_a_connection_reset_within_a_response_does_not_affect_other_connections(run: Run, tmp_path: Path) -> None:
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
            assert (await response(reader))[0] == 2
            writer.close()

    run(scenario())


def test_invalid_bytes_close_the_connection(run: Run) -> None:
    async def scenario() -> None:
        async with serving(handlers(METADATA=handle_metadata)) as server:
            for garbage in (b"PUT / HTTP/1.1\r\n\r\n", b"\xff" * 100, bytes(100), b"\x16\x03\x01\x02\x00\x01\x00"):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["B"])
                writer.write(garbage)
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()

    run(scenario())


def test_metrics_are_read_from_a_listener_and_are_empty_for_other_servers(run: Run) -> None:
    async def scenario() -> None:
        async with serving(handlers(METADATA=handle_metadata)) as server:
            network, here = SystemNetwork(), Endpoint("127.0.0.1", server.ports["B"])
            numbers = await read_metrics(network, here, 10_000)
            assert numbers["kafka_server_socket_server_metrics_connection_count"] == 1
        assert await read_metrics(network, here, 10_000) == {}, "the listener is closed"

        async def disconnect(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        async with await asyncio.start_server(disconnect, "127.0.0.1", 0) as other:
            port = other.sockets[0].getsockname()[1]
            assert await read_metrics(network, Endpoint("127.0.0.1", port), 10_000) == {}

        async def return_html(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n<html>not a number\xff</html>")
            writer.close()

        async with await asyncio.start_server(return_html, "127.0.0.1", 0) as other:
            port = other.sockets[0].getsockname()[1]
            assert await read_metrics(network, Endpoint("127.0.0.1", port), 10_000) == {}

    run(scenario())


def test_a_closed_connection_is_freed_without_the_garbage_collector(run: Run) -> None:
    def connections() -> int:
        return sum(type(each) is Connection for each in gc.get_objects())

    async def scenario() -> None:
        async with serving(handlers(METADATA=handle_metadata)) as server:
            gc.collect()
            before = connections()
            for number in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["B"])
                writer.write(metadata(number))
                await response(reader)
                assert connections() == before + 1
                writer.close()
                await eventually(lambda: connections() == before)

    gc.disable()
    try:
        run(scenario())
    finally:
        gc.enable()
