"""What the quorum's requests look like: each is about one partition, nested as deep as Kafka nests it.

For every request one function that builds it, for whoever asks, and one that finds what is asked, for whoever is asked:
None when the request is not about the metadata partition and nothing else. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from strandline.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, Endpoint
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from strandline.protocol.messages.quorum import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochRequestTopicData,
    EndQuorumEpochRequest,
    EndQuorumEpochRequestPartitionData,
    EndQuorumEpochRequestTopicData,
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestTopicSnapshot,
    KRaftVersionFeature,
    LeaderEndpoint,
    Listener,
    RemoveRaftVoterRequest,
    ReplicaInfo,
    UpdateRaftVoterRequest,
    VoteRequest,
    VoteRequestPartitionData,
    VoteRequestTopicData,
)
from strandline.protocol.messages.quorum import SnapshotId as SnapshotIdData
from strandline.raft.machine.values import SnapshotId
from strandline.raft.machine.voters import ReplicaKey, Voter

T = TypeVar("T")


def vote_request(
    cluster_id: str, me: ReplicaKey, voter: ReplicaKey, epoch: int, last_epoch: int, end_offset: int, *, pre_vote: bool
) -> VoteRequest:
    partition = VoteRequestPartitionData(
        replica_epoch=epoch,
        replica_id=me.id,
        replica_directory_id=me.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=last_epoch,
        last_offset=end_offset,
        pre_vote=pre_vote,
    )
    topic = VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return VoteRequest(cluster_id=cluster_id, voter_id=voter.id, topics=[topic])


def vote_partition(request: VoteRequest) -> VoteRequestPartitionData | None:
    return _the_only([(t.topic_name, p.partition_index, p) for t in request.topics for p in t.partitions])


def begin_epoch_request(cluster_id: str, leader: Voter, voter: ReplicaKey, epoch: int) -> BeginQuorumEpochRequest:
    partition = BeginQuorumEpochRequestPartitionData(
        voter_directory_id=voter.directory_id, leader_id=leader.id, leader_epoch=epoch
    )
    topic = BeginQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    endpoints = _leader_endpoints(leader)
    return BeginQuorumEpochRequest(cluster_id=cluster_id, voter_id=voter.id, topics=[topic], leader_endpoints=endpoints)


def begin_epoch_partition(request: BeginQuorumEpochRequest) -> BeginQuorumEpochRequestPartitionData | None:
    return _the_only([(t.topic_name, p.partition_index, p) for t in request.topics for p in t.partitions])


def end_epoch_request(
    cluster_id: str, leader: Voter, epoch: int, successors: Sequence[ReplicaKey]
) -> EndQuorumEpochRequest:
    partition = EndQuorumEpochRequestPartitionData(
        leader_id=leader.id,
        leader_epoch=epoch,
        preferred_successors=[key.id for key in successors],
        preferred_candidates=[
            ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id) for key in successors
        ],
    )
    topic = EndQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return EndQuorumEpochRequest(cluster_id=cluster_id, topics=[topic], leader_endpoints=_leader_endpoints(leader))


def end_epoch_partition(request: EndQuorumEpochRequest) -> EndQuorumEpochRequestPartitionData | None:
    return _the_only([(t.topic_name, p.partition_index, p) for t in request.topics for p in t.partitions])


def successors_of(partition: EndQuorumEpochRequestPartitionData) -> list[ReplicaKey]:
    """Version 0 knew them by id alone."""
    if partition.preferred_candidates:
        return [ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in partition.preferred_candidates]
    return [ReplicaKey(node_id) for node_id in partition.preferred_successors]


def leader_endpoint_of(endpoints: Sequence[LeaderEndpoint], listener_name: str) -> Endpoint | None:
    """Of a leader that names its listeners: the one of this name, or else its first."""
    for each in endpoints:
        if each.name == listener_name:
            return Endpoint(each.host, each.port)
    return Endpoint(endpoints[0].host, endpoints[0].port) if endpoints else None


def fetch_request(
    cluster_id: str,
    me: ReplicaKey,
    *,
    epoch: int,
    end_offset: int,
    last_epoch: int,
    high_watermark: int | None,
    max_wait_ms: int,
    max_bytes: int,
) -> FetchRequest:
    partition = FetchPartition(
        current_leader_epoch=epoch,
        fetch_offset=end_offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=max_bytes,
        replica_directory_id=me.directory_id,
        high_watermark=-1 if high_watermark is None else high_watermark,
    )
    topic = FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return FetchRequest(
        cluster_id=cluster_id,
        replica_state=ReplicaState(replica_id=me.id),
        max_wait_ms=max_wait_ms,
        max_bytes=max_bytes,
        topics=[topic],
    )


def fetch_partition(request: FetchRequest) -> FetchPartition | None:
    """By the topic's id; versions up to 12 have only its name, which is refused, as in Kafka."""
    names = {METADATA_TOPIC_ID: METADATA_TOPIC}
    return _the_only([(names.get(t.topic_id, ""), p.partition, p) for t in request.topics for p in t.partitions])


