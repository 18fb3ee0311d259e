"""Splitting a stream into frames, and the headers of requests and responses."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.apis import API, ApiKey
from strandline.protocol.codec import EncodeError, MalformedMessage, decode, encode_bytes
from strandline.protocol.framing import (
    MAX_INITIAL_BUFFER_BYTES,
    RECEIVE_BUFFER_BYTES,
    FrameParser,
    InvalidFrameSize,
    RequestHeader,
    decode_header,
    decode_response_header,
    request_parts,
    response_parts,
)
from strandline.protocol.messages import headers
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from strandline.protocol.messages.metadata import MetadataRequest, MetadataResponse
from strandline.runtime.file_slice import FileSlice, Part

LIMIT = 100 * 1024 * 1024


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def joined(parts: Iterable[Part]) -> bytes:
    return b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)


def receive(parser: FrameParser, stream: bytes, chunk: int) -> list[bytearray]:
    """Feeds a parser like a socket: at most what fits into its buffer, frames taken after every receive."""
    frames = []
    view = memoryview(stream)
    while len(view):
        room = parser.get_buffer(-1)
        assert len(room) > 0
        count = min(len(room), len(view), chunk)
        room[:count] = view[:count]
        parser.buffer_updated(count)
        view = view[count:]
        while (frame := parser.next_frame()) is not None:
            frames.append(frame)
    return frames


@settings(max_examples=60, deadline=None, database=None)
@given(
    sizes=st.lists(
        st.one_of(
            st.integers(0, 300),
            st.integers(RECEIVE_BUFFER_BYTES - 8, RECEIVE_BUFFER_BYTES + 8),
            st.integers(RECEIVE_BUFFER_BYTES, 300_000),
        ),
        max_size=8,
    ),
    chunk=st.one_of(st.integers(1, 100), st.integers(1000, 500_000)),
)
def test_frames_are_returned_as_they_were_sent_however_their_bytes_arrive(sizes: list[int], chunk: int) -> None:
    chunk = max(chunk, sum(sizes) // 2000)
    bodies = [Random(index).randbytes(size) for index, size in enumerate(sizes)]
    frames = receive(FrameParser(LIMIT), b"".join(map(framed, bodies)), chunk)
    assert [bytes(frame) for frame in frames] == bodies


@settings(max_examples=60, deadline=None, database=None)
@given(seed=st.integers(0, 2**32), connections=st.integers(2, 5))
def test_connections_that_share_a_buffer_do_not_see_each_others_bytes(seed: int, connections: int) -> None:
    """Also when frames are not taken at once."""
    random = Random(seed)
    shared = bytearray(RECEIVE_BUFFER_BYTES)
    parsers = [FrameParser(LIMIT, shared) for _ in range(connections)]
    bodies = [
        [random.randbytes(random.choice((0, 5, 300, 40_000, 70_000, 200_000))) for _ in range(5)] for _ in parsers
    ]
    streams = [memoryview(b"".join(map(framed, each))) for each in bodies]
    frames: list[list[bytes]] = [[] for _ in parsers]
    while any(streams):
        number = random.randrange(connections)
        parser, stream = parsers[number], streams[number]
        if stream:
            room = parser.get_buffer()
            count = min(len(room), len(stream), random.choice((1, 3, 1_000, 100_000)))
            room[:count] = stream[:count]
            parser.buffer_updated(count)
            streams[number] = stream[count:]
        while random.random() < 0.9 and (frame := parser.next_frame()) is not None:
            frames[number].append(bytes(frame))
        parser.release_shared_buffer()
    for parser, taken in zip(parsers, frames, strict=True):
        while (frame := parser.next_frame()) is not None:
            taken.append(bytes(frame))
    assert frames == bodies


def test_a_frame_may_arrive_byte_by_byte() -> None:
    bodies = [b"a", b"", b"hello" * 20]
    assert [bytes(f) for f in receive(FrameParser(LIMIT), b"".join(map(framed, bodies)), 1)] == bodies


def test_data_can_be_received_in_any_amount() -> None:
    bodies = [b"x" * 10, b"y" * 200_000, b"z" * 3_000_000, b""]
    parser = FrameParser(LIMIT)
    parser.receive_data(framed(bodies[0]))
    parser.receive_data(framed(bodies[1])[:90_000])
    assert parser.next_frame() == bodies[0]
    assert parser.next_frame() is None
    parser.receive_data(framed(bodies[1])[90_000:])
    assert parser.next_frame() == bodies[1]
    parser.receive_data(framed(bodies[2]))
    assert parser.next_frame() == bodies[2]
    parser.receive_data(framed(bodies[3]))
    assert parser.next_frame() == b""
    assert parser.next_frame() is None
    assert parser.waiting_bytes == 0


def test_frames_of_any_size_can_be_received_at_once() -> None:
    bodies = [b"a", b"x" * 200_000, b"b", b"y" * 70_000, b"z" * 1_100_000, b"c" * 300]
    parser = FrameParser(LIMIT)
    parser.receive_data(b"".join(map(framed, bodies)))
    assert parser.waiting_bytes == sum(len(body) + 4 for body in bodies)
    assert [bytes(parser.next_frame() or b"") for _ in bodies] == bodies
    assert parser.next_frame() is None
    parser.receive_data(framed(bodies[1]) + framed(bodies[4]) + framed(b"end"))
    assert [bytes(parser.next_frame() or b"") for _ in range(3)] == [bodies[1], bodies[4], b"end"]


def test_the_buffer_grows_for_frames_that_are_not_taken_and_shrinks_again() -> None:
    parser = FrameParser(LIMIT)
    bodies = [bytes([index]) * 30_000 for index in range(10)]
    parser.receive_data(b"".join(map(framed, bodies)))
    assert parser.waiting_bytes == 10 * 30_004
    assert [bytes(parser.next_frame() or b"") for _ in bodies] == bodies
    assert len(parser.get_buffer()) == RECEIVE_BUFFER_BYTES


def test_frames_are_writable_and_later_receives_do_not_touch_them() -> None:
    parser = FrameParser(LIMIT)
    small, large = receive(parser, framed(b"small") + framed(b"L" * 200_000), 70_000)
    small[0:1] = b"S"
    large[0:1] = b"l"
    receive(parser, framed(b"other") + framed(b"o" * 200_000), 70_000)
    assert small == b"Small"
    assert large == b"l" + b"L" * 199_999


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_size_outside_the_limits_is_rejected_before_anything_is_allocated(size: int) -> None:
    parser = FrameParser(1000)
    parser.receive_data(size.to_bytes(4, "big", signed=True))
    with pytest.raises(InvalidFrameSize) as rejected:
        parser.next_frame()
    assert rejected.value.size == size
    assert isinstance(rejected.value, MalformedMessage)


def test_a_frame_of_exactly_the_limit_is_accepted() -> None:
    assert len(receive(FrameParser(1000), framed(bytes(1000)), 64)[0]) == 1000


def test_the_buffer_of_a_large_frame_grows_with_the_bytes_that_arrive() -> None:
    parser = FrameParser(LIMIT)
    parser.receive_data((90 * 1024 * 1024).to_bytes(4, "big"))
    assert parser.next_frame() is None
    assert len(parser.get_buffer()) == RECEIVE_BUFFER_BYTES
    parser.receive_data(bytes(RECEIVE_BUFFER_BYTES))
    assert len(parser.get_buffer()) == RECEIVE_BUFFER_BYTES
    assert parser.waiting_bytes == RECEIVE_BUFFER_BYTES and parser.held_bytes >= 2 * RECEIVE_BUFFER_BYTES


def test_the_buffer_of_a_large_frame_starts_with_the_size_of_earlier_frames_up_to_a_mebibyte() -> None:
    parser = FrameParser(LIMIT)
    for size, room in ((300_000, RECEIVE_BUFFER_BYTES), (90_000_000, 300_000), (90_000_000, MAX_INITIAL_BUFFER_BYTES)):
        parser.receive_data(size.to_bytes(4, "big"))
        assert parser.next_frame() is None
        assert len(parser.get_buffer()) == room
        parser.receive_data(bytes(size))
        frame = parser.next_frame()
        assert frame is not None and len(frame) == size


def test_a_frame_like_an_earlier_one_is_received_without_copying() -> None:
    parser = FrameParser(LIMIT)
    parser.receive_data(framed(bytes(1_000_000)))
    assert parser.next_frame() == bytes(1_000_000)
    parser.receive_data((1_000_000).to_bytes(4, "big"))
    parser.next_frame()
    buffer = parser.get_buffer().obj
    parser.receive_data(bytes(1_000_000))
    assert parser.next_frame() is buffer


def test_an_idle_parser_holds_no_buffer() -> None:
    parser = FrameParser(LIMIT)
    assert parser.waiting_bytes == 0
    assert parser.next_frame() is None


def test_a_parser_without_waiting_bytes_returns_to_the_shared_buffer() -> None:
    shared = bytearray(RECEIVE_BUFFER_BYTES)
    parser = FrameParser(LIMIT, shared)
    frame = framed(b"hello")
    for part in (frame + frame[:6], frame[6:]):
        parser.get_buffer()[: len(part)] = part
        parser.buffer_updated(len(part))
        assert parser.next_frame() == b"hello"
        parser.release_shared_buffer()
        assert (parser.get_buffer().obj is shared) is (parser.waiting_bytes == 0)
    assert parser.waiting_bytes == 0


def test_an_api_versions_request_has_the_bytes_of_kafka_clients() -> None:
    data = joined(request_parts(API[ApiKey.API_VERSIONS], 3, 1, "test", ApiVersionsRequest("demo", "1.0")))
    assert data == bytes.fromhex("000000190012000300000001000474657374000564656d6f04312e3000")
    header, body = decode_header(data[4:])
    assert header == RequestHeader(18, 3, 1, "test")
    assert decode(ApiVersionsRequest, 3, data[4:], body)[0] == ApiVersionsRequest("demo", "1.0")


@pytest.mark.parametrize("client_id", [None, "", "client"])
@pytest.mark.parametrize(("version", "header_version"), [(8, 1), (9, 2)])
def test_headers_equal_the_declared_header_messages(client_id: str | None, version: int, header_version: int) -> None:
    api = API[ApiKey.METADATA]
    expected = headers.RequestHeader(api.key, version, 7, client_id)
    request = joined(request_parts(api, version, 7, client_id, MetadataRequest()))
    assert request[4:].startswith(encode_bytes(expected, header_version))
    response = joined(response_parts(7, api, version, MetadataResponse()))
    assert response[4:].startswith(encode_bytes(headers.ResponseHeader(7), header_version - 1))


def test_a_request_that_is_not_flexible_has_no_tags_in_its_header() -> None:
    data = joined(request_parts(API[ApiKey.METADATA], 8, -5, None, MetadataRequest(topics=None)))
    header, body = decode_header(data[4:])
    assert header == RequestHeader(3, 8, -5, "")
    assert body == 10


def test_tags_of_a_request_header_are_skipped() -> None:
    frame = bytes.fromhex("0003 0009 00000001 0001 61 02 0001ff 8001 00") + b"body"
    assert decode_header(frame)[1] == len(frame) - 4


def test_the_header_of_an_unknown_api_key_is_read_as_version_1() -> None:
    header, body = decode_header(bytes.fromhex("7fff 0009 00000001 0001 61 ff"))
    assert (header, body) == (RequestHeader(0x7FFF, 9, 1, "a"), 11)


@pytest.mark.parametrize(
    "frame", ["", "0003", "0003 0009 00000001", "0003 0009 00000001 0005 61", "0003 0009 00000001 0001 ff 00"]
)
def test_a_broken_request_header_is_malformed(frame: str) -> None:
    with pytest.raises(MalformedMessage):
        decode_header(bytes.fromhex(frame))


@pytest.mark.parametrize("tags", ["", "01", "01 00", "01 00 05 00", "ffffffffff01"])
def test_broken_tags_of_a_request_header_are_malformed(tags: str) -> None:
    with pytest.raises(MalformedMessage):
        decode_header(bytes.fromhex("0003 0009 00000001 0001 61" + tags))


def test_a_client_id_that_is_too_long_is_rejected() -> None:
    with pytest.raises(EncodeError):
        request_parts(API[ApiKey.METADATA], 9, 1, "x" * 40_000, MetadataRequest())


@pytest.mark.parametrize(("version", "header_bytes"), [(8, 4), (9, 5)])
def test_a_flexible_response_has_tags_in_its_header(version: int, header_bytes: int) -> None:
    api = API[ApiKey.METADATA]
    data = joined(response_parts(77, api, version, MetadataResponse(cluster_id="c")))
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert decode_response_header(data[4:], api, version) == (77, header_bytes)
    assert decode(MetadataResponse, version, data[4:], header_bytes)[0].cluster_id == "c"


def test_an_api_versions_response_has_header_version_0_in_every_version() -> None:
    api = API[ApiKey.API_VERSIONS]
    for version in range(5):
        data = joined(response_parts(9, api, version, ApiVersionsResponse(error_code=35)))
        assert decode_response_header(data[4:], api, version) == (9, 4)
        assert decode(ApiVersionsResponse, version, data[4:], 4)[0].error_code == 35


def test_the_size_of_a_frame_includes_parts_that_are_not_copied() -> None:
    records = bytearray(50_000)
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=records)])])
    parts = response_parts(1, API[ApiKey.FETCH], 16, response)
    assert any(part is records for part in parts)
    whole = joined(parts)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    assert decode(FetchResponse, 16, whole, 9)[0] == response


@pytest.mark.parametrize("frame", ["", "000000", "00000001", "00000001 01 00 09"])
def test_a_broken_response_header_is_malformed(frame: str) -> None:
    with pytest.raises(MalformedMessage):
        decode_response_header(bytes.fromhex(frame), API[ApiKey.METADATA], 12)


def test_the_parser_can_be_reused_after_drop() -> None:
    for beginning in (b"\x00\x00\x00\x09abc", b"\x00\x10\x00\x00" + b"x" * 100_000):
        parser = FrameParser(10_000_000)
        parser.receive_data(beginning)
        parser.drop()
        assert parser.waiting_bytes == 0 and parser.next_frame() is None
        parser.receive_data(b"\x00\x00\x00\x02ok")
        assert parser.next_frame() == b"ok"
