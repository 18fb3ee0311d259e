"""Metadata records in the frame of `__cluster_metadata`."""

from __future__ import annotations

from random import Random

import pytest

from strandline.protocol.codec import EncodeError, MalformedMessage
from strandline.protocol.messages.control_records import LeaderChangeMessage
from strandline.protocol.messages.metadata_records import FeatureLevelRecord, NoOpRecord
from strandline.protocol.metadata_codec import (
    decode_record,
    decode_record_and_version,
    encode_record,
    record_types,
)
from unit.protocol.random_messages import random_message


def test_a_feature_level_record_has_the_bytes_of_kafka() -> None:
    data = encode_record(FeatureLevelRecord("metadata.version", 21), 0)
    assert data == bytes.fromhex("010c00116d657461646174612e76657273696f6e001500")
    assert decode_record(data) == FeatureLevelRecord("metadata.version", 21)


def test_every_metadata_record_is_decoded_with_its_version() -> None:
    assert len(record_types()) == 26
    for cls in record_types().values():
        for version in range(cls.versions[0], cls.versions[1] + 1):
            message = random_message(cls, version, Random(version))
            assert decode_record_and_version(encode_record(message, version)) == (message, version)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("", "ends inside its frame"),
        ("01", "ends inside its frame"),
        ("021400 00", "frame version 2"),
        ("017f00 00", "unknown type 127"),
        ("011409 00", "no version 9"),
        ("011400 0000", "1 bytes after a NoOpRecord"),
        ("010c00 05", "impossible length"),
        ("0180808080808000", "varint"),
    ],
)
def test_bytes_that_are_no_metadata_record_are_malformed(data: str, why: str) -> None:
    with pytest.raises(MalformedMessage, match=why):
        decode_record(bytes.fromhex(data))


def test_a_record_without_fields_is_its_frame_and_an_empty_tag_section() -> None:
    assert encode_record(NoOpRecord(), 0) == bytes.fromhex("01140000")


def test_only_metadata_records_can_be_encoded_as_such() -> None:
    with pytest.raises(EncodeError, match="not a metadata record"):
        encode_record(LeaderChangeMessage(), 0)
