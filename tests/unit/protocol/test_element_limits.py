"""The limit on the elements of a message counts all lists and tags."""

from __future__ import annotations

import struct

import pytest

from strandline.protocol.codec import MalformedMessage, TooManyElements, decode, encode_bytes
from strandline.protocol.framing import MAX_HEADER_TAGS, decode_header
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, NodeEndpoint
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.produce import ProduceResponse
from strandline.records.varint import uvarint


def two_topics_of_three() -> FetchRequest:
    topics = [FetchTopic(topic=name, partitions=[FetchPartition()] * 3) for name in "ab"]
    return FetchRequest(topics=topics, forgotten_topics_data=[ForgottenTopic(topic="c", partitions=[1, 2])])


@pytest.mark.parametrize("version", [7, 12])
def test_elements_of_nested_lists_are_counted(version: int) -> None:
    request = two_topics_of_three()
    data = encode_bytes(request, version)
    # Two topics of three partitions, one forgotten topic of two.
    assert decode(FetchRequest, version, data, max_elements=2 + 6 + 1 + 2)[0] == request
    with pytest.raises(TooManyElements):
        decode(FetchRequest, version, data, max_elements=10)


def test_a_list_with_too_large_a_count_is_rejected_before_it_is_read() -> None:
    data = encode_bytes(MetadataRequest(topics=[MetadataRequestTopic(name="x")] * 1000), 9)
    with pytest.raises(TooManyElements, match=r"MetadataRequest v9.*MetadataRequest\.topics"):
        decode(MetadataRequest, 9, data, max_elements=999)


def test_unknown_tags_are_counted() -> None:
    plain = encode_bytes(MetadataRequest(topics=[]), 9)
    tags = b"".join(uvarint(number) + b"\0" for number in range(50))
    data = plain[:-1] + uvarint(50) + tags
    decoded, _ = decode(MetadataRequest, 9, data, max_elements=50)
    assert decoded.unknown_tags is not None and len(decoded.unknown_tags) == 50
    with pytest.raises(TooManyElements):
        decode(MetadataRequest, 9, data, max_elements=49)


def test_elements_of_tagged_fields_are_counted() -> None:
    data = encode_bytes(ProduceResponse(node_endpoints=[NodeEndpoint(node_id=1)] * 5), 10)
    # The tag and its five endpoints.
    assert len(decode(ProduceResponse, 10, data, max_elements=6)[0].node_endpoints) == 5
    with pytest.raises(TooManyElements):
        decode(ProduceResponse, 10, data, max_elements=5)


def test_the_number_of_tags_of_a_header_is_limited() -> None:
    def header(tags: int) -> bytes:
        plain = struct.pack(">hhih", 3, 9, 1, -1)
        return plain + uvarint(tags) + b"".join(uvarint(number) + b"\0" for number in range(tags))

    frame = header(MAX_HEADER_TAGS)
    assert decode_header(frame)[1] == len(frame)
    with pytest.raises(MalformedMessage, match="tags"):
        decode_header(header(MAX_HEADER_TAGS + 1))
