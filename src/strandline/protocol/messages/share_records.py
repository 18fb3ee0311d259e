"""Records of share groups: membership in `__consumer_offsets`, delivery state in `__share_group_state`."""

from __future__ import annotations

from typing import Annotated

from strandline.model.ids import ZERO_UUID
from strandline.protocol.types import Message, Struct, i8, i16, i32, i64, string, tag, uuid


class ShareGroupMetadataKey(Message, api_key=11, versions=(0, 0)):
    group_id: string = ""


class ShareGroupMetadataValue(Message, api_key=11, versions=(0, 0), flexible=0):
    epoch: i32 = 0
    metadata_hash: i64 = 0


class ShareGroupMemberMetadataKey(Message, api_key=10, versions=(0, 0)):
    group_id: string = ""
    member_id: string = ""


class ShareGroupMemberMetadataValue(Message, api_key=10, versions=(0, 0), flexible=0):
    rack_id: string | None = ""
    client_id: string = ""
    client_host: string = ""
    subscribed_topic_names: list[string] = []


class ShareGroupTargetAssignmentMetadataKey(Message, api_key=12, versions=(0, 0)):
    group_id: string = ""


class ShareGroupTargetAssignmentMetadataValue(Message, api_key=12, versions=(0, 0), flexible=0):
    assignment_epoch: i32 = 0
    assignment_timestamp: Annotated[i64, tag(0)] = 0


class ShareGroupTargetAssignmentMemberKey(Message, api_key=13, versions=(0, 0)):
    group_id: string = ""
    member_id: string = ""


class ShareGroupTargetAssignmentMemberValue(Message, api_key=13, versions=(0, 0), flexible=0):
    topic_partitions: list[TopicPartition] = []


class TopicPartition(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[i32] = []


class ShareGroupCurrentMemberAssignmentKey(Message, api_key=14, versions=(0, 0)):
    group_id: string = ""
    member_id: string = ""


class ShareGroupCurrentMemberAssignmentValue(Message, api_key=14, versions=(0, 0), flexible=0):
    member_epoch: i32 = 0
    previous_member_epoch: i32 = 0
    state: i8 = 0
    assigned_partitions: list[TopicPartitions] = []


class TopicPartitions(Struct):
    topic_id: uuid = ZERO_UUID
    partitions: list[i32] = []


class ShareGroupStatePartitionMetadataKey(Message, api_key=15, versions=(0, 0)):
    group_id: string = ""


class ShareGroupStatePartitionMetadataValue(Message, api_key=15, versions=(0, 0), flexible=0):
    initializing_topics: list[TopicPartitionsInfo] = []
    initialized_topics: list[TopicPartitionsInfo] = []
    deleting_topics: list[TopicInfo] = []


class TopicPartitionsInfo(Struct):
    topic_id: uuid = ZERO_UUID
    topic_name: string = ""
    partitions: list[i32] = []


class TopicInfo(Struct):
    topic_id: uuid = ZERO_UUID
    topic_name: string = ""


class ShareSnapshotKey(Message, api_key=0, versions=(0, 0)):
    group_id: string = ""
    topic_id: uuid = ZERO_UUID
    partition: i32 = 0


class ShareSnapshotValue(Message, api_key=0, versions=(0, 0), flexible=0):
    snapshot_epoch: i32 = 0
    state_epoch: i32 = 0
    leader_epoch: i32 = 0
    start_offset: i64 = 0
    delivery_complete_count: Annotated[i32, tag(0)] = -1
    create_timestamp: i64 = 0
    write_timestamp: i64 = 0
    state_batches: list[StateBatch] = []


class StateBatch(Struct):
    first_offset: i64 = 0
    last_offset: i64 = 0
    delivery_state: i8 = 0
    delivery_count: i16 = 0


class ShareUpdateKey(Message, api_key=1, versions=(0, 0)):
    group_id: string = ""
    topic_id: uuid = ZERO_UUID
    partition: i32 = 0


class ShareUpdateValue(Message, api_key=1, versions=(0, 0), flexible=0):
    snapshot_epoch: i32 = 0
    leader_epoch: i32 = 0
    start_offset: i64 = 0
    delivery_complete_count: Annotated[i32, tag(0)] = -1
    state_batches: list[StateBatch] = []
