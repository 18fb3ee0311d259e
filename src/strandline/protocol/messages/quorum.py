"""The metadata quorum: Vote (52), Begin- and EndQuorumEpoch (53, 54), DescribeQuorum (55), FetchSnapshot (59),
voters (80-82), quorum-state."""

from __future__ import annotations

from typing import Annotated

from strandline.model.ids import ZERO_UUID
from strandline.protocol.types import (
    Message,
    Struct,
    Value,
    boolean,
    i16,
    i32,
    i64,
    ignorable,
    records_,
    since,
    string,
    tag,
    u16,
    until,
    uuid,
)


class VoteRequest(Message, api_key=52, versions=(0, 2), flexible=0):
    """v1 directory ids (KIP-853), v2 pre-vote (KIP-996)."""

    cluster_id: string | None = None
    voter_id: Annotated[i32, since(1), ignorable] = -1
    topics: list[VoteRequestTopicData] = []


class VoteRequestTopicData(Struct):
    topic_name: string = ""
    partitions: list[VoteRequestPartitionData] = []


class VoteRequestPartitionData(Struct):
    partition_index: i32 = 0
    replica_epoch: i32 = 0
    replica_id: i32 = 0
    replica_directory_id: Annotated[uuid, since(1), ignorable] = ZERO_UUID
    voter_directory_id: Annotated[uuid, since(1), ignorable] = ZERO_UUID
    last_offset_epoch: i32 = 0
    last_offset: i64 = 0
    pre_vote: Annotated[boolean, since(2)] = False


class VoteResponse(Message, api_key=52, versions=(0, 2), flexible=0):
    """v1 endpoints of the leader."""

    error_code: i16 = 0
    topics: list[VoteResponseTopicData] = []
    node_endpoints: Annotated[list[NodeEndpoint], since(1), tag(0)] = []


class VoteResponseTopicData(Struct):
    topic_name: string = ""
    partitions: list[VoteResponsePartitionData] = []


