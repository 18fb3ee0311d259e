"""Messages with very many elements: converted in a thread, and rejected above a limit."""

from __future__ import annotations

import logging
import struct
from typing import Any

import pytest

from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.framing import request_parts
from strandline.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from strandline.server.dispatch import ELEMENTS_PER_STEP
from strandline.server.requests import Call
from strandline.server.settings import ServerSettings
from unit.server.memory_server import MemoryServer, MemoryTransport, decode_metadata, handlers, metadata, run, settle

VERSION = 9


def metadata_of(topics: int, correlation: int = 1) -> bytes:
    message = MetadataRequest(topics=[MetadataRequestTopic(name="x")] * topics)
    parts = request_parts(API[ApiKey.METADATA], VERSION, correlation, "test", message)
    return b"".join(part for part in parts if isinstance(part, bytes))


async def handle_metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    return MetadataResponse(topics=[MetadataResponseTopic(name=topic.name) for topic in request.topics or []])


def exchange(handle: Any, *sent: bytes, settings: ServerSettings | None = None) -> tuple[MemoryTransport, MemoryServer]:
    async def scenario() -> tuple[MemoryTransport, MemoryServer]:
        server = await MemoryServer(settings=settings or ServerSettings()).start(handlers(METADATA=handle))
        connection = server.connect()
        for frame in sent:
            connection.send(frame)
            await settle()
        return connection, server

    return run(scenario())


def offloaded(server: MemoryServer) -> int:
    runs: int = server.offload.runs
    return runs


def test_an_ordinary_request_is_decoded_and_encoded_on_the_event_loop() -> None:
    connection, server = exchange(handle_metadata, metadata_of(ELEMENTS_PER_STEP))
    assert len(decode_metadata(connection.frames()[0]).topics) == ELEMENTS_PER_STEP
    assert offloaded(server) == 0


def test_a_large_request_and_its_response_are_converted_in_a_thread() -> None:
    connection, server = exchange(handle_metadata, metadata_of(ELEMENTS_PER_STEP + 1))
    assert len(decode_metadata(connection.frames()[0]).topics) == ELEMENTS_PER_STEP + 1
    assert offloaded(server) == 2


def test_a_handler_may_have_its_response_encoded_in_a_thread() -> None:
    async def handle(call: Call, request: MetadataRequest) -> MetadataResponse:
        call.offload_encoding = True
        return MetadataResponse(cluster_id="c")

    connection, server = exchange(handle, metadata(1))
    assert decode_metadata(connection.frames()[0]).cluster_id == "c"
    assert offloaded(server) == 1


def test_the_error_response_to_a_large_request_is_built_in_a_thread() -> None:
    async def reject(call: Call, request: MetadataRequest) -> MetadataResponse:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

    connection, server = exchange(reject, metadata_of(ELEMENTS_PER_STEP + 1))
    assert len(connection.frames()) == 1
    assert offloaded(server) == 2


def test_a_request_with_too_many_elements_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    settings = ServerSettings(max_request_elements=6_000)
    connection, _ = exchange(handle_metadata, metadata_of(6_000, 1), metadata_of(6_001, 2), settings=settings)
    responses = connection.frames()
    assert [struct.unpack_from(">i", frame)[0] for frame in responses] == [1]
    assert connection.is_closing()
    reasons = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(reasons) == 1 and "more elements than are allowed" in reasons[0]
