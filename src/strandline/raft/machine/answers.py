"""What the quorum's answers look like. Each also says who leads which epoch, and where, as far as the answerer knows:
that is how a replica which missed an election, or asked the wrong one, finds its way.

For every answer one function that builds it, and one that finds its only partition. Nothing is decided here.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from strandline.model.errors import ErrorCode
from strandline.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, Endpoint
from strandline.protocol.messages import fetch as fetching
from strandline.protocol.messages import quorum as quorums
from strandline.protocol.messages.fetch import FetchResponse, PartitionData
from strandline.protocol.messages.quorum import (
    BeginQuorumEpochResponse,
    BeginQuorumEpochResponsePartitionData,
    BeginQuorumEpochResponseTopicData,
    CurrentLeader,
    EndQuorumEpochResponse,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseTopicSnapshot,
    NodeEndpoint,
    UpdateRaftVoterResponse,
    VoteResponse,
    VoteResponsePartitionData,
    VoteResponseTopicData,
)
from strandline.protocol.types import Message
from strandline.raft.machine.values import KnownLeader, SnapshotId

T = TypeVar("T")


class ResponseStatus(NamedTuple):
    """What an answer says whatever it is about."""

    error: ErrorCode
    leader: KnownLeader


def vote_response(known: KnownLeader, error: ErrorCode, *, granted: bool = False) -> VoteResponse:
    partition = VoteResponsePartitionData(
        error_code=error, leader_id=known.id, leader_epoch=known.epoch, vote_granted=granted
    )
    topic = VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return VoteResponse(topics=[topic], node_endpoints=_node_endpoints(known))


def begin_epoch_response(known: KnownLeader, error: ErrorCode) -> BeginQuorumEpochResponse:
    return BeginQuorumEpochResponse(topics=[_epoch_topic(known, error)], node_endpoints=_node_endpoints(known))


def end_epoch_response(known: KnownLeader, error: ErrorCode) -> EndQuorumEpochResponse:
    return EndQuorumEpochResponse(topics=[_epoch_topic(known, error)], node_endpoints=_node_endpoints(known))


def fetch_response(
    known: KnownLeader, error: ErrorCode, *, high_watermark: int | None, log_start_offset: int
) -> FetchResponse:
    partition = PartitionData(
        error_code=error,
        high_watermark=-1 if high_watermark is None else high_watermark,
        log_start_offset=log_start_offset,
        current_leader=fetching.LeaderIdAndEpoch(leader_id=known.id, leader_epoch=known.epoch),
        aborted_transactions=[],
        records=b"",
    )
    topic = fetching.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    endpoints = [fetching.NodeEndpoint(node_id=at.node_id, host=at.host, port=at.port) for at in _node_endpoints(known)]
    return FetchResponse(responses=[topic], node_endpoints=endpoints)


def fetch_snapshot_response(
    known: KnownLeader, error: ErrorCode, snapshot_id: SnapshotId, *, position: int = 0, size: int = 0
) -> FetchSnapshotResponse:
    partition = FetchSnapshotResponsePartitionSnapshot(
        error_code=error,
        snapshot_id=quorums.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        current_leader=quorums.LeaderIdAndEpoch(leader_id=known.id, leader_epoch=known.epoch),
        size=size,
        position=position,
    )
    topic = FetchSnapshotResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    return FetchSnapshotResponse(topics=[topic], node_endpoints=_node_endpoints(known))


def update_voter_response(known: KnownLeader, error: ErrorCode) -> UpdateRaftVoterResponse:
    host, port = known.endpoint or ("", 0)
    leader = CurrentLeader(leader_id=known.id, leader_epoch=known.epoch, host=host, port=port)
    return UpdateRaftVoterResponse(error_code=error, current_leader=leader)


def vote_response_partition(response: VoteResponse) -> VoteResponsePartitionData | None:
    """The only partition of an answer; None when the request failed as a whole."""
    return _first([p for topic in response.topics for p in topic.partitions])


def fetch_response_partition(response: FetchResponse) -> PartitionData | None:
    return _first([p for topic in response.responses for p in topic.partitions])


def snapshot_response_partition(response: FetchSnapshotResponse) -> FetchSnapshotResponsePartitionSnapshot | None:
    return _first([p for topic in response.topics for p in topic.partitions])


def response_status(response: Message) -> ResponseStatus | None:
    """None when it says nothing about a leader: it failed as a whole, or is not of the quorum's own kind."""
    if isinstance(response, UpdateRaftVoterResponse):
        leader = response.current_leader
        endpoint = Endpoint(leader.host, leader.port) if leader.host else None
        return ResponseStatus(_code(response.error_code), KnownLeader(leader.leader_epoch, leader.leader_id, endpoint))
    if isinstance(response, FetchResponse | FetchSnapshotResponse):
        part = (
            fetch_response_partition(response)
            if isinstance(response, FetchResponse)
            else snapshot_response_partition(response)
        )
        if part is None:
            return None
        told = (part.error_code, part.current_leader.leader_epoch, part.current_leader.leader_id)
    elif isinstance(response, VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse):
        if not response.topics or not response.topics[0].partitions:
            return None
        given = response.topics[0].partitions[0]
        told = (given.error_code, given.leader_epoch, given.leader_id)
    else:
        return None
    error, epoch, leader_id = told
    endpoints = {at.node_id: Endpoint(at.host, at.port) for at in response.node_endpoints}
    return ResponseStatus(_code(error), KnownLeader(epoch, leader_id, endpoints.get(leader_id)))


def _code(code: int) -> ErrorCode:
    """A newer peer may use errors that we have no name for."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _first(found: list[T]) -> T | None:
    return found[0] if found else None


def _epoch_topic(known: KnownLeader, error: ErrorCode) -> BeginQuorumEpochResponseTopicData:
    partition = BeginQuorumEpochResponsePartitionData(error_code=error, leader_id=known.id, leader_epoch=known.epoch)
    return BeginQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])


def _node_endpoints(known: KnownLeader) -> list[NodeEndpoint]:
    if known.id < 0 or known.endpoint is None:
        return []
    return [NodeEndpoint(node_id=known.id, host=known.endpoint.host, port=known.endpoint.port)]
