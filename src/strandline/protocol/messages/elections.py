"""ElectLeaders (43): elects the preferred replica, or any replica, as the leader."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, i8, i16, i32, since, string


class ElectLeadersRequest(Message, api_key=43, versions=(0, 2), flexible=2):
    """v1 preferred or unclean (KIP-460), v2 flexible. Null partitions means all."""

    election_type: Annotated[i8, since(1)] = 0  # 0 preferred, 1 unclean
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: i32 = 60000


class TopicPartitions(Struct):
    topic: string = ""
    partitions: list[i32] = []


class ElectLeadersResponse(Message, api_key=43, versions=(0, 2), flexible=2):
    """v1 error code, v2 flexible."""

    throttle_time_ms: i32 = 0
    error_code: Annotated[i16, since(1)] = 0
    replica_election_results: list[ReplicaElectionResult] = []


class ReplicaElectionResult(Struct):
    topic: string = ""
    partition_result: list[PartitionResult] = []


class PartitionResult(Struct):
    partition_id: i32 = 0
    error_code: i16 = 0
    error_message: string | None = ""
