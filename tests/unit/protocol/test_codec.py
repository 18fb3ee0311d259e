"""Rules of the codec that round trips do not show."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Annotated, Any

import pytest

from strandline.model.ids import ZERO_UUID, Uuid
from strandline.protocol.codec import EncodeError, MalformedMessage, decode, encode, encode_bytes
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
)
from strandline.protocol.messages.group_records import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.metadata_records import PartitionChangeRecord, TopicRecord
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.messages.topics import CreateTopicsRequest, DescribeTopicPartitionsRequest
from strandline.protocol.types import Message, Struct, i16, i32, layout, string, tag, u32, uuid
from strandline.runtime.file_slice import FileSlice
from unit.protocol.random_messages import every_version


class Named(Struct):
    name: string = ""


class Sample(Message, versions=(0, 1), flexible=1):
    number: u32 = 0
    text: string = ""
    children: list[Named] = []
    small: Annotated[i16, tag(0)] = 3
    names: Annotated[list[string], tag(2)] = []


def test_fixed_width_fields_are_big_endian_and_unsigned_where_declared() -> None:
    assert encode_bytes(Sample(number=0xFFFFFFFE), 0) == bytes.fromhex("fffffffe 0000 00000000")


def test_classic_lengths_become_compact_when_a_message_becomes_flexible() -> None:
    assert encode_bytes(Sample(7, "ab", [Named("c")]), 0) == bytes.fromhex("00000007 0002 6162 00000001 0001 63")
    assert encode_bytes(Sample(7, "ab", [Named("c")]), 1) == bytes.fromhex("00000007 03 6162 02 0263 00 00")


def test_a_compact_length_above_127_takes_two_bytes() -> None:
    assert encode_bytes(Sample(1, "x" * 300), 1)[4:6] == bytes.fromhex("ad02")


@pytest.mark.parametrize("size", [126, 127, 128, 16_382, 16_383, 16_384])
def test_lengths_and_counts_around_the_limits_of_a_varint_round_trip(size: int) -> None:
    for message in (Sample(1, "x" * size), Sample(children=[Named("y" * size)]), Sample(children=[Named()] * size)):
        data = encode_bytes(message, 1)
        assert decode(Sample, 1, data) == (message, len(data))


def test_a_tagged_field_with_its_default_is_not_encoded() -> None:
    assert encode_bytes(Sample(), 1) == bytes.fromhex("00000000 01 01 00")
    assert encode_bytes(Sample(small=4), 1) == bytes.fromhex("00000000 01 01 01 0002 0004")


def test_unknown_tags_are_kept_and_encoded_in_ascending_order_with_known_ones() -> None:
    data = bytes.fromhex("00000000 01 01 04 0002 0004 0101aa 0203 020278 8008 00")
    message, end = decode(Sample, 1, data)
    assert end == len(data)
    assert message == Sample(small=4, names=["x"], unknown_tags={1: b"\xaa", 1024: b""})
    assert encode_bytes(message, 1) == data


def test_tags_are_decoded_in_any_order_and_encoded_in_ascending_order() -> None:
    message, _ = decode(Sample, 1, bytes.fromhex("00000000 01 01 02 0700 0002 0004"))
    assert message == Sample(small=4, unknown_tags={7: b""})
    assert encode_bytes(message, 1) == bytes.fromhex("00000000 01 01 02 0002 0004 0700")


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        ("02 0002 0004 0002 0004", "twice"),
        ("02 0700 0700", "twice"),
        ("01 0003 0004 00", "does not fill"),
        ("01 0001 0004", "does not fill"),
        ("01 0702 00", "larger than the frame"),
        ("01 ffffffff7f 00", "varint"),
        ("05", "ends in the middle"),
    ],
)
def test_an_invalid_tag_section_is_malformed(tags: str, why: str) -> None:
    with pytest.raises(MalformedMessage, match=why):
        decode(Sample, 1, bytes.fromhex("00000000 01 01" + tags))


def test_an_unknown_tag_with_the_number_of_a_field_cannot_be_encoded() -> None:
    with pytest.raises(EncodeError, match="tag 0 is given twice"):
        encode_bytes(Sample(small=4, unknown_tags={0: b""}), 1)


def test_tags_cannot_be_encoded_in_versions_that_are_not_flexible() -> None:
    with pytest.raises(EncodeError, match="cannot carry"):
        encode_bytes(Sample(unknown_tags={9: b""}), 0)
    with pytest.raises(EncodeError, match="small is set"):
        encode_bytes(Sample(small=4), 0)


def test_a_field_that_the_version_lacks_is_rejected_unless_it_is_ignorable() -> None:
    with pytest.raises(EncodeError, match="replica_state is set, but version 14 has no such field"):
        encode_bytes(FetchRequest(replica_state=ReplicaState(1, 2)), 14)
    assert encode_bytes(FetchRequest(rack_id="a"), 10) == encode_bytes(FetchRequest(), 10)


def test_null_is_rejected_in_versions_where_the_field_cannot_be_null() -> None:
    assert decode(MetadataRequest, 1, encode_bytes(MetadataRequest(topics=None), 1))[0].topics is None
    with pytest.raises(EncodeError):
        encode_bytes(MetadataRequest(topics=None), 0)
    with pytest.raises(MalformedMessage, match="topics has an impossible count"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(EncodeError):
        encode_bytes(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9)


def test_a_null_struct_is_minus_one_in_an_ordinary_field_and_zero_in_a_tagged_one() -> None:
    assert encode_bytes(DescribeTopicPartitionsRequest(cursor=None), 0)[-2:] == b"\xff\x00"
    null = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    data = encode_bytes(null, 0)
    assert data[-4:] == b"\x01\x00\x01\x00"
    assert decode(ConsumerGroupMemberMetadataValue, 0, data)[0] == null
    present = ConsumerGroupMemberMetadataValue(classic_member_metadata=ClassicMemberMetadata(5))
    assert decode(ConsumerGroupMemberMetadataValue, 0, encode_bytes(present, 0))[0] == present


def test_a_string_that_is_not_utf8_is_malformed() -> None:
    data = encode_bytes(ApiVersionsRequest("client", "1"), 3).replace(b"client", b"\xff\xfeient")
    with pytest.raises(MalformedMessage, match="not UTF-8"):
        decode(ApiVersionsRequest, 3, data)


def test_a_string_above_the_limit_is_rejected_when_encoding_and_decoding() -> None:
    with pytest.raises(EncodeError, match="too long"):
        encode_bytes(TopicRecord("x" * 32768), 0)
    with pytest.raises(MalformedMessage, match="too long"):
        decode(TopicRecord, 0, bytes.fromhex("818002") + b"x" * 32768 + bytes(17))
    assert len(encode_bytes(TopicRecord("x" * 32767), 0)) == 3 + 32767 + 17


@pytest.mark.parametrize("wrong", [{"acks": 1 << 15}, {"acks": None}, {"topic_data": None}, {"transactional_id": 5}])
def test_a_value_of_the_wrong_type_is_an_encode_error_that_names_the_message(wrong: dict[str, Any]) -> None:
    with pytest.raises(EncodeError, match="ProduceRequest v9"):
        encode_bytes(ProduceRequest(**wrong), 9)


def test_an_unknown_version_is_rejected_when_encoding_and_decoding() -> None:
    with pytest.raises(EncodeError, match="no version 2"):
        encode_bytes(ProduceRequest(), 2)
    with pytest.raises(MalformedMessage, match="no version 99"):
        decode(ProduceRequest, 99, b"")


def test_an_impossible_count_is_rejected_before_anything_is_allocated() -> None:
    claims = struct.pack(">hi", 0, 0) + b"\xff\xff\xff\xff\x07" + bytes(1000)
    tracemalloc.start()
    try:
        for version in (9, 13):
            with pytest.raises(MalformedMessage, match="topic_data has an impossible count"):
                decode(ProduceRequest, version, b"\x00" + claims)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


class Pair(Struct):
    first: i32 = 0
    second: string = ""


class Counted(Message, versions=(0, 1), flexible=1):
    pairs: list[Pair] = []
    ids: list[uuid] = []


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("five", [Counted(pairs=[Pair()] * 5), Counted(ids=[ZERO_UUID] * 5)])
def test_a_count_is_checked_against_the_smallest_size_of_its_elements(version: int, five: Counted) -> None:
    data = encode_bytes(five, version)
    assert decode(Counted, version, data)[0] == five
    with pytest.raises(MalformedMessage, match="impossible count"):
        decode(Counted, version, data[:-7])


def test_no_length_or_count_makes_a_decoder_allocate() -> None:
    for cls, version in every_version():
        decode_or_refuse(cls, version, b"")
    tracemalloc.start()
    try:
        for cls, version in every_version():
            for claim in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"):
                for lead in range(24):
                    decode_or_refuse(cls, version, bytes(lead) + claim + bytes(8))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


def decode_or_refuse(cls: type[Message], version: int, data: bytes) -> None:
    try:
        _, end = decode(cls, version, data)
    except MalformedMessage:
        return
    assert end <= len(data)


def produce_request(records: bytes) -> ProduceRequest:
    return ProduceRequest(
        None, 1, 30_000, [TopicProduceData(name="t", partition_data=[PartitionProduceData(0, records)])]
    )


def test_records_are_decoded_as_a_writable_view_of_the_frame() -> None:
    frame = bytearray(encode_bytes(produce_request(b"batch"), 9))
    request, _ = decode(ProduceRequest, 9, frame)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[0] = ord("B")
    assert b"Batch" in frame


class MemoryFile:
    path = "memory"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_at(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]


def fetch_response(*records: Any) -> FetchResponse:
    partitions = [PartitionData(index, records=each) for index, each in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=Uuid(bytes(16)), partitions=partitions)])


def test_large_records_and_file_slices_become_parts_of_their_own_without_a_copy() -> None:
    large = bytearray(100_000)
    piece = FileSlice(MemoryFile(b"0123456789"), 2, 5)  # type: ignore[arg-type]
    parts = encode(fetch_response(b"small", large, piece, None), 16)
    assert [part for part in parts if part is large or part is piece] == [large, piece]
    assert len(parts) == 5
    whole = encode_bytes(fetch_response(b"small", bytes(large), b"23456", None), 16)
    assert encode_bytes(fetch_response(b"small", large, piece, None), 16) == whole


def test_defaults_are_not_shared_between_messages_unless_they_are_frozen() -> None:
    first, second = PartitionData(), PartitionData()
    assert first.aborted_transactions is not second.aborted_transactions
    assert first.current_leader is second.current_leader
    with pytest.raises(AttributeError):
        first.current_leader.leader_id = 3
    read, _ = decode(PartitionChangeRecord, 0, encode_bytes(PartitionChangeRecord(), 0))
    assert read == PartitionChangeRecord()


def test_no_mutable_default_is_shared() -> None:
    seen: set[type[Struct]] = set()
    waiting: list[type[Struct]] = [cls for cls, _ in every_version()]
    while waiting:
        cls = waiting.pop()
        if cls in seen:
            continue
        seen.add(cls)
        first, second = cls(), cls()
        for field in layout(cls):
            mine, yours = getattr(first, field.name), getattr(second, field.name)
            if isinstance(mine, Struct) and not type(mine).__struct_config__.frozen:
                assert mine is not yours, f"{cls.__name__}.{field.name}"
            if isinstance(field.kind, type):
                waiting.append(field.kind)
    assert len(seen) > 500


def test_a_tagged_struct_is_encoded_only_when_it_differs_from_its_default() -> None:
    plain = encode_bytes(FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])]), 16)
    leader = PartitionData(current_leader=LeaderIdAndEpoch(1, 2))
    with_leader = encode_bytes(FetchResponse(responses=[FetchableTopicResponse(partitions=[leader])]), 16)
    assert len(with_leader) == len(plain) + 2 + 9
    assert decode(FetchResponse, 16, with_leader)[0].responses[0].partitions[0] == leader


def test_bytes_after_the_message_are_ignored() -> None:
    data = encode_bytes(ApiVersionsResponse(), 0)
    assert decode(ApiVersionsResponse, 0, data + b"more") == (ApiVersionsResponse(), len(data))


def test_long_lists_of_numbers_round_trip() -> None:
    class Numbers(Message, versions=(0, 0), flexible=0):
        values: list[i32] = []

    for count in (0, 1, 64, 65, 5000):
        message = Numbers(list(range(count)))
        assert decode(Numbers, 0, encode_bytes(message, 0))[0] == message


def test_a_message_prints_its_fields() -> None:
    assert "timeout_ms=60000" in repr(CreateTopicsRequest(timeout_ms=60000))
