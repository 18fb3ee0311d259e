"""Requests from outside, as inputs of the machine: which API is which input."""

from __future__ import annotations

from typing import Final

from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.fetch import FetchRequest, FetchResponse
from strandline.protocol.messages.quorum import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
    VoteResponse,
)
from strandline.protocol.types import Message
from strandline.raft.machine.effects import Effect
from strandline.raft.machine.replica import Replica

# From which version on an answer says where the leader is (Kafka fills it in for Fetch later than the field exists).
_ENDPOINTS_SINCE: Final[dict[type[Message], int]] = {
    VoteResponse: 1,
    BeginQuorumEpochResponse: 1,
    EndQuorumEpochResponse: 1,
    FetchSnapshotResponse: 1,
    FetchResponse: 17,
}
_REQUESTS: Final = (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
# Whoever is gone by then is forgotten then: a fetch that was parked for good would be kept for good.
_LONGEST_WAIT_MS: Final = 10_000


def fitted(response: Message, version: int) -> Message:
    """An answer of the machine, which speaks the newest version, as this version can say it."""
    since = _ENDPOINTS_SINCE.get(type(response))
    if since is not None and version < since:
        response.node_endpoints = []  # type: ignore[attr-defined]
    return response


def check_known(request: Message) -> None:
    """Before it becomes an input: what cannot be one is the asker's fault, and no fault of the machine."""
    if not isinstance(request, _REQUESTS):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{type(request).__name__} is no request of the metadata quorum")


def may_write(request: Message) -> bool:
    """Whether a leader may append control records of its own on this request."""
    return isinstance(request, AddRaftVoterRequest | RemoveRaftVoterRequest | UpdateRaftVoterRequest)


def hand_in(replica: Replica, token: object, request: Message, version: int, now_ms: int, wall_ms: int) -> list[Effect]:
    match request:
        case FetchRequest():
            request.max_wait_ms = min(request.max_wait_ms, _LONGEST_WAIT_MS)
            return replica.on_fetch(token, request, now_ms)
        case VoteRequest():
            return replica.on_vote(token, request, now_ms)
        case BeginQuorumEpochRequest():
            return replica.on_begin_quorum_epoch(token, request, now_ms)
        case EndQuorumEpochRequest():
            return replica.on_end_quorum_epoch(token, request, now_ms)
        case FetchSnapshotRequest():
            return replica.on_fetch_snapshot(token, request, now_ms)
        case DescribeQuorumRequest():
            return replica.on_describe_quorum(token, request, version, now_ms, wall_ms)
        case AddRaftVoterRequest():
            return replica.on_add_voter(token, request, now_ms)
        case RemoveRaftVoterRequest():
            return replica.on_remove_voter(token, request, now_ms)
        case UpdateRaftVoterRequest():
            return replica.on_update_voter(token, request, now_ms)
    raise AssertionError(f"{type(request).__name__} is no input of the machine")
