"""Records of `__consumer_offsets` for offsets, classic groups and consumer groups. `api_key` is the type at the
beginning of the key."""

from __future__ import annotations

from typing import Annotated

from strandline.model.ids import ZERO_UUID
from strandline.protocol.types import (
    Message,
    Struct,
    between,
    bytes_,
    field,
    i8,
    i32,
    i64,
    ignorable,
    since,
    string,
    tag,
    uuid,
)


class LegacyOffsetCommitKey(Message, api_key=0, versions=(0, 0)):
    """Type 0, the old format of offset keys."""

    group: string = ""
    topic: string = ""
    partition: i32 = 0


class LegacyOffsetCommitValue(Message, api_key=0, versions=(0, 0)):
    offset: i64 = 0
    metadata: string = ""
    commit_timestamp: i64 = 0


class OffsetCommitKey(Message, api_key=1, versions=(0, 0)):
    """Type 1. The value is null when the offset was deleted."""

    group: string = ""
    topic: string = ""
    partition: i32 = 0


class OffsetCommitValue(Message, api_key=1, versions=(0, 4), flexible=4):
    """v1 had an expiry, v3 leader epoch, v4 flexible, with the topic id."""

    offset: i64 = 0
    leader_epoch: Annotated[i32, since(3), ignorable] = -1
    metadata: string = ""
    commit_timestamp: i64 = 0
    expire_timestamp: Annotated[i64, between(1, 1), ignorable] = -1
    topic_id: Annotated[uuid, since(4), tag(0), ignorable] = ZERO_UUID


class GroupMetadataKey(Message, api_key=2, versions=(0, 0)):
    """Type 2: a classic group."""

    group: string = ""


class GroupMetadataValue(Message, api_key=2, versions=(0, 4), flexible=4):
    """v1 rebalance timeout, v2 time of the last change, v3 static members, v4 flexible."""

    protocol_type: string = ""
    generation: i32 = 0
    protocol: string | None = ""
    leader: string | None = ""
    current_state_timestamp: Annotated[i64, since(2), ignorable] = -1
    members: list[MemberMetadata] = []


class MemberMetadata(Struct):
    member_id: string = ""
    group_instance_id: Annotated[string | None, since(3), ignorable] = None
    client_id: string = ""
    client_host: string = ""
    rebalance_timeout: Annotated[i32, since(1), ignorable] = -1
    session_timeout: i32 = 0
    subscription: bytes_ = b""
    assignment: bytes_ = b""


class ConsumerGroupMetadataKey(Message, api_key=3, versions=(0, 0)):
    """Type 3: the epoch of a consumer group (KIP-848)."""

    group_id: string = ""


class ConsumerGroupMetadataValue(Message, api_key=3, versions=(0, 0), flexible=0):
    epoch: i32 = 0
    metadata_hash: Annotated[i64, tag(0)] = 0


class ConsumerGroupPartitionMetadataKey(Message, api_key=4, versions=(0, 0)):
    """Type 4: partitions of the subscribed topics; replaced by a hash in the group's metadata."""

    group_id: string = ""


class ConsumerGroupPartitionMetadataValue(Message, api_key=4, versions=(0, 0), flexible=0):
    topics: list[TopicMetadata] = []


class TopicMetadata(Struct):
    topic_id: uuid = ZERO_UUID
    topic_name: string = ""
    num_partitions: i32 = 0
    partition_metadata: list[PartitionMetadata] = []


class PartitionMetadata(Struct):
    partition: i32 = 0
    racks: list[string] = []


class ConsumerGroupMemberMetadataKey(Message, api_key=5, versions=(0, 0)):
    """Type 5: the subscription of a member."""

    group_id: string = ""
    member_id: string = ""


class ClassicMemberMetadata(Struct):
    session_timeout_ms: i32 = 0
    supported_protocols: list[ClassicProtocol] = []


class ConsumerGroupMemberMetadataValue(Message, api_key=5, versions=(0, 0), flexible=0):
    instance_id: string | None = ""
    rack_id: string | None = ""
    client_id: string = ""
    client_host: string = ""
    subscribed_topic_names: list[string] = []
    subscribed_topic_regex: string | None = ""
    rebalance_timeout_ms: i32 = -1
    server_assignor: string | None = ""
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, tag(0)] = field(
        default_factory=ClassicMemberMetadata
    )


class ClassicProtocol(Struct):
    name: string = ""
    metadata: bytes_ = b""


class ConsumerGroupTargetAssignmentMetadataKey(Message, api_key=6, versions=(0, 0)):
    """Type 6: the epoch of the target assignment."""

    group_id: string = ""


class ConsumerGroupTargetAssignmentMetadataValue(Message, api_key=6, versions=(0, 0), flexible=0):
    assignment_epoch: i32 = 0
    assignment_timestamp: Annotated[i64, tag(0)] = 0


class ConsumerGroupTargetAssignmentMemberKey(Message, api_key=7, versions=(0, 0)):
    """Type 7: the target assignment of a member."""

    group_id: string = ""
    member_id: string = ""


class ConsumerGroupTargetAssignmentMemberValue(Message, api_key=7, versions=(0, 0), flexible=0):
    topic_partitions: list[TopicPartition] = []


class TopicPartition(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[i32] = []


class ConsumerGroupCurrentMemberAssignmentKey(Message, api_key=8, versions=(0, 0)):
    """Type 8: the current assignment of a member."""

    group_id: string = ""
    member_id: string = ""


class ConsumerGroupCurrentMemberAssignmentValue(Message, api_key=8, versions=(0, 0), flexible=0):
    member_epoch: i32 = 0
    previous_member_epoch: i32 = 0
    state: i8 = 0
    assigned_partitions: list[TopicPartitions] = []
    partitions_pending_revocation: list[TopicPartitions] = []


class TopicPartitions(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[i32] = []
    assignment_epochs: Annotated[list[i32] | None, tag(0)] = []


class ConsumerGroupRegularExpressionKey(Message, api_key=16, versions=(0, 0)):
    """Type 16: the topics that match a regular expression."""

    group_id: string = ""
    regular_expression: string = ""


class ConsumerGroupRegularExpressionValue(Message, api_key=16, versions=(0, 0), flexible=0):
    topics: list[string] = []
    version: i64 = 0
    timestamp: i64 = 0
