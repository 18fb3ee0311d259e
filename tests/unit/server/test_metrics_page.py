"""Somebody who asks a listener in HTTP."""

from __future__ import annotations

import pytest

from strandline.server.settings import ServerSettings
from unit.server.memory_server import MemoryServer, handlers, metadata, run, say_metadata, settle

QUESTION = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("pieces", [[QUESTION], [QUESTION[:2], QUESTION[2:]]], ids=["at once", "in pieces"])
def test_is_shown_the_numbers_and_let_go(pieces: list[bytes], caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        house = await MemoryServer().start(handlers(METADATA=say_metadata))
        client = house.connect()
        client.send(metadata(1))
        wire = house.connect()
        for piece in pieces:
            wire.send(piece)
        await settle()
        head, _, body = bytes(wire.received).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n") and f"Content-Length: {len(body)}".encode() in head
        assert b"kafka_server_socket_server_metrics_connection_count 2\n" in body
        assert b'kafka_network_requestmetrics_totaltimems_count{request="Metadata"} 1\n' in body
        assert wire.lost and not client.lost

    run(scenario())
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def test_is_refused_like_any_frame_of_that_size_when_there_is_no_page(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        house = await MemoryServer(ServerSettings(metrics_page=False)).start(handlers(METADATA=say_metadata))
        wire = house.connect()
        wire.send(QUESTION)
        await settle()
        assert wire.lost and bytes(wire.received) == b""

    run(scenario())
    assert "a frame of 1195725856 bytes" in caplog.text
