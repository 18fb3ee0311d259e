from __future__ import annotations

from strandline.launch.readiness import API_VERSIONS_V0, METADATA_V1, _broker_ids, answers, live_brokers
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.codec import decode
from strandline.protocol.framing import decode_header, response_parts
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker


def test_the_question_is_a_metadata_request_for_no_topics() -> None:
    header, position = decode_header(METADATA_V1[4:])
    request, end = decode(MetadataRequest, header.api_version, METADATA_V1[4:], position)
    assert (header.api_key, header.api_version, request.topics) == (3, 1, [])
    assert end == len(METADATA_V1) - 4 == int.from_bytes(METADATA_V1[:4], "big")


def test_the_question_for_controllers_asks_which_versions_they_speak() -> None:
    header, position = decode_header(API_VERSIONS_V0[4:])
    _, end = decode(ApiVersionsRequest, header.api_version, API_VERSIONS_V0[4:], position)
    assert (header.api_key, header.api_version) == (18, 0)
    assert end == len(API_VERSIONS_V0) - 4 == int.from_bytes(API_VERSIONS_V0[:4], "big")


def test_nobody_is_neither_ready_nor_a_controller() -> None:
    assert live_brokers("127.0.0.1", 1) == [] and not answers("127.0.0.1", 1)


def test_the_brokers_are_found_in_the_answer() -> None:
    brokers = [
        MetadataResponseBroker(node_id=1, host="localhost", port=9092),
        MetadataResponseBroker(node_id=257, host="", port=1, rack="rack"),
        MetadataResponseBroker(node_id=3, host="h", port=2),
    ]
    answer = MetadataResponse(brokers=brokers, controller_id=9)
    frame = b"".join(bytes(part) for part in response_parts(0, API[ApiKey.METADATA], 1, answer))  # type: ignore[arg-type]
    assert _broker_ids(frame[4:]) == [1, 257, 3]
