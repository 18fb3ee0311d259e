"""Requests and answers of very many elements: away from the event loop, and beyond a limit not at all."""

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
from unit.server.memory_server import MemoryServer, MemoryTransport, handlers, metadata, metadata_answer, run, settle

VERSION = 9


def asking(topics: int, correlation: int = 1) -> bytes:
    message = MetadataRequest(topics=[MetadataRequestTopic(name="x")] * topics)
    parts = request_parts(API[ApiKey.METADATA], VERSION, correlation, "test", message)
    return b"".join(part for part in parts if isinstance(part, bytes))


async def repeat(call: Call, request: MetadataRequest) -> MetadataResponse:
    return MetadataResponse(topics=[MetadataResponseTopic(name=topic.name) for topic in request.topics or []])


def exchange(handle: Any, *sent: bytes, settings: ServerSettings | None = None) -> tuple[MemoryTransport, MemoryServer]:
    async def scenario() -> tuple[MemoryTransport, MemoryServer]:
        house = await MemoryServer(settings=settings or ServerSettings()).start(handlers(METADATA=handle))
        wire = house.connect()
        for frame in sent:
            wire.send(frame)
            await settle()
        return wire, house

    return run(scenario())


def offloaded(house: MemoryServer) -> int:
    runs: int = house.offload.runs
    return runs


def test_an_ordinary_request_is_decoded_and_answered_at_once() -> None:
    wire, house = exchange(repeat, asking(ELEMENTS_PER_STEP))
    assert len(metadata_answer(wire.frames()[0]).topics) == ELEMENTS_PER_STEP
    assert offloaded(house) == 0


def test_a_large_request_is_decoded_elsewhere_and_so_is_its_answer() -> None:
    wire, house = exchange(repeat, asking(ELEMENTS_PER_STEP + 1))
    assert len(metadata_answer(wire.frames()[0]).topics) == ELEMENTS_PER_STEP + 1
    assert offloaded(house) == 2


def test_a_handler_may_send_the_encoding_of_its_answer_elsewhere() -> None:
    async def much(call: Call, request: MetadataRequest) -> MetadataResponse:
        call.offload_encoding = True
        return MetadataResponse(cluster_id="c")

    wire, house = exchange(much, metadata(1))
    assert metadata_answer(wire.frames()[0]).cluster_id == "c"
    assert offloaded(house) == 1


def test_the_refusal_of_a_large_request_is_made_elsewhere_too() -> None:
    async def refuse(call: Call, request: MetadataRequest) -> MetadataResponse:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

    wire, house = exchange(refuse, asking(ELEMENTS_PER_STEP + 1))
    assert len(wire.frames()) == 1
    assert offloaded(house) == 2


def test_a_request_of_too_many_elements_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    settings = ServerSettings(max_request_elements=6_000)
    wire, _ = exchange(repeat, asking(6_000, 1), asking(6_001, 2), settings=settings)
    answered = wire.frames()
    assert [struct.unpack_from(">i", frame)[0] for frame in answered] == [1]
    assert wire.is_closing()
    reasons = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(reasons) == 1 and "more elements than are allowed" in reasons[0]
