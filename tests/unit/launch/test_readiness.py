from __future__ import annotations

from strandline.launch.readiness import API_VERSIONS_V0, METADATA_V1, _broker_ids, live_brokers, responds
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.codec import decode
from strandline.protocol.framing import decode_header, response_parts
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker


def test_the_probe_of_a_broker_is_a_metadata_request_for_no_topics() -> None:
    header, position = decode_header(METADATA_V1[4:])
    request, end = decode(MetadataRequest, header.api_version, METADATA_V1[4:], position)
    assert (header.api_key, header.api_version, request.topics) == (3, 1, [])
    assert end == len(METADATA_V1) - 4 == int.from_bytes(METADATA_V1[:4], "big")


def test_the_probe_of_a_controller_is_an_api_versions_request() -> None:
    header, position = decode_header(API_VERSIONS_V0[4:])
    _, end = decode(ApiVersionsRequest, header.api_version, API_VERSIONS_V0[4:], position)
    assert (header.api_key, header.api_version) == (18, 0)
    assert end == len(API_VERSIONS_V0) - 4 == int.from_bytes(API_VERSIONS_V0[:4], "big")


def test_a_closed_port_is_not_ready() -> None:
    assert live_brokers("127.0.0.1", 1) == [] and not responds("127.0.0.1", 1)


def test_broker_ids_are_read_from_a_metadata_response() -> None:
    brokers = [
        MetadataResponseBroker(node_id=1, host="localhost", port=9092),
        MetadataResponseBroker(node_id=257, host="", port=1, rack="rack"),
        MetadataResponseBroker(node_id=3, host="h", port=2),
    ]
    answer = MetadataResponse(brokers=brokers, controller_id=9)
    frame = b"".join(bytes(part) for part in response_parts(0, API[ApiKey.METADATA], 1, answer))  # type: ignore[arg-type]
    assert _broker_ids(frame[4:]) == [1, 257, 3]
