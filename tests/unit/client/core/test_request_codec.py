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


def response_bytes(key: ApiKey, version: int, correlation_id: int, message: Message) -> bytes:
    return b"".join(bytes(part) for part in response_parts(correlation_id, API[key], version, message))  # type: ignore[arg-type]


def receive(codec: RequestCodec, data: bytes) -> list[tuple[int, Message]]:
    responses = []
    while data:
        room = codec.get_buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        responses += codec.buffer_updated(count)
        data = data[count:]
    return responses


def test_a_request_carries_its_header_and_the_response_its_correlation_id() -> None:
    codec = RequestCodec("me", 1 << 20)
    codec.encode_request(MetadataRequest(topics=[]), 12)
    second, parts = codec.encode_request(MetadataRequest(topics=None), 1)
    frame = b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]
    header, _ = decode_header(frame[4:])
    assert struct.unpack(">i", frame[:4])[0] == len(frame) - 4
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (3, 1, second, "me")


def test_responses_are_decoded_however_their_bytes_are_split() -> None:
    codec = RequestCodec("me", 1 << 20)
    ids = [codec.encode_request(MetadataRequest(), version)[0] for version in (1, 12)]
    data = response_bytes(ApiKey.METADATA, 1, ids[0], MetadataResponse(controller_id=7))
    data += response_bytes(ApiKey.METADATA, 12, ids[1], MetadataResponse(cluster_id="c"))
    responses = [response for index in range(len(data)) for response in receive(codec, data[index : index + 1])]
    assert [number for number, _ in responses] == ids
    assert [response.controller_id for _, response in responses if isinstance(response, MetadataResponse)] == [7, -1]
    assert codec.in_flight == 0


def test_a_response_out_of_order_is_a_protocol_violation() -> None:
    codec = RequestCodec("me", 1 << 20)
    first, _ = codec.encode_request(MetadataRequest(), 1)
    codec.encode_request(MetadataRequest(), 1)
    with pytest.raises(ProtocolViolation, match="expected the response"):
        receive(codec, response_bytes(ApiKey.METADATA, 1, first + 1, MetadataResponse()))


def test_a_response_without_a_request_is_a_protocol_violation() -> None:
    with pytest.raises(ProtocolViolation, match="without a request in flight"):
        receive(RequestCodec("me", 1 << 20), response_bytes(ApiKey.METADATA, 1, 0, MetadataResponse()))


def test_a_request_without_a_response_is_not_in_flight() -> None:
    codec = RequestCodec("me", 1 << 20)
    codec.encode_request(MetadataRequest(), 1, expects_response=False)
    number, _ = codec.encode_request(MetadataRequest(), 1)
    assert receive(codec, response_bytes(ApiKey.METADATA, 1, number, MetadataResponse()))[0][0] == number


def test_an_unsupported_api_versions_version_is_answered_in_version_0() -> None:
    codec = RequestCodec("me", 1 << 20)
    number, _ = codec.encode_request(ApiVersionsRequest(), 4)
    fault = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]
    )
    (_, response), *_ = receive(codec, response_bytes(ApiKey.API_VERSIONS, 0, number, fault))
    assert isinstance(response, ApiVersionsResponse)
    assert (response.error_code, response.api_keys[0].max_version) == (35, 2)


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02\x00\x00"])
def test_bytes_that_are_not_kafka_are_a_protocol_violation(garbage: bytes) -> None:
    codec = RequestCodec("me", 1 << 20)
    codec.encode_request(MetadataRequest(), 1)
    with pytest.raises(ProtocolViolation, match="is malformed"):
        receive(codec, garbage)
