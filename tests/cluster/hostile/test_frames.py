"""Bytes that are no requests: the connection is closed with its reason logged once, and nobody else notices."""

from __future__ import annotations

import random
import struct
import time

import pytest

from cluster.handlers.talk import framed
from cluster.hostile.siege import MIB, Besieged, Bystander, Raw
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.metadata import MetadataRequest
from strandline.records.varint import uvarint

pytestmark = pytest.mark.xdist_group("besieged")


def header(key: int, version: int, client_id: bytes | None = None) -> bytes:
    length = -1 if client_id is None else len(client_id)
    flexible = key in API and API[key].is_flexible(version)
    return struct.pack(">hhih", key, version, 7, length) + (client_id or b"") + (b"\0" if flexible else b"")


def frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize("size", [-1, -(2**31), 100 * MIB + 1, 2**31 - 1])
def test_an_impossible_size_closes_the_connection_and_costs_no_memory(
    size: int, besieged: Besieged, bystander: Bystander
) -> None:
    mark, before = besieged.mark(), besieged.rss_mib()
    raw = Raw(besieged)
    raw.send(struct.pack(">i", size) + b"whatever")
    assert raw.frames_until_closed() == []
    assert [str(size) in line for line in besieged.closings_since(mark)] == [True]
    assert besieged.rss_mib() < before + 10


def test_a_promise_of_100_mib_costs_no_memory_before_it_is_kept(besieged: Besieged, bystander: Bystander) -> None:
    before = besieged.rss_mib()
    raws = [Raw(besieged) for _ in range(50)]
    for raw in raws:
        raw.send(struct.pack(">i", 100 * MIB) + header(0, 9))
    time.sleep(0.3)
    assert besieged.rss_mib() < before + 80, "about a mebibyte of room for each"
    for raw in raws:
        raw.reset()


def test_random_bytes_close_the_connection(besieged: Besieged, bystander: Bystander) -> None:
    source = random.Random(20)
    for _ in range(300):
        mark = besieged.mark()
        raw = Raw(besieged)
        raw.send(source.randbytes(source.randrange(8, 4000)))
        raw.socket.shutdown(1)
        raw.frames_until_closed()
        assert len(besieged.closings_since(mark)) <= 1
    besieged.is_healthy()


def test_random_bytes_in_a_frame_of_the_right_size_close_the_connection(
    besieged: Besieged, bystander: Bystander
) -> None:
    source = random.Random(21)
    for _ in range(300):
        mark = besieged.mark()
        raw = Raw(besieged)
        raw.send(frame(source.randbytes(source.randrange(0, 200))))
        raw.socket.shutdown(1)
        raw.frames_until_closed()
        assert len(besieged.closings_since(mark)) <= 1
    besieged.is_healthy()


@pytest.mark.parametrize("controller", [False, True], ids=["broker", "controller"])
def test_keys_and_versions_that_are_not_served_close_the_connection(
    controller: bool, besieged: Besieged, bystander: Bystander
) -> None:
    served = API[ApiKey.METADATA]
    absent = [(4, 0), (7, 1), (93, 0), (999, 0), (-1, 0), (32767, 32767), (ApiKey.JOIN_GROUP, 5), (ApiKey.VOTE, 0)]
    absent += [(served.key, served.max_version + 1), (served.key, -1), (ApiKey.PRODUCE, 2), (ApiKey.FETCH, 3)]
    for key, version in absent:
        mark = besieged.mark()
        raw = Raw(besieged, controller=controller)
        raw.send(frame(header(key, version) + bytes(50)))
        assert raw.frames_until_closed() == []
        assert len(besieged.closings_since(mark)) == 1


def test_absurd_counts_close_the_connection_and_cost_no_memory(besieged: Besieged, bystander: Bystander) -> None:
    """Wherever a request may begin with a list: a count that the bytes behind it cannot hold."""
    before = besieged.rss_mib()
    source = random.Random(22)
    for key in (ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_CONFIGS, ApiKey.DELETE_RECORDS, ApiKey.FETCH):
        api = API[key]
        for version in range(api.min_version, api.max_version + 1):
            count = uvarint(2**31 - 1) if api.is_flexible(version) else struct.pack(">i", 2**31 - 1)
            for padding in (0, 4, 13, 17, 21, 25):
                raw = Raw(besieged)
                raw.send(frame(header(key, version) + bytes(padding) + count + source.randbytes(30)))
                raw.socket.shutdown(1)
                raw.frames_until_closed()
    assert besieged.rss_mib() < before + 20


def test_garbage_behind_good_requests_does_not_spoil_them(besieged: Besieged, bystander: Bystander) -> None:
    mark = besieged.mark()
    raw = Raw(besieged)
    good = b"".join(framed(MetadataRequest(topics=[]), 9, correlation) for correlation in range(5))
    raw.send(good + b"\xff" * 1000 + good)
    answered = raw.frames_until_closed()
    assert [struct.unpack_from(">i", answer)[0] for answer in answered] == [0, 1, 2, 3, 4]
    assert len(besieged.closings_since(mark)) == 1


def test_a_client_id_cannot_forge_a_line_of_the_log_nor_fill_it(besieged: Besieged, bystander: Bystander) -> None:
    mark = besieged.mark()
    raw = Raw(besieged)
    forged = b"x\n[2030-01-01 00:00:00] CRITICAL all is lost (node)\n" + b"y" * 30_000
    raw.send(frame(header(ApiKey.PRODUCE, 9, forged) + b"\x01\x00\x00" + bytes(100)))
    raw.frames_until_closed()
    said = besieged.said_since(mark)
    assert "\n[2030-01-01" not in said and len(said) < 2000


def test_a_frame_may_come_byte_by_byte(besieged: Besieged, bystander: Bystander) -> None:
    raw = Raw(besieged)
    for byte in framed(ApiVersionsRequest(), 0, 77):
        raw.send(bytes([byte]))
        time.sleep(0.002)
    size = struct.unpack(">i", raw.socket.recv(4))[0]
    assert size > 100 and struct.unpack(">i", raw.socket.recv(4))[0] == 77
    raw.close()


@pytest.mark.slow
def test_a_frame_that_is_begun_and_not_finished_ends_after_half_a_minute(
    besieged: Besieged, bystander: Bystander
) -> None:
    mark = besieged.mark()
    whole = framed(MetadataRequest(topics=[]), 9)
    silent = [Raw(besieged) for _ in range(50)]
    for raw in silent:
        raw.send(whole[:-1])
    trickling = Raw(besieged)
    trickling.send(struct.pack(">i", 10_000))
    until = time.monotonic() + 60
    while time.monotonic() < until and not trickling.is_closed_within(0.2):
        trickling.send(b"x")
    assert time.monotonic() < until, "a byte now and then is no progress"
    assert all(raw.is_closed_within(30) for raw in silent)
    assert len(besieged.closings_since(mark)) == 51
