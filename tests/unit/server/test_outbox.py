"""Sending responses as the socket drains: slow readers, files outside the page cache, and disk errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from strandline.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from strandline.runtime.file_slice import FileSlice
from strandline.server.requests import Call
from unit.server.memory_server import (
    MemoryServer,
    MemoryTransport,
    fetch,
    handle_metadata,
    handlers,
    metadata,
    run,
    settle,
)

MIB = 1024 * 1024
RESPONSE_BYTES = "strandline.server:type=Requests,name=ResponseQueueBytes"


class CountedFile:
    """A file with computed content that records how far it was read."""

    def __init__(self, size: int, *, cached: bool = True, fails_at: int | None = None) -> None:
        self.path = "00000000000000000000.log"
        self._size = size
        self._cached = cached
        self._fails_at = fails_at
        self.read_up_to = 0
        self.largest_read = 0
        self.failures: list[str] = []

    def failed(self, error: OSError, doing: str) -> None:
        self.failures.append(f"{doing}: {error}")

    def read_at(self, position: int, size: int) -> bytes:
        if self._fails_at is not None and position + size > self._fails_at:
            raise OSError(5, "Input/output error")
        self.read_up_to = max(self.read_up_to, position + size)
        self.largest_read = max(self.largest_read, size)
        return bytes([position // 1024 % 251]) * max(0, min(size, self._size - position))

    def read_cached(self, position: int, size: int) -> bytes | None:
        return self.read_at(position, size) if self._cached else None


def serving_slice(file: CountedFile, size: int) -> Any:
    async def handle(call: Call, request: Any) -> FetchResponse:
        records: Any = FileSlice(file, 0, size, file.failed)  # type: ignore[arg-type]
        partition = PartitionData(partition_index=0, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

    return handlers(FETCH=handle, METADATA=handle_metadata)


def test_a_slow_reader_of_a_large_response_holds_less_than_a_mebibyte() -> None:
    async def scenario() -> None:
        file = CountedFile(50 * MIB)
        server = await MemoryServer().start(serving_slice(file, 50 * MIB))
        slow, other = server.connect(), server.connect()
        slow.reading = False
        slow.send(fetch(1))
        await settle()
        assert file.read_up_to <= MIB
        while server.number(RESPONSE_BYTES) or slow.get_write_buffer_size():
            slow.read(100_000)
            await settle(3)
            assert file.read_up_to - len(slow.received) <= MIB
            assert slow.get_write_buffer_size() <= MIB
        other.send(metadata(2))
        assert other.correlations() == [2]
        assert [len(frame) > 50 * MIB for frame in slow.frames()] == [True]
        assert file.largest_read <= 256 * 1024

    run(scenario())


def test_a_large_response_is_sent_to_a_fast_reader_in_several_steps() -> None:
    async def scenario() -> None:
        file = CountedFile(20 * MIB)
        server = await MemoryServer().start(serving_slice(file, 20 * MIB))
        connection = server.connect()
        connection.send(fetch(1) + metadata(2))
        assert len(connection.received) <= 2 * MIB, "one step sends a bounded amount"
        await settle(100)
        assert connection.correlations() == [1, 2]

    run(scenario())


def test_a_small_slice_and_its_header_are_sent_in_one_write() -> None:
    async def scenario() -> None:
        server = await MemoryServer().start(serving_slice(CountedFile(500), 500))
        connection = server.connect()
        connection.send(fetch(1))
        assert connection.writes == 1
        assert len(connection.frames()) == 1

    run(scenario())


def test_a_slice_that_is_not_in_the_page_cache_is_read_in_a_thread_and_sent_in_order() -> None:
    async def scenario() -> None:
        warm, cold = CountedFile(3 * MIB), CountedFile(3 * MIB, cached=False)
        frames = []
        for file in (warm, cold):
            server = await MemoryServer().start(serving_slice(file, 3 * MIB))
            connection = server.connect()
            connection.send(fetch(1) + metadata(2))
            await settle(200)
            assert connection.correlations() == [1, 2]
            frames.append(connection.frames())
            assert server.offload.runs == (0 if file is warm else 13)
        assert frames[0] == frames[1]

    run(scenario())


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("size", [50 * 1024, 5 * MIB])
def test_a_disk_error_in_the_middle_of_a_response_closes_the_connection(
    cached: bool, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        file = CountedFile(size, cached=cached, fails_at=size // 2)
        server = await MemoryServer().start(serving_slice(file, size))
        connection, other = server.connect(), server.connect()
        connection.send(fetch(1))
        await settle(100)
        assert connection.lost
        other.send(metadata(1))
        assert other.correlations() == [1]
        assert server.number(RESPONSE_BYTES) == 0
        assert len(file.failures) == 1 and "Input/output error" in file.failures[0]

    run(scenario())
    assert [record.getMessage() for record in caplog.records if "Input/output error" in record.getMessage()]


@pytest.mark.parametrize("cached", [True, False])
def test_a_truncated_file_closes_the_connection(cached: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> MemoryTransport:
        file = CountedFile(1000, cached=cached)
        server = await MemoryServer().start(serving_slice(file, 2000))
        connection = server.connect()
        connection.send(fetch(1))
        await settle()
        assert file.failures == []
        return connection

    assert run(scenario()).lost
    assert any("read 1000 of 2000 bytes" in record.getMessage() for record in caplog.records)


def test_a_connection_lost_during_a_cold_read_leaves_no_unsent_bytes() -> None:
    async def scenario() -> None:
        server = await MemoryServer().start(serving_slice(CountedFile(5 * MIB, cached=False), 5 * MIB))
        connection = server.connect()
        connection.send(fetch(1))
        connection.reset()
        await settle()
        assert server.number(RESPONSE_BYTES) == 0

    run(scenario())


def test_a_connection_whose_client_stopped_reading_is_closed_as_idle() -> None:
    async def scenario() -> None:
        server = await MemoryServer().start(serving_slice(CountedFile(50 * MIB), 50 * MIB))
        connection = server.connect()
        connection.reading = False
        connection.send(fetch(1))
        await asyncio.sleep(599)
        assert not connection.closing
        await asyncio.sleep(10)
        assert connection.lost
        assert server.number(RESPONSE_BYTES) == 0

    run(scenario())
