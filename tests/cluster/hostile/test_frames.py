"""Invalid frames: the node closes the connection and logs the reason once; other connections are not affected."""

from __future__ import annotations

import random
import struct
import time

import pytest

from cluster.connection import frame_request
from cluster.hostile.node_under_attack import MIB, NodeUnderAttack, OrdinaryClient, RawClient
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.metadata import MetadataRequest
from strandline.records.varint import uvarint

pytestmark = pytest.mark.xdist_group("hostile")


def header(key: int, version: int, client_id: bytes | None = None) -> bytes:
    length = -1 if client_id is None else len(client_id)
    flexible = key in API and API[key].is_flexible(version)
    return struct.pack(">hhih", key, version, 7, length) + (client_id or b"") + (b"\0" if flexible else b"")


def frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize("size", [-1, -(2**31), 100 * MIB + 1, 2**31 - 1])
def test_an_invalid_frame_size_closes_the_connection_and_costs_no_memory(
    size: int, node: NodeUnderAttack, ordinary_client: OrdinaryClient
) -> None:
    position, before = node.log_position(), node.memory_mib()
    raw = RawClient(node)
    raw.send(struct.pack(">i", size) + b"whatever")
    assert raw.frames_until_closed() == []
    assert [str(size) in line for line in node.disconnects_since(position)] == [True]
    assert node.memory_mib() < before + 10


def test_a_frame_size_of_100_mib_allocates_no_memory_before_the_bytes_arrive(
    node: NodeUnderAttack, ordinary_client: OrdinaryClient
) -> None:
    before = node.memory_mib()
    raws = [RawClient(node) for _ in range(50)]
    for raw in raws:
        raw.send(struct.pack(">i", 100 * MIB) + header(0, 9))
    time.sleep(0.3)
    assert node.memory_mib() < before + 80, "about a mebibyte of buffer for each"
    for raw in raws:
        raw.reset()


def test_random_bytes_close_the_connection(node: NodeUnderAttack, ordinary_client: OrdinaryClient) -> None:
    source = random.Random(20)
    for _ in range(300):
        position = node.log_position()
        raw = RawClient(node)
        raw.send(source.randbytes(source.randrange(8, 4000)))
        raw.socket.shutdown(1)
        raw.frames_until_closed()
        assert len(node.disconnects_since(position)) <= 1
    node.check_responds()


def test_random_bytes_in_a_frame_of_the_right_size_close_the_connection(
    node: NodeUnderAttack, ordinary_client: OrdinaryClient
) -> None:
    source = random.Random(21)
    for _ in range(300):
        position = node.log_position()
        raw = RawClient(node)
        raw.send(frame(source.randbytes(source.randrange(0, 200))))
        raw.socket.shutdown(1)
        raw.frames_until_closed()
        assert len(node.disconnects_since(position)) <= 1
    node.check_responds()


@pytest.mark.parametrize("controller", [False, True], ids=["broker", "controller"])
def test_unsupported_keys_and_versions_close_the_connection(
    controller: bool, node: NodeUnderAttack, ordinary_client: OrdinaryClient
) -> None:
    served = API[ApiKey.METADATA]
    absent = [(4, 0), (7, 1), (93, 0), (999, 0), (-1, 0), (32767, 32767), (ApiKey.SHARE_FETCH, 1), (ApiKey.VOTE, 0)]
    absent += [(served.key, served.max_version + 1), (served.key, -1), (ApiKey.PRODUCE, 2), (ApiKey.FETCH, 3)]
    for key, version in absent:
        position = node.log_position()
        raw = RawClient(node, controller=controller)
        raw.send(frame(header(key, version) + bytes(50)))
        assert raw.frames_until_closed() == []
        assert len(node.disconnects_since(position)) == 1


def test_list_lengths_beyond_the_frame_close_the_connection_and_cost_no_memory(
    node: NodeUnderAttack, ordinary_client: OrdinaryClient
) -> None:
    """A length that the rest of the frame cannot hold, at every position where a request may have a list."""
    before = node.memory_mib()
    source = random.Random(22)
    for key in (ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_CONFIGS, ApiKey.DELETE_RECORDS, ApiKey.FETCH):
        api = API[key]
        for version in range(api.min_version, api.max_version + 1):
            count = uvarint(2**31 - 1) if api.is_flexible(version) else struct.pack(">i", 2**31 - 1)
            for padding in (0, 4, 13, 17, 21, 25):
                raw = RawClient(node)
                raw.send(frame(header(key, version) + bytes(padding) + count + source.randbytes(30)))
                raw.socket.shutdown(1)
                raw.frames_until_closed()
    assert node.memory_mib() < before + 20


def test_requests_before_invalid_bytes_are_handled(node: NodeUnderAttack, ordinary_client: OrdinaryClient) -> None:
    position = node.log_position()
    raw = RawClient(node)
    good = b"".join(frame_request(MetadataRequest(topics=[]), 9, correlation) for correlation in range(5))
    raw.send(good + b"\xff" * 1000 + good)
    responses = raw.frames_until_closed()
    assert [struct.unpack_from(">i", response)[0] for response in responses] == [0, 1, 2, 3, 4]
    assert len(node.disconnects_since(position)) == 1


def test_a_client_id_cannot_add_lines_to_the_log_nor_fill_it(
    node: NodeUnderAttack, ordinary_client: OrdinaryClient
) -> None:
    position = node.log_position()
    raw = RawClient(node)
    forged = b"x\n[2030-01-01 00:00:00] CRITICAL all is lost (node)\n" + b"y" * 30_000
    raw.send(frame(header(ApiKey.PRODUCE, 9, forged) + b"\x01\x00\x00" + bytes(100)))
    raw.frames_until_closed()
    text = node.log_since(position)
    assert "\n[2030-01-01" not in text and len(text) < 2000


def test_a_frame_may_arrive_byte_by_byte(node: NodeUnderAttack, ordinary_client: OrdinaryClient) -> None:
    raw = RawClient(node)
    for byte in frame_request(ApiVersionsRequest(), 0, 77):
        raw.send(bytes([byte]))
        time.sleep(0.002)
    size = struct.unpack(">i", raw.socket.recv(4))[0]
    assert size > 100 and struct.unpack(">i", raw.socket.recv(4))[0] == 77
    raw.close()
