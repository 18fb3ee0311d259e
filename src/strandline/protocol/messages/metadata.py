"""Metadata (3): brokers, topics and partition leaders."""

from __future__ import annotations

from typing import Annotated

from strandline.model.ids import ZERO_UUID
from strandline.protocol.types import (
    Message,
    Struct,
    between,
    boolean,
    i16,
    i32,
    ignorable,
    nullable,
    since,
    string,
    uuid,
)


class MetadataRequest(Message, api_key=3, versions=(0, 13), flexible=9):
    """v0 empty means all topics, from v1 null does; v4 may forbid creating topics, v8 authorized operations
    (KIP-430), v9 flexible, v10 topic ids, accepted in requests from v12 (KIP-516)."""

    topics: Annotated[list[MetadataRequestTopic] | None, nullable(1)] = []
    allow_auto_topic_creation: Annotated[boolean, since(4)] = True
    include_cluster_authorized_operations: Annotated[boolean, between(8, 10)] = False
    include_topic_authorized_operations: Annotated[boolean, since(8)] = False


class MetadataRequestTopic(Struct):
    topic_id: Annotated[uuid, since(10), ignorable] = ZERO_UUID
    name: Annotated[string | None, nullable(10)] = ""


class MetadataResponse(Message, api_key=3, versions=(0, 13), flexible=9):
    """v1 controller, rack, internal topics; v2 cluster id, v3 throttle time, v5 offline replicas (KIP-112), v7
    leader epochs, v8-10 authorized operations of the cluster (then DescribeCluster, KIP-700), v9 flexible, v10 topic
    ids, v12 null names, v13 error code (KIP-1102)."""

    throttle_time_ms: Annotated[i32, since(3), ignorable] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[string | None, since(2), ignorable] = None
    controller_id: Annotated[i32, since(1), ignorable] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[i32, between(8, 10)] = -0x80000000
    error_code: Annotated[i16, since(13), ignorable] = 0


class MetadataResponseBroker(Struct):
    node_id: i32 = 0
    host: string = ""
    port: i32 = 0
    rack: Annotated[string | None, since(1), ignorable] = None


class MetadataResponseTopic(Struct):
    error_code: i16 = 0
    name: Annotated[string | None, nullable(12)] = ""
    topic_id: Annotated[uuid, since(10), ignorable] = ZERO_UUID
    is_internal: Annotated[boolean, since(1), ignorable] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[i32, since(8)] = -0x80000000


class MetadataResponsePartition(Struct):
    error_code: i16 = 0
    partition_index: i32 = 0
    leader_id: i32 = 0
    leader_epoch: Annotated[i32, since(7), ignorable] = -1
    replica_nodes: list[i32] = []
    isr_nodes: list[i32] = []
    offline_replicas: Annotated[list[i32], since(5), ignorable] = []
