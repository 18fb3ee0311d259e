"""The quorum's wire messages: each request and response is about one partition, nested as deep as Kafka nests it.

For every message one function that builds it, and one that finds its only partition (None when a request is not about
the metadata partition alone, or a response failed as a whole). Every response names the leader of the sender's epoch,
and its endpoint, as far as the sender knows: so a replica that missed an election, or sent its request to the wrong
node, finds the leader. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from strandline.model.errors import ErrorCode
from strandline.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, Endpoint
from strandline.protocol.messages import fetch, quorum
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from strandline.protocol.messages.quorum import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochRequestTopicData,
    BeginQuorumEpochResponse,
    BeginQuorumEpochResponsePartitionData,
    BeginQuorumEpochResponseTopicData,
    CurrentLeader,
    EndQuorumEpochRequest,
    EndQuorumEpochRequestPartitionData,
    EndQuorumEpochRequestTopicData,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestTopicSnapshot,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseTopicSnapshot,
    KRaftVersionFeature,
    LeaderEndpoint,
    Listener,
    NodeEndpoint,
    RemoveRaftVoterRequest,
    ReplicaInfo,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VoteRequestPartitionData,
    VoteRequestTopicData,
    VoteResponse,
    VoteResponsePartitionData,
    VoteResponseTopicData,
)
from strandline.protocol.types import Message
from strandline.raft.machine.values import KnownLeader, SnapshotId
from strandline.raft.machine.voters import ReplicaKey, Voter

T = TypeVar("T")


class ResponseStatus(msgspec.Struct, frozen=True):
    """What every response of the quorum contains."""

    error: ErrorCode
    leader: KnownLeader


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


def vote_response(known: KnownLeader, error: ErrorCode, *, granted: bool = False) -> VoteResponse:
    partition = VoteResponsePartitionData(
        error_code=error, leader_id=known.id, leader_epoch=known.epoch, vote_granted=granted
    )
    topic = VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return VoteResponse(topics=[topic], node_endpoints=_node_endpoints(known))


def vote_response_partition(response: VoteResponse) -> VoteResponsePartitionData | None:
    return _first([p for topic in response.topics for p in topic.partitions])


def begin_epoch_request(cluster_id: str, leader: Voter, voter: ReplicaKey, epoch: int) -> BeginQuorumEpochRequest:
    partition = BeginQuorumEpochRequestPartitionData(
        voter_directory_id=voter.directory_id, leader_id=leader.id, leader_epoch=epoch
    )
    topic = BeginQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    endpoints = _leader_endpoints(leader)
    return BeginQuorumEpochRequest(cluster_id=cluster_id, voter_id=voter.id, topics=[topic], leader_endpoints=endpoints)


def begin_epoch_partition(request: BeginQuorumEpochRequest) -> BeginQuorumEpochRequestPartitionData | None:
    return _the_only([(t.topic_name, p.partition_index, p) for t in request.topics for p in t.partitions])


def begin_epoch_response(known: KnownLeader, error: ErrorCode) -> BeginQuorumEpochResponse:
    return BeginQuorumEpochResponse(topics=[_epoch_topic(known, error)], node_endpoints=_node_endpoints(known))


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


def end_epoch_response(known: KnownLeader, error: ErrorCode) -> EndQuorumEpochResponse:
    return EndQuorumEpochResponse(topics=[_epoch_topic(known, error)], node_endpoints=_node_endpoints(known))


def successors_of(partition: EndQuorumEpochRequestPartitionData) -> list[ReplicaKey]:
    """Version 0 has their ids only."""
    if partition.preferred_candidates:
        return [ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in partition.preferred_candidates]
    return [ReplicaKey(node_id) for node_id in partition.preferred_successors]


def leader_endpoint_of(endpoints: Sequence[LeaderEndpoint], listener_name: str) -> Endpoint | None:
    """The leader's endpoint at the listener of this name, otherwise at its first listener."""
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
        replica_state=fetch.ReplicaState(replica_id=me.id),
        max_wait_ms=max_wait_ms,
        max_bytes=max_bytes,
        topics=[topic],
    )


def fetch_partition(request: FetchRequest) -> FetchPartition | None:
    """The fetched partition, by the topic id; versions up to 12 have only a name, which is rejected, as in Kafka."""
    names = {METADATA_TOPIC_ID: METADATA_TOPIC}
    return _the_only([(names.get(t.topic_id, ""), p.partition, p) for t in request.topics for p in t.partitions])


def fetcher(request: FetchRequest, partition: FetchPartition) -> ReplicaKey:
    """The replica that fetches; its id is in another field up to version 14. Negative ids are consumers."""
    node_id = request.replica_id if request.replica_id != -1 else request.replica_state.replica_id
    return ReplicaKey(node_id, partition.replica_directory_id)


def fetch_response(
    known: KnownLeader, error: ErrorCode, *, high_watermark: int | None, log_start_offset: int
) -> FetchResponse:
    partition = PartitionData(
        error_code=error,
        high_watermark=-1 if high_watermark is None else high_watermark,
        log_start_offset=log_start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=known.id, leader_epoch=known.epoch),
        aborted_transactions=[],
        records=b"",
    )
    topic = fetch.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    endpoints = [fetch.NodeEndpoint(node_id=at.node_id, host=at.host, port=at.port) for at in _node_endpoints(known)]
    return FetchResponse(responses=[topic], node_endpoints=endpoints)


