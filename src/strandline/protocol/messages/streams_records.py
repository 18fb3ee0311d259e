"""Records of streams groups in `__consumer_offsets`. `api_key` is the type at the beginning of the key."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, i8, i16, i32, i64, string, tag, u16


class StreamsGroupMetadataKey(Message, api_key=17, versions=(0, 0)):
    group_id: string = ""


class StreamsGroupMetadataValue(Message, api_key=17, versions=(0, 0), flexible=0):
    epoch: i32 = 0
    metadata_hash: i64 = 0
    validated_topology_epoch: Annotated[i32, tag(0)] = -1
    last_assignment_configs: Annotated[list[LastAssignmentConfig] | None, tag(1)] = []


class LastAssignmentConfig(Struct):
    key: string = ""
    value: string = ""


class StreamsGroupMemberMetadataKey(Message, api_key=19, versions=(0, 0)):
    group_id: string = ""
    member_id: string = ""


class StreamsGroupMemberMetadataValue(Message, api_key=19, versions=(0, 0), flexible=0):
    instance_id: string | None = ""
    rack_id: string | None = ""
    client_id: string = ""
    client_host: string = ""
    rebalance_timeout_ms: i32 = -1
    topology_epoch: i32 = 0
    process_id: string = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = []


class Endpoint(Struct):
    host: string = ""
    port: u16 = 0


class KeyValue(Struct):
    key: string = ""
    value: string = ""


class StreamsGroupTargetAssignmentMetadataKey(Message, api_key=20, versions=(0, 0)):
    group_id: string = ""


class StreamsGroupTargetAssignmentMetadataValue(Message, api_key=20, versions=(0, 0), flexible=0):
    assignment_epoch: i32 = 0
    assignment_timestamp: Annotated[i64, tag(0)] = 0


class StreamsGroupTargetAssignmentMemberKey(Message, api_key=21, versions=(0, 0)):
    group_id: string = ""
    member_id: string = ""


class StreamsGroupTargetAssignmentMemberValue(Message, api_key=21, versions=(0, 0), flexible=0):
    active_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = []
    standby_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = []
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = []


class StreamsGroupTargetAssignmentMemberValueTaskIds(Struct):
    subtopology_id: string = ""
    partitions: list[i32] = []


class StreamsGroupCurrentMemberAssignmentKey(Message, api_key=22, versions=(0, 0)):
    group_id: string = ""
    member_id: string = ""


class StreamsGroupCurrentMemberAssignmentValue(Message, api_key=22, versions=(0, 0), flexible=0):
    member_epoch: i32 = 0
    previous_member_epoch: i32 = 0
    state: i8 = 0
    active_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = []
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = []
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = []
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = []
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = []
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = []


class StreamsGroupCurrentMemberAssignmentValueTaskIds(Struct):
    subtopology_id: string = ""
    partitions: list[i32] = []
    assignment_epochs: Annotated[list[i32] | None, tag(0)] = []


class StreamsGroupTopologyKey(Message, api_key=23, versions=(0, 0)):
    group_id: string = ""


class StreamsGroupTopologyValue(Message, api_key=23, versions=(0, 0), flexible=0):
    epoch: i32 = 0
    subtopologies: list[Subtopology] = []


class Subtopology(Struct):
    subtopology_id: string = ""
    source_topics: list[string] = []
    source_topic_regex: list[string] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_sink_topics: list[string] = []
    repartition_source_topics: list[TopicInfo] = []
    copartition_groups: list[CopartitionGroup] = []


class TopicInfo(Struct):
    name: string = ""
    partitions: i32 = 0
    replication_factor: i16 = 0
    topic_configs: list[TopicConfig] = []


class TopicConfig(Struct):
    key: string = ""
    value: string = ""


class CopartitionGroup(Struct):
    source_topics: list[i16] = []
    source_topic_regex: list[i16] = []
    repartition_source_topics: list[i16] = []