def fetcher(request: FetchRequest, partition: FetchPartition) -> ReplicaKey:
    """Its id stood elsewhere up to version 14. Negative: somebody who only reads."""
    node_id = request.replica_id if request.replica_id != -1 else request.replica_state.replica_id
    return ReplicaKey(node_id, partition.replica_directory_id)


def fetch_snapshot_request(
    cluster_id: str, me: ReplicaKey, epoch: int, snapshot_id: SnapshotId, position: int, max_bytes: int
) -> FetchSnapshotRequest:
    partition = FetchSnapshotRequestPartitionSnapshot(
        current_leader_epoch=epoch,
        snapshot_id=SnapshotIdData(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        position=position,
        replica_directory_id=me.directory_id,
    )
    topic = FetchSnapshotRequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    return FetchSnapshotRequest(cluster_id=cluster_id, replica_id=me.id, max_bytes=max_bytes, topics=[topic])


def snapshot_partition(request: FetchSnapshotRequest) -> FetchSnapshotRequestPartitionSnapshot | None:
    return _the_only([(t.name, p.partition, p) for t in request.topics for p in t.partitions])


def add_voter_request(cluster_id: str, me: Voter, timeout_ms: int) -> AddRaftVoterRequest:
    """By a node that joins of itself. It does not wait for the commit, which may need its own fetches."""
    return AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=timeout_ms,
        voter_id=me.id,
        voter_directory_id=me.directory_id,
        listeners=listeners_to_wire(me),
        ack_when_committed=False,
    )


def remove_voter_request(cluster_id: str, voter: ReplicaKey) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter.id, voter_directory_id=voter.directory_id)


def update_voter_request(cluster_id: str, me: Voter, epoch: int) -> UpdateRaftVoterRequest:
    return UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=epoch,
        voter_id=me.id,
        voter_directory_id=me.directory_id,
        listeners=listeners_to_wire(me),
        kraft_version_feature=KRaftVersionFeature(
            min_supported_version=me.kraft_versions[0], max_supported_version=me.kraft_versions[1]
        ),
    )


def listeners_to_wire(voter: Voter) -> list[Listener]:
    return [Listener(name=name, host=at.host, port=at.port) for name, at in voter.listeners]


def listeners_from_wire(listeners: Sequence[Listener]) -> tuple[tuple[str, Endpoint], ...]:
    return tuple((each.name, Endpoint(each.host, each.port)) for each in listeners)


def _leader_endpoints(leader: Voter) -> list[LeaderEndpoint]:
    return [LeaderEndpoint(name=name, host=at.host, port=at.port) for name, at in leader.listeners]


def _the_only(asked: list[tuple[str, int, T]]) -> T | None:
    """(topic, index, partition) of all that is asked about."""
    return asked[0][2] if [each[:2] for each in asked] == [(METADATA_TOPIC, 0)] else None
