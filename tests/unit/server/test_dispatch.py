"""The error boundary: every kind of failure has one outcome, and other connections are not affected."""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Any

import pytest

from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.protocol.codec import decode
from strandline.protocol.messages.api_versions import ApiVersionsResponse
from strandline.protocol.messages.metadata import MetadataResponse
from strandline.server.requests import Call
from unit.server.memory_server import (
    MemoryServer,
    MemoryTransport,
    api_versions,
    decode_metadata,
    fetch,
    handle_api_versions,
    handle_metadata,
    handle_produce,
    handlers,
    metadata,
    produce,
    run,
    settle,
)

PARKED = "strandline.server:type=Requests,name=ParkedRequests"


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def exchange(table: Any, *sent: bytes, **options: Any) -> tuple[MemoryTransport, MemoryServer]:
    """Sends frames over one connection."""

    async def scenario() -> tuple[MemoryTransport, MemoryServer]:
        server = await MemoryServer(**options).start(table)
        connection = server.connect()
        for frame in sent:
            connection.send(frame)
            await settle()
        return connection, server

    return run(scenario())


def test_an_unknown_version_of_api_versions_gets_the_supported_range_in_version_0() -> None:
    frame = struct.pack(">hhih", 18, 99, 5, 4) + b"test" + b"\0" + b"a field of a newer version"
    connection, _ = exchange(
        handlers(API_VERSIONS=handle_api_versions), struct.pack(">i", len(frame)) + frame, api_versions(6)
    )
    first, second = connection.frames()
    response, end = decode(ApiVersionsResponse, 0, first, 4)
    assert struct.unpack_from(">i", first) == (5,)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(18, 0, 4)]
    assert end == len(first)
    assert decode(ApiVersionsResponse, 3, second, 4)[0].error_code == 0, "the connection stays open"


@pytest.mark.parametrize(
    ("key", "version", "reason"),
    [
        (999, 0, "api key 999"),
        (-1, 0, "api key -1"),
        (1, 12, "api key 1"),
        (3, 99, "version 99"),
        (3, -1, "version -1"),
    ],
)
def test_an_api_or_version_that_is_not_served_closes_the_connection(
    key: int, version: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    frame = struct.pack(">hhih", key, version, 5, 4) + b"test" + bytes(20)
    connection, _ = exchange(handlers(METADATA=handle_metadata), struct.pack(">i", len(frame)) + frame)
    assert connection.lost
    assert connection.received == b""
    assert len(reasons(caplog)) == 1
    assert reason in reasons(caplog)[0]


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\3\0\1\0\0\0\1\x7f\xff", b"\0\3\0\11\0\0\0\1\0\2\xff\xfe\0"])
def test_a_malformed_header_closes_the_connection(frame: bytes, caplog: pytest.LogCaptureFixture) -> None:
    connection, _ = exchange(handlers(METADATA=handle_metadata), struct.pack(">i", len(frame)) + frame)
    assert connection.lost
    assert connection.received == b""
    assert len(reasons(caplog)) == 1


def test_a_malformed_body_closes_the_connection_and_frees_its_slot(caplog: pytest.LogCaptureFixture) -> None:
    frame = struct.pack(">hhih", 3, 1, 5, 4) + b"test" + struct.pack(">i", 2**31 - 1)
    connection, server = exchange(handlers(METADATA=handle_metadata), struct.pack(">i", len(frame)) + frame)
    assert connection.lost
    assert "malformed Metadata v1 request" in reasons(caplog)[0]
    pool = "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent"
    assert server.metrics.snapshot(0)[pool] == 1.0


def test_a_kafka_error_becomes_the_error_response_of_the_api() -> None:
    async def reject(call: Call, request: Any) -> MetadataResponse:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "not like this")

    connection, _ = exchange(handlers(METADATA=reject), metadata(1), metadata(2))
    assert [decode_metadata(frame).cluster_id for frame in connection.frames()] == [
        "INVALID_REQUEST: not like this"
    ] * 2
    assert not connection.closing


def test_an_unexpected_error_is_logged_once_with_its_request_and_returned_as_unknown_server_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(call: Call, request: Any) -> MetadataResponse:
        call.park()
        await asyncio.sleep(1)
        return {}["secret payload"]  # type: ignore[no-any-return]

    async def scenario() -> None:
        server = await MemoryServer().start(handlers(METADATA=fail))
        connection = server.connect()
        connection.send(metadata(41, client_id="the\nclient"))
        await asyncio.sleep(2)
        assert str(decode_metadata(connection.frames()[0]).cluster_id).startswith("UNKNOWN_SERVER_ERROR")
        assert not connection.closing
        assert server.number(PARKED) == 0

    run(scenario())
    (reason,) = reasons(caplog)
    for detail in ("Metadata", "v9", r"'the\nclient'", "41", "10.0.0.1"):
        assert detail in reason
    assert caplog.records[-1].exc_info is not None