def fetch_response_partition(response: FetchResponse) -> PartitionData | None:
    return _first([p for topic in response.responses for p in topic.partitions])


def fetch_snapshot_request(
    cluster_id: str, me: ReplicaKey, epoch: int, snapshot_id: SnapshotId, position: int, max_bytes: int
) -> FetchSnapshotRequest:
    partition = FetchSnapshotRequestPartitionSnapshot(
        current_leader_epoch=epoch,
        snapshot_id=quorum.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        position=position,
        replica_directory_id=me.directory_id,
    )
    topic = FetchSnapshotRequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    return FetchSnapshotRequest(cluster_id=cluster_id, replica_id=me.id, max_bytes=max_bytes, topics=[topic])


def snapshot_partition(request: FetchSnapshotRequest) -> FetchSnapshotRequestPartitionSnapshot | None:
    return _the_only([(t.name, p.partition, p) for t in request.topics for p in t.partitions])


def fetch_snapshot_response(
    known: KnownLeader, error: ErrorCode, snapshot_id: SnapshotId, *, position: int = 0, size: int = 0
) -> FetchSnapshotResponse:
    partition = FetchSnapshotResponsePartitionSnapshot(
        error_code=error,
        snapshot_id=quorum.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        current_leader=quorum.LeaderIdAndEpoch(leader_id=known.id, leader_epoch=known.epoch),
        size=size,
        position=position,
    )
    topic = FetchSnapshotResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    return FetchSnapshotResponse(topics=[topic], node_endpoints=_node_endpoints(known))


def snapshot_response_partition(response: FetchSnapshotResponse) -> FetchSnapshotResponsePartitionSnapshot | None:
    return _first([p for topic in response.topics for p in topic.partitions])


def add_voter_request(cluster_id: str, me: Voter, timeout_ms: int) -> AddRaftVoterRequest:
    """The request of a controller that joins: acknowledged before the commit, which may need its own fetches."""
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


def update_voter_response(known: KnownLeader, error: ErrorCode) -> UpdateRaftVoterResponse:
    host, port = known.endpoint or ("", 0)
    leader = CurrentLeader(leader_id=known.id, leader_epoch=known.epoch, host=host, port=port)
    return UpdateRaftVoterResponse(error_code=error, current_leader=leader)


def listeners_to_wire(voter: Voter) -> list[Listener]:
    return [Listener(name=name, host=at.host, port=at.port) for name, at in voter.listeners]


def listeners_from_wire(listeners: Sequence[Listener]) -> tuple[tuple[str, Endpoint], ...]:
    return tuple((each.name, Endpoint(each.host, each.port)) for each in listeners)


def response_status(response: Message) -> ResponseStatus | None:
    """The error and the leader; None when the response names no leader: it failed as a whole, or is of another API."""
    if isinstance(response, UpdateRaftVoterResponse):
        leader = response.current_leader
        endpoint = Endpoint(leader.host, leader.port) if leader.host else None
        return ResponseStatus(
            _error_code(response.error_code), KnownLeader(leader.leader_epoch, leader.leader_id, endpoint)
        )
    if isinstance(response, FetchResponse | FetchSnapshotResponse):
        part = (
            fetch_response_partition(response)
            if isinstance(response, FetchResponse)
            else snapshot_response_partition(response)
        )
        if part is None:
            return None
        fields = (part.error_code, part.current_leader.leader_epoch, part.current_leader.leader_id)
    elif isinstance(response, VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse):
        if not response.topics or not response.topics[0].partitions:
            return None
        given = response.topics[0].partitions[0]
        fields = (given.error_code, given.leader_epoch, given.leader_id)
    else:
        return None
    error, epoch, leader_id = fields
    endpoints = {at.node_id: Endpoint(at.host, at.port) for at in response.node_endpoints}
    return ResponseStatus(_error_code(error), KnownLeader(epoch, leader_id, endpoints.get(leader_id)))


def _leader_endpoints(leader: Voter) -> list[LeaderEndpoint]:
    return [LeaderEndpoint(name=name, host=at.host, port=at.port) for name, at in leader.listeners]


def _node_endpoints(known: KnownLeader) -> list[NodeEndpoint]:
    if known.id < 0 or known.endpoint is None:
        return []
    return [NodeEndpoint(node_id=known.id, host=known.endpoint.host, port=known.endpoint.port)]


def _epoch_topic(known: KnownLeader, error: ErrorCode) -> BeginQuorumEpochResponseTopicData:
    partition = BeginQuorumEpochResponsePartitionData(error_code=error, leader_id=known.id, leader_epoch=known.epoch)
    return BeginQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])


def _error_code(code: int) -> ErrorCode:
    """A newer peer may send error codes that are unknown here."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _the_only(requested: list[tuple[str, int, T]]) -> T | None:
    """`requested`: (topic, index, partition) of each partition in the request."""
    return requested[0][2] if [each[:2] for each in requested] == [(METADATA_TOPIC, 0)] else None


def _first(found: list[T]) -> T | None:
    return found[0] if found else None
