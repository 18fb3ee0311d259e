"""A leader says that its epoch has begun (BeginQuorumEpoch) and that it has ended (EndQuorumEpoch); voters listen.

The first is repeated to voters that do not fetch, since they may not know. The second is what makes a planned change of
leader quick: it names the successors in the order in which they have the log, and the best stands for election at once.
"""

from __future__ import annotations

from strandline.model.errors import ErrorCode
from strandline.protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
)
from strandline.raft.machine.answers import begin_epoch_response, end_epoch_response, response_status
from strandline.raft.machine.effects import Send
from strandline.raft.machine.observed_leader import observe_leader
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.requests import (
    begin_epoch_partition,
    begin_epoch_request,
    end_epoch_partition,
    end_epoch_request,
    leader_endpoint_of,
    successors_of,
)
from strandline.raft.machine.states import Follower, Leader, Prospective, Resigned
from strandline.raft.machine.timeouts import succession_deadline
from strandline.raft.machine.values import LAST_EPOCH, KnownLeader
from strandline.raft.machine.voters import ReplicaKey


def announce_epoch(raft: RaftState, role: Leader, now_ms: int) -> None:
    """To all voters at first, then to those that have not fetched for a while."""
    interval_ms = raft.settings.begin_epoch_interval_ms
    role.announce_at_ms = now_ms + interval_ms
    for voter in raft.other_voters:
        last_fetch_ms = role.progress_of(voter.key).last_fetch_ms
        endpoint = voter.endpoint_for(raft.listener_name)
        if endpoint is None or (last_fetch_ms is not None and now_ms - last_fetch_ms < interval_ms):
            continue
        if raft.in_flight.is_free(endpoint, now_ms):
            raft.send(voter.id, endpoint, begin_epoch_request(raft.cluster_id, raft.me, voter.key, raft.epoch), now_ms)


def on_begin(raft: RaftState, token: object, request: BeginQuorumEpochRequest, now_ms: int) -> None:
    if request.cluster_id not in (None, raft.cluster_id):
        raft.reply(token, BeginQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        return
    begun = begin_epoch_partition(request)
    if begun is None:
        raft.reply(token, BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    error = _unheard(raft, begun.leader_id, begun.leader_epoch)
    if error is ErrorCode.NONE:
        endpoint = leader_endpoint_of(request.leader_endpoints, raft.listener_name)
        _attend(raft, KnownLeader(begun.leader_epoch, begun.leader_id, endpoint), now_ms)
        asked_for = ReplicaKey(request.voter_id, begun.voter_directory_id)
        if request.voter_id >= 0 and not raft.me.key.matches(asked_for):
            error = ErrorCode.INVALID_VOTER_KEY
    raft.reply(token, begin_epoch_response(raft.known_leader, error))


def on_begin_response(raft: RaftState, response: BeginQuorumEpochResponse, now_ms: int) -> bool:
    heard = response_status(response)
    if heard is None:
        return False
    observe_leader(raft, heard.leader, now_ms)
    return True


def resign(raft: RaftState, role: Leader, now_ms: int) -> None:
    """Whoever has most of the log should be next."""
    others = [voter.key for voter in raft.other_voters]
    others.sort(key=lambda key: -role.progress_of(key).end_offset)
    raft.become_resigned(now_ms, successors=others, unacknowledged=[key.id for key in others])


def poll_resigned(raft: RaftState, role: Resigned, now_ms: int) -> None:
    if not raft.may_be_candidate and (now_ms >= role.deadline_ms or not role.unacknowledged):
        raft.become_unattached(raft.epoch + 1, now_ms)
        return
    if now_ms >= role.deadline_ms:
        raft.become_prospective(now_ms)
        return
    for voter in raft.other_voters:
        endpoint = voter.endpoint_for(raft.listener_name)
        if voter.id in role.unacknowledged and endpoint is not None and raft.in_flight.is_free(endpoint, now_ms):
            request = end_epoch_request(raft.cluster_id, raft.me, raft.epoch, role.successors)
            raft.send(voter.id, endpoint, request, now_ms)


def on_end(raft: RaftState, token: object, request: EndQuorumEpochRequest, now_ms: int) -> None:
    if request.cluster_id not in (None, raft.cluster_id):
        raft.reply(token, EndQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        return
    ended = end_epoch_partition(request)
    if ended is None:
        raft.reply(token, EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    error = _unheard(raft, ended.leader_id, ended.leader_epoch)
    if error is ErrorCode.NONE:
        endpoint = leader_endpoint_of(request.leader_endpoints, raft.listener_name)
        observe_leader(raft, KnownLeader(ended.leader_epoch, ended.leader_id, endpoint), now_ms)
        if isinstance(raft.role, Follower):
            raft.role.leader_has_resigned = True
            at_ms = succession_deadline(raft, successors_of(ended), now_ms)
            raft.role.deadline_ms = min(raft.role.deadline_ms, at_ms)
    raft.reply(token, end_epoch_response(raft.known_leader, error))


def on_end_response(raft: RaftState, send: Send, response: EndQuorumEpochResponse, now_ms: int) -> bool:
    heard = response_status(response)
    if heard is None:
        return False
    if isinstance(raft.role, Resigned):
        raft.role.unacknowledged.pop(send.to, None)
    observe_leader(raft, heard.leader, now_ms)
    return True


def _unheard(raft: RaftState, leader_id: int, epoch: int) -> ErrorCode:
    """Why an announcement is not listened to, or NONE."""
    if epoch < raft.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if leader_id < 0 or epoch > LAST_EPOCH else ErrorCode.NONE


def _attend(raft: RaftState, told: KnownLeader, now_ms: int) -> None:
    """The leader itself speaks. A Prospective gave it up too early; a Follower may learn that it has moved."""
    observe_leader(raft, told, now_ms, from_leader=True)
    if told.endpoint is None or told.id == raft.me.id:
        return
    has_moved = isinstance(raft.role, Follower) and raft.leader_endpoint != told.endpoint
    if has_moved or isinstance(raft.role, Prospective):
        raft.become_follower(told.epoch, told.id, told.endpoint, now_ms)
