from __future__ import annotations

import struct

import pytest

from strandline.client.core.request_codec import RequestCodec
from strandline.client.errors import ProtocolViolation
from strandline.model.errors import ErrorCode
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.framing import decode_header, response_parts
from strandline.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.metadata import MetadataRequest, MetadataResponse
from strandline.protocol.types import Message


def answer_bytes(key: ApiKey, version: int, correlation_id: int, message: Message) -> bytes:
    return b"".join(bytes(part) for part in response_parts(correlation_id, API[key], version, message))  # type: ignore[arg-type]


def receive(wire: RequestCodec, data: bytes) -> list[tuple[int, Message]]:
    answers = []
    while data:
        room = wire.get_buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        answers += wire.buffer_updated(count)
        data = data[count:]
    return answers


def test_a_request_carries_its_header_and_the_answer_its_correlation_id() -> None:
    wire = RequestCodec("me", 1 << 20)
    wire.ask(MetadataRequest(topics=[]), 12)
    second, parts = wire.ask(MetadataRequest(topics=None), 1)
    frame = b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]
    header, _ = decode_header(frame[4:])
    assert struct.unpack(">i", frame[:4])[0] == len(frame) - 4
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (3, 1, second, "me")


def test_answers_are_read_whatever_pieces_they_arrive_in() -> None:
    wire = RequestCodec("me", 1 << 20)
    ids = [wire.ask(MetadataRequest(), version)[0] for version in (1, 12)]
    data = answer_bytes(ApiKey.METADATA, 1, ids[0], MetadataResponse(controller_id=7))
    data += answer_bytes(ApiKey.METADATA, 12, ids[1], MetadataResponse(cluster_id="c"))
    answers = [answer for index in range(len(data)) for answer in receive(wire, data[index : index + 1])]
    assert [number for number, _ in answers] == ids
    assert [answer.controller_id for _, answer in answers if isinstance(answer, MetadataResponse)] == [7, -1]
    assert wire.in_flight == 0


def test_an_answer_out_of_order_is_a_violation() -> None:
    wire = RequestCodec("me", 1 << 20)
    first, _ = wire.ask(MetadataRequest(), 1)
    wire.ask(MetadataRequest(), 1)
    with pytest.raises(ProtocolViolation, match="expected the answer"):
        receive(wire, answer_bytes(ApiKey.METADATA, 1, first + 1, MetadataResponse()))


def test_an_answer_nobody_asked_for_is_a_violation() -> None:
    with pytest.raises(ProtocolViolation, match="never asked"):
        receive(RequestCodec("me", 1 << 20), answer_bytes(ApiKey.METADATA, 1, 0, MetadataResponse()))


def test_a_question_without_an_answer_leaves_no_trace() -> None:
    wire = RequestCodec("me", 1 << 20)
    wire.ask(MetadataRequest(), 1, answered=False)
    number, _ = wire.ask(MetadataRequest(), 1)
    assert receive(wire, answer_bytes(ApiKey.METADATA, 1, number, MetadataResponse()))[0][0] == number


def test_a_broker_that_does_not_know_our_version_answers_in_the_oldest_form() -> None:
    wire = RequestCodec("me", 1 << 20)
    number, _ = wire.ask(ApiVersionsRequest(), 4)
    refusal = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]
    )
    (_, answer), *_ = receive(wire, answer_bytes(ApiKey.API_VERSIONS, 0, number, refusal))
    assert isinstance(answer, ApiVersionsResponse)
    assert (answer.error_code, answer.api_keys[0].max_version) == (35, 2)


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02\x00\x00"])
def test_what_is_not_kafka_is_a_violation(garbage: bytes) -> None:
    wire = RequestCodec("me", 1 << 20)
    wire.ask(MetadataRequest(), 1)
    with pytest.raises(ProtocolViolation, match="cannot be understood"):
        receive(wire, garbage)