def test_an_unexpected_error_in_produce_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(call: Call, request: Any) -> Any:
        raise RuntimeError("after the append, perhaps")

    connection, _ = exchange(handlers(PRODUCE=fail), produce(1))
    assert connection.lost
    assert connection.received == b""
    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_a_response_that_cannot_be_encoded_is_an_unexpected_error() -> None:
    async def handle(call: Call, request: Any) -> MetadataResponse:
        return MetadataResponse(cluster_id=object())  # type: ignore[arg-type]

    connection, _ = exchange(handlers(METADATA=handle), metadata(1))
    assert str(decode_metadata(connection.frames()[0]).cluster_id).startswith("UNKNOWN_SERVER_ERROR")


def test_an_error_of_a_request_without_response_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def reject(call: Call, request: Any) -> Any:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "gone")

    connection, _ = exchange(handlers(PRODUCE=reject), produce(1, acks=0))
    assert connection.lost
    assert "NOT_LEADER_OR_FOLLOWER: gone" in reasons(caplog)[0]


def test_a_handler_can_close_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def abort(call: Call, request: Any) -> Any:
        raise ConnectionAbortedError("a partition failed and acks=0 has no response")

    connection, _ = exchange(handlers(PRODUCE=abort), produce(1, acks=0))
    assert connection.lost
    assert reasons(caplog)[0].endswith("a partition failed and acks=0 has no response")


def test_a_node_fault_in_a_handler_reaches_the_node() -> None:
    fault = NodeFault("the metadata directory failed")

    async def fail(call: Call, request: Any) -> Any:
        raise fault

    connection, server = exchange(handlers(METADATA=fail), metadata(1))
    assert server.faults == [fault]
    assert connection.lost


def test_a_handler_whose_wait_is_cancelled_closes_the_connection() -> None:
    async def scenario() -> None:
        future = asyncio.get_running_loop().create_future()

        async def wait(call: Call, request: Any) -> Any:
            call.park()
            await future

        server = await MemoryServer().start(handlers(METADATA=wait, FETCH=wait))
        waiting, late = server.connect(), server.connect()
        waiting.send(metadata(1))
        future.cancel()
        await settle()
        assert waiting.lost
        late.send(metadata(2))
        await settle()
        assert late.lost
        assert server.number(PARKED) == 0

    run(scenario())


def test_a_request_that_is_not_authorised_does_not_reach_its_handler() -> None:
    seen: list[int] = []

    async def handle(call: Call, request: Any) -> MetadataResponse:
        seen.append(call.correlation_id)
        return MetadataResponse(cluster_id="yes")

    def authorise(call: Call, request: Any) -> None:
        if call.principal != "User:ANONYMOUS" or call.correlation_id == 1:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")

    connection, _ = exchange(handlers(METADATA=handle), metadata(1), metadata(2), authorise=authorise)
    cluster_ids = [decode_metadata(frame).cluster_id for frame in connection.frames()]
    assert cluster_ids == ["CLUSTER_AUTHORIZATION_FAILED: no", "yes"]
    assert seen == [2]


def test_a_call_has_the_client_and_the_listener_of_its_request() -> None:
    seen: list[Call] = []

    async def handle(call: Call, request: Any) -> MetadataResponse:
        seen.append(call)
        return MetadataResponse()

    frame = metadata(-7, client_id="käfer")
    exchange(handlers(METADATA=handle), frame)
    (call,) = seen
    assert (call.api_key, call.version, call.correlation_id, call.client_id) == (3, 9, -7, "käfer")
    assert (call.listener, call.client_host, call.principal) == ("CLIENTS", "10.0.0.1", "User:ANONYMOUS")
    assert call.size_bytes == len(frame) - 4


def test_requests_are_counted_and_timed_by_their_api() -> None:
    async def scenario() -> dict[str, float]:
        async def poll(call: Call, request: Any) -> Any:
            call.park()
            await asyncio.sleep(0.3)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

        server = await MemoryServer().start(handlers(PRODUCE=handle_produce, FETCH=poll))
        connection = server.connect()
        connection.send(produce(1) + produce(2, acks=0) + fetch(3))
        await asyncio.sleep(1)
        return server.metrics.snapshot(1000)

    numbers = run(scenario())
    time_ms = "kafka.network:type=RequestMetrics,name=TotalTimeMs,request="
    assert numbers[time_ms + "Produce,attribute=Count"] == 2
    assert numbers[time_ms + "Fetch,attribute=Count"] == 1
    assert 290 <= numbers[time_ms + "Fetch,attribute=Max"] <= 310
    assert numbers["kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=Fetch"] == 1
