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
from strandline.raft.machine.answers import begin_response, end_response, heard_in
from strandline.raft.machine.effects import Send
from strandline.raft.machine.hearing import hear_of
from strandline.raft.machine.patience import succession
from strandline.raft.machine.requests import (
    begin_request,
    end_request,
    successors_in,
    the_beginning,
    the_end,
    told_endpoint,
)
from strandline.raft.machine.seat import Seat
from strandline.raft.machine.states import Follower, Leader, Prospective, Resigned
from strandline.raft.machine.values import LAST_EPOCH, KnownLeader
from strandline.raft.machine.voters import ReplicaKey


def announce_epoch(seat: Seat, role: Leader, now_ms: int) -> None:
    """To all voters at first, then to those that have not fetched for a while."""
    interval_ms = seat.settings.begin_epoch_interval_ms
    role.announce_at_ms = now_ms + interval_ms
    for voter in seat.other_voters:
        last_fetch_ms = role.progress_of(voter.key).last_fetch_ms
        endpoint = voter.endpoint_for(seat.listener_name)
        if endpoint is None or (last_fetch_ms is not None and now_ms - last_fetch_ms < interval_ms):
            continue
        if seat.mail.is_free(endpoint, now_ms):
            seat.send(voter.id, endpoint, begin_request(seat.cluster_id, seat.me, voter.key, seat.epoch), now_ms)


def on_begin(seat: Seat, token: object, request: BeginQuorumEpochRequest, now_ms: int) -> None:
    if request.cluster_id not in (None, seat.cluster_id):
        seat.reply(token, BeginQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        return
    begun = the_beginning(request)
    if begun is None:
        seat.reply(token, BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    error = _unheard(seat, begun.leader_id, begun.leader_epoch)
    if error is ErrorCode.NONE:
        endpoint = told_endpoint(request.leader_endpoints, seat.listener_name)
        _attend(seat, KnownLeader(begun.leader_epoch, begun.leader_id, endpoint), now_ms)
        asked_for = ReplicaKey(request.voter_id, begun.voter_directory_id)
        if request.voter_id >= 0 and not seat.me.key.is_known_as(asked_for):
            error = ErrorCode.INVALID_VOTER_KEY
    seat.reply(token, begin_response(seat.known_leader, error))


def on_begin_response(seat: Seat, response: BeginQuorumEpochResponse, now_ms: int) -> bool:
    heard = heard_in(response)
    if heard is None:
        return False
    hear_of(seat, heard.leader, now_ms)
    return True


def resign(seat: Seat, role: Leader, now_ms: int) -> None:
    """Whoever has most of the log should be next."""
    others = [voter.key for voter in seat.other_voters]
    others.sort(key=lambda key: -role.progress_of(key).end_offset)
    seat.become_resigned(now_ms, successors=others, untold=[key.id for key in others])


def pursue_resigned(seat: Seat, role: Resigned, now_ms: int) -> None:
    if not seat.may_stand and (now_ms >= role.deadline_ms or not role.untold):
        seat.become_unattached(seat.epoch + 1, now_ms)
        return
    if now_ms >= role.deadline_ms:
        seat.become_prospective(now_ms)
        return
    for voter in seat.other_voters:
        endpoint = voter.endpoint_for(seat.listener_name)
        if voter.id in role.untold and endpoint is not None and seat.mail.is_free(endpoint, now_ms):
            request = end_request(seat.cluster_id, seat.me, seat.epoch, role.successors)
            seat.send(voter.id, endpoint, request, now_ms)


def on_end(seat: Seat, token: object, request: EndQuorumEpochRequest, now_ms: int) -> None:
    if request.cluster_id not in (None, seat.cluster_id):
        seat.reply(token, EndQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        return
    ended = the_end(request)
    if ended is None:
        seat.reply(token, EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    error = _unheard(seat, ended.leader_id, ended.leader_epoch)
    if error is ErrorCode.NONE:
        endpoint = told_endpoint(request.leader_endpoints, seat.listener_name)
        hear_of(seat, KnownLeader(ended.leader_epoch, ended.leader_id, endpoint), now_ms)
        if isinstance(seat.role, Follower):
            seat.role.leader_has_resigned = True
            at_ms = succession(seat, successors_in(ended), now_ms)
            seat.role.deadline_ms = min(seat.role.deadline_ms, at_ms)
    seat.reply(token, end_response(seat.known_leader, error))


def on_end_response(seat: Seat, send: Send, response: EndQuorumEpochResponse, now_ms: int) -> bool:
    heard = heard_in(response)
    if heard is None:
        return False
    if isinstance(seat.role, Resigned):
        seat.role.untold.pop(send.to, None)
    hear_of(seat, heard.leader, now_ms)
    return True


def _unheard(seat: Seat, leader_id: int, epoch: int) -> ErrorCode:
    """Why an announcement is not listened to, or NONE."""
    if epoch < seat.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if leader_id < 0 or epoch > LAST_EPOCH else ErrorCode.NONE


def _attend(seat: Seat, told: KnownLeader, now_ms: int) -> None:
    """The leader itself speaks. A Prospective gave it up too early; a Follower may learn that it has moved."""
    hear_of(seat, told, now_ms, from_leader=True)
    if told.endpoint is None or told.id == seat.me.id:
        return
    has_moved = isinstance(seat.role, Follower) and seat.leader_endpoint != told.endpoint
    if has_moved or isinstance(seat.role, Prospective):
        seat.become_follower(told.epoch, told.id, told.endpoint, now_ms)
