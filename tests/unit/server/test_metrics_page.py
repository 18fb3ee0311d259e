"""HTTP requests on a Kafka listener."""

from __future__ import annotations

import pytest

from strandline.server.settings import ServerSettings
from unit.server.memory_server import MemoryServer, handle_metadata, handlers, metadata, run, settle

HTTP_REQUEST = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("pieces", [[HTTP_REQUEST], [HTTP_REQUEST[:2], HTTP_REQUEST[2:]]], ids=["at once", "in pieces"])
def test_an_http_request_gets_the_metrics_and_the_connection_is_closed(
    pieces: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        server = await MemoryServer().start(handlers(METADATA=handle_metadata))
        client = server.connect()
        client.send(metadata(1))
        connection = server.connect()
        for piece in pieces:
            connection.send(piece)
        await settle()
        head, _, body = bytes(connection.received).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n") and f"Content-Length: {len(body)}".encode() in head
        assert b"kafka_server_socket_server_metrics_connection_count 2\n" in body
        assert b'kafka_network_requestmetrics_totaltimems_count{request="Metadata"} 1\n' in body
        assert connection.lost and not client.lost

    run(scenario())
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def test_an_http_request_is_rejected_as_a_frame_of_invalid_size_when_the_page_is_disabled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        server = await MemoryServer(ServerSettings(metrics_page=False)).start(handlers(METADATA=handle_metadata))
        connection = server.connect()
        connection.send(HTTP_REQUEST)
        await settle()
        assert connection.lost and bytes(connection.received) == b""

    run(scenario())
    assert "a frame of 1195725856 bytes" in caplog.text
