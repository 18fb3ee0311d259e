"""Records of the internal topics: messages in, bytes out, and back. Byte for byte as Kafka writes them.

A key begins with the type of the record (two bytes), a value with its version. A record type that is not known is
skipped, so that a coordinator can load a partition that a newer one wrote. A value of None is a tombstone.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

import msgspec

from strandline.protocol.codec import decode, encode_bytes
from strandline.protocol.errors import MalformedMessage
from strandline.protocol.messages import group_records as group
from strandline.protocol.messages import transaction_records as transaction
from strandline.protocol.types import Message
from strandline.records.batch import Record

_PREFIX: Final = struct.Struct(">h")

# Where it is not the newest: Kafka does not write the flexible version of this one.
_WRITTEN_VERSIONS: Final[Mapping[type[Message], int]] = {group.GroupMetadataValue: 3}

RecordTypes = Mapping[int, tuple[type[Message], type[Message]]]
"""By the type that begins a key: the classes of key and value."""

GROUP_RECORDS: Final[RecordTypes] = {
    0: (group.LegacyOffsetCommitKey, group.LegacyOffsetCommitValue),
    1: (group.OffsetCommitKey, group.OffsetCommitValue),
    2: (group.GroupMetadataKey, group.GroupMetadataValue),
    3: (group.ConsumerGroupMetadataKey, group.ConsumerGroupMetadataValue),
    4: (group.ConsumerGroupPartitionMetadataKey, group.ConsumerGroupPartitionMetadataValue),
    5: (group.ConsumerGroupMemberMetadataKey, group.ConsumerGroupMemberMetadataValue),
    6: (group.ConsumerGroupTargetAssignmentMetadataKey, group.ConsumerGroupTargetAssignmentMetadataValue),
    7: (group.ConsumerGroupTargetAssignmentMemberKey, group.ConsumerGroupTargetAssignmentMemberValue),
    8: (group.ConsumerGroupCurrentMemberAssignmentKey, group.ConsumerGroupCurrentMemberAssignmentValue),
    16: (group.ConsumerGroupRegularExpressionKey, group.ConsumerGroupRegularExpressionValue),
}
TRANSACTION_RECORDS: Final[RecordTypes] = {0: (transaction.TransactionLogKey, transaction.TransactionLogValue)}


def offset_key_prefixes(types: RecordTypes) -> frozenset[bytes]:
    """What the keys of committed offsets begin with."""
    classes = (group.OffsetCommitKey, group.LegacyOffsetCommitKey)
    return frozenset(_PREFIX.pack(number) for number, (key, _) in types.items() if key in classes)


class CoordinatorRecord(msgspec.Struct, frozen=True):
    key: Message
    value: Message | None
    """None: a tombstone."""
    value_version: int | None = None
    """None: the version that Kafka writes by default."""


def encode_record(record: CoordinatorRecord, timestamp_ms: int) -> Record:
    key_type = type(record.key)
    key = _PREFIX.pack(key_type.api_key) + encode_bytes(record.key, 0)
    value = None
    if record.value is not None:
        version = record.value_version
        if version is None:
            version = _WRITTEN_VERSIONS.get(type(record.value), type(record.value).versions[1])
        value = _PREFIX.pack(version) + encode_bytes(record.value, version)
    return Record(-1, timestamp_ms, key, value)


def decode_record(types: RecordTypes, key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
    """None for a record type that is not known. Raises MalformedMessage."""
    if key is None or len(key) < _PREFIX.size:
        raise MalformedMessage("a coordinator record has no key")
    classes = types.get(_PREFIX.unpack_from(key)[0])
    if classes is None:
        return None
    decoded_key, _ = decode(classes[0], 0, key, _PREFIX.size)
    if value is None:
        return CoordinatorRecord(decoded_key, None)
    if len(value) < _PREFIX.size:
        raise MalformedMessage("the value of a coordinator record is too short for its version")
    version = _PREFIX.unpack_from(value)[0]
    decoded_value, _ = decode(classes[1], version, value, _PREFIX.size)
    return CoordinatorRecord(decoded_key, decoded_value, version)
