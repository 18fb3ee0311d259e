"""DescribeQuorum (55): the voters, the observers, and the lag of each; only the leader knows it."""

from __future__ import annotations

from strandline.model.errors import ErrorCode
from strandline.model.ids import METADATA_TOPIC, ZERO_UUID
from strandline.protocol.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Node,
    ReplicaState,
)
from strandline.raft.machine.messages import listeners_to_wire
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.states import Leader, Progress
from strandline.raft.machine.voters import ReplicaKey


def describe_quorum(
    raft: RaftState, request: DescribeQuorumRequest, version: int, now_ms: int, wall_ms: int
) -> DescribeQuorumResponse:
    """Directory ids and endpoints are in the response from version 2 on."""
    requested = [(topic.topic_name, [p.partition_index for p in topic.partitions]) for topic in request.topics]
    if requested != [(METADATA_TOPIC, [0])]:
        return _rejection(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    role = raft.role
    if not isinstance(role, Leader):
        return _rejection(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    voters, observers = [], []
    for voter in raft.voters.voters:
        # A voter has the key that the voter set gives it: with configured voters, without a directory id.
        progress = role.progress_of(voter.key)
        if voter.id == raft.me.id:
            progress = Progress(raft.log.end_offset, now_ms, now_ms)
        voters.append(_state(voter.key, progress, version, wall_ms - now_ms))
    for key, progress in role.progress.items():
        if raft.voters.voter_with_key(key) is None:
            observers.append(_state(key, progress, version, wall_ms - now_ms))
    partition = DescribeQuorumResponsePartitionData(
        partition_index=0,
        leader_id=raft.me.id,
        leader_epoch=raft.epoch,
        high_watermark=-1 if role.high_watermark is None else role.high_watermark,
        current_voters=voters,
        observers=observers,
    )
    nodes = [Node(node_id=voter.id, listeners=listeners_to_wire(voter)) for voter in raft.voters.voters]
    return DescribeQuorumResponse(
        topics=[DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=nodes if version >= 2 else [],
    )


def _state(key: ReplicaKey, progress: Progress, version: int, wall_offset_ms: int) -> ReplicaState:
    """The machine keeps monotonic times; the response has wall-clock times."""
    fetched, caught_up = progress.last_fetch_ms, progress.last_caught_up_ms
    return ReplicaState(
        replica_id=key.id,
        replica_directory_id=key.directory_id if version >= 2 else ZERO_UUID,
        log_end_offset=progress.end_offset,
        last_fetch_timestamp=-1 if fetched is None else fetched + wall_offset_ms,
        last_caught_up_timestamp=-1 if caught_up is None else caught_up + wall_offset_ms,
    )


def _rejection(request: DescribeQuorumRequest, error: ErrorCode) -> DescribeQuorumResponse:
    """The error for every requested partition."""
    return DescribeQuorumResponse(
        topics=[
            DescribeQuorumResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    DescribeQuorumResponsePartitionData(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