class VoteResponsePartitionData(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0
    leader_id: i32 = 0
    leader_epoch: i32 = 0
    vote_granted: boolean = False


class NodeEndpoint(Struct):
    node_id: i32 = 0
    host: string = ""
    port: u16 = 0


class BeginQuorumEpochRequest(Message, api_key=53, versions=(0, 1), flexible=1):
    """v1 flexible, with directory ids and the leader's endpoints (KIP-853)."""

    cluster_id: string | None = None
    voter_id: Annotated[i32, since(1), ignorable] = -1
    topics: list[BeginQuorumEpochRequestTopicData] = []
    leader_endpoints: Annotated[list[LeaderEndpoint], since(1), ignorable] = []


class BeginQuorumEpochRequestTopicData(Struct):
    topic_name: string = ""
    partitions: list[BeginQuorumEpochRequestPartitionData] = []


class BeginQuorumEpochRequestPartitionData(Struct):
    partition_index: i32 = 0
    voter_directory_id: Annotated[uuid, since(1), ignorable] = ZERO_UUID
    leader_id: i32 = 0
    leader_epoch: i32 = 0


class LeaderEndpoint(Struct):
    name: string = ""
    host: string = ""
    port: u16 = 0


class BeginQuorumEpochResponse(Message, api_key=53, versions=(0, 1), flexible=1):
    """v1 flexible, with endpoints of the leader."""

    error_code: i16 = 0
    topics: list[BeginQuorumEpochResponseTopicData] = []
    node_endpoints: Annotated[list[NodeEndpoint], since(1), tag(0)] = []


class BeginQuorumEpochResponseTopicData(Struct):
    topic_name: string = ""
    partitions: list[BeginQuorumEpochResponsePartitionData] = []


class BeginQuorumEpochResponsePartitionData(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0
    leader_id: i32 = 0
    leader_epoch: i32 = 0


class EndQuorumEpochRequest(Message, api_key=54, versions=(0, 1), flexible=1):
    """v1 flexible; successors are named with their directories (KIP-853)."""

    cluster_id: string | None = None
    topics: list[EndQuorumEpochRequestTopicData] = []
    leader_endpoints: Annotated[list[LeaderEndpoint], since(1), ignorable] = []


class EndQuorumEpochRequestTopicData(Struct):
    topic_name: string = ""
    partitions: list[EndQuorumEpochRequestPartitionData] = []


class EndQuorumEpochRequestPartitionData(Struct):
    partition_index: i32 = 0
    leader_id: i32 = 0
    leader_epoch: i32 = 0
    preferred_successors: Annotated[list[i32], until(0), ignorable] = []
    preferred_candidates: Annotated[list[ReplicaInfo], since(1), ignorable] = []


class ReplicaInfo(Struct):
    candidate_id: i32 = 0
    candidate_directory_id: uuid = ZERO_UUID


class EndQuorumEpochResponse(Message, api_key=54, versions=(0, 1), flexible=1):
    """v1 flexible, with endpoints of the leader."""

    error_code: i16 = 0
    topics: list[BeginQuorumEpochResponseTopicData] = []
    node_endpoints: Annotated[list[NodeEndpoint], since(1), tag(0)] = []


class DescribeQuorumRequest(Message, api_key=55, versions=(0, 2), flexible=0):
    topics: list[DescribeQuorumRequestTopicData] = []


class DescribeQuorumRequestTopicData(Struct):
    topic_name: string = ""
    partitions: list[DescribeQuorumRequestPartitionData] = []


class DescribeQuorumRequestPartitionData(Struct):
    partition_index: i32 = 0


class DescribeQuorumResponse(Message, api_key=55, versions=(0, 2), flexible=0):
    """v1 the times of the last fetch and of being caught up (KIP-836), v2 directory ids, nodes and messages
    (KIP-853)."""

    error_code: i16 = 0
    error_message: Annotated[string | None, since(2), ignorable] = ""
    topics: list[DescribeQuorumResponseTopicData] = []
    nodes: Annotated[list[Node], since(2)] = []


class DescribeQuorumResponseTopicData(Struct):
    topic_name: string = ""
    partitions: list[DescribeQuorumResponsePartitionData] = []


class DescribeQuorumResponsePartitionData(Struct):
    partition_index: i32 = 0
    error_code: i16 = 0
    error_message: Annotated[string | None, since(2), ignorable] = ""
    leader_id: i32 = 0
    leader_epoch: i32 = 0
    high_watermark: i64 = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


class ReplicaState(Struct):
    replica_id: i32 = 0
    replica_directory_id: Annotated[uuid, since(2)] = ZERO_UUID
    log_end_offset: i64 = 0
    last_fetch_timestamp: Annotated[i64, since(1), ignorable] = -1
    last_caught_up_timestamp: Annotated[i64, since(1), ignorable] = -1


class Node(Struct):
    node_id: i32 = 0
    listeners: list[Listener] = []


class Listener(Struct):
    name: string = ""
    host: string = ""
    port: u16 = 0


class FetchSnapshotRequest(Message, api_key=59, versions=(0, 1), flexible=0):
    """A range of a snapshot of the metadata log (KIP-630). v1 directory id."""

    cluster_id: Annotated[string | None, tag(0)] = None
    replica_id: i32 = -1
    max_bytes: i32 = 0x7FFFFFFF
    topics: list[FetchSnapshotRequestTopicSnapshot] = []


class FetchSnapshotRequestTopicSnapshot(Struct):
    name: string = ""
    partitions: list[FetchSnapshotRequestPartitionSnapshot] = []


class SnapshotId(Value):
    end_offset: i64 = 0
    epoch: i32 = 0


class FetchSnapshotRequestPartitionSnapshot(Struct):
    partition: i32 = 0
    current_leader_epoch: i32 = 0
    snapshot_id: SnapshotId = SnapshotId()
    position: i64 = 0
    replica_directory_id: Annotated[uuid, since(1), tag(0), ignorable] = ZERO_UUID


class FetchSnapshotResponse(Message, api_key=59, versions=(0, 1), flexible=0):
    """v1 endpoints of the leader. A range need not end with a batch."""

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    topics: list[FetchSnapshotResponseTopicSnapshot] = []
    node_endpoints: Annotated[list[NodeEndpoint], since(1), tag(0)] = []


class FetchSnapshotResponseTopicSnapshot(Struct):
    name: string = ""
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = []


class LeaderIdAndEpoch(Value):
    leader_id: i32 = 0
    leader_epoch: i32 = 0


class FetchSnapshotResponsePartitionSnapshot(Struct):
    index: i32 = 0
    error_code: i16 = 0
    snapshot_id: SnapshotId = SnapshotId()
    current_leader: Annotated[LeaderIdAndEpoch, tag(0)] = LeaderIdAndEpoch()
    size: i64 = 0
    position: i64 = 0
    unaligned_records: records_ = b""


class AddRaftVoterRequest(Message, api_key=80, versions=(0, 1), flexible=0):
    """KIP-853. v1 may wait for the commit."""

    cluster_id: string | None = ""
    timeout_ms: i32 = 0
    voter_id: i32 = 0
    voter_directory_id: uuid = ZERO_UUID
    listeners: list[Listener] = []
    ack_when_committed: Annotated[boolean, since(1)] = True


class AddRaftVoterResponse(Message, api_key=80, versions=(0, 1), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = ""


class RemoveRaftVoterRequest(Message, api_key=81, versions=(0, 0), flexible=0):
    """KIP-853."""

    cluster_id: string | None = ""
    voter_id: i32 = 0
    voter_directory_id: uuid = ZERO_UUID


class RemoveRaftVoterResponse(Message, api_key=81, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = ""


class KRaftVersionFeature(Value):
    min_supported_version: i16 = 0
    max_supported_version: i16 = 0


class UpdateRaftVoterRequest(Message, api_key=82, versions=(0, 0), flexible=0):
    """The new endpoints and versions of a voter (KIP-853)."""

    cluster_id: string | None = ""
    current_leader_epoch: i32 = 0
    voter_id: i32 = 0
    voter_directory_id: uuid = ZERO_UUID
    listeners: list[Listener] = []
    kraft_version_feature: KRaftVersionFeature = KRaftVersionFeature()


class CurrentLeader(Value):
    leader_id: i32 = -1
    leader_epoch: i32 = -1
    host: string = ""
    port: i32 = 0


class UpdateRaftVoterResponse(Message, api_key=82, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    current_leader: Annotated[CurrentLeader, tag(0)] = CurrentLeader()


class QuorumStateData(Message, versions=(0, 1), flexible=0):
    """The file quorum-state, as JSON on disk: the epoch of this replica, and its vote."""

    cluster_id: Annotated[string, until(0)] = ""
    leader_id: i32 = -1
    leader_epoch: i32 = -1
    voted_id: i32 = -1
    voted_directory_id: Annotated[uuid, since(1)] = ZERO_UUID
    applied_offset: Annotated[i64, until(0)] = 0
    current_voters: Annotated[list[Voter] | None, until(0)] = []


class Voter(Struct):
    voter_id: i32 = 0
