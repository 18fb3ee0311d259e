"""DescribeQuorum (55) for a quorum of one: its only voter leads and is always caught up."""

from __future__ import annotations

from strandline.model.errors import ErrorCode
from strandline.model.ids import METADATA_TOPIC, ZERO_UUID
from strandline.protocol.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from strandline.raft.voters import Voter


def describe_sole_voter(
    request: DescribeQuorumRequest,
    version: int,
    voter: Voter,
    epoch: int,
    high_watermark: int,
    log_end_offset: int,
    wall_ms: int,
) -> DescribeQuorumResponse:
    """Directories and addresses of voters exist from version 2 on."""
    asked = [(topic.topic_name, [p.partition_index for p in topic.partitions]) for topic in request.topics]
    if asked != [(METADATA_TOPIC, [0])]:
        return _unknown(request)
    me = ReplicaState(
        replica_id=voter.id,
        replica_directory_id=voter.directory_id if version >= 2 else ZERO_UUID,
        log_end_offset=log_end_offset,
        last_fetch_timestamp=wall_ms,
        last_caught_up_timestamp=wall_ms,
    )
    partition = DescribeQuorumResponsePartitionData(
        partition_index=0,
        leader_id=voter.id,
        leader_epoch=epoch,
        high_watermark=high_watermark,
        current_voters=[me],
        observers=[],
    )
    listeners = [Listener(name=name, host=at.host, port=at.port) for name, at in voter.listeners]
    return DescribeQuorumResponse(
        topics=[DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=[Node(node_id=voter.id, listeners=listeners)] if version >= 2 else [],
    )


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """There is one quorum; whoever asks for another partition learns that it is not there, partition by partition."""
    return DescribeQuorumResponse(
        topics=[
            DescribeQuorumResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    DescribeQuorumResponsePartitionData(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
