"""A leader's epoch, from its first record to its resignation, with the two requests that announce both to the voters.

The first record of an epoch is a LeaderChangeMessage; committing it commits everything before it. BeginQuorumEpoch
announces the epoch, and is repeated to voters that do not fetch, since they may not know of it. EndQuorumEpoch makes a
planned change of leader quick: it names the preferred successors, most up to date first, and the first of them starts
an election at once. A leader resigns when its node stops, when it has lost contact with the majority (`timeouts`), or
when its own removal from the voters is committed.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.model.errors import ErrorCode
from strandline.protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
)
from strandline.protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
)
from strandline.raft.machine.effects import Flush, Send
from strandline.raft.machine.membership import expire_change
from strandline.raft.machine.messages import (
    begin_epoch_partition,
    begin_epoch_request,
    begin_epoch_response,
    end_epoch_partition,
    end_epoch_request,
    end_epoch_response,
    leader_endpoint_of,
    response_status,
    successors_of,
)
from strandline.raft.machine.observed_leader import observe_leader
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.replication import advance_high_watermark, complete_parked_fetches, remove_idle_observers
from strandline.raft.machine.states import Follower, Leader, Prospective, Resigned
from strandline.raft.machine.timeouts import has_lost_majority, succession_deadline
from strandline.raft.machine.values import LAST_EPOCH, ControlRecord, KnownLeader
from strandline.raft.machine.voters import ReplicaKey, Voter


def take_leadership(raft: RaftState, epoch: int, granting: Sequence[int], now_ms: int) -> None:
    """Appends the first record of the epoch; `granting` are the ids of the voters that elected this leader."""
    voters, kraft_version = raft.voters, raft.log.kraft_version
    raft.become_leader(now_ms, epoch)
    granted = [voter for voter in voters.voters if voter.id in granting]
    # There is a version 1 with directory ids, but Kafka 4.3 neither writes nor reads it.
    records: list[ControlRecord] = [
        LeaderChangeMessage(
            version=0, leader_id=raft.me.id, voters=_named(voters.voters), granting_voters=_named(granted)
        )
    ]
    if kraft_version > 0 and (raft.log.voters_offset < 0 or not voters.describes(raft.me)):
        # No VotersRecord is in the log yet, or its entry for this voter is no longer true.
        voters = voters.with_voter(raft.me)
        records += [KRaftVersionRecord(version=0, kraft_version=kraft_version), voters.record()]
    raft.log.append_control(records, epoch)
    raft.emit(Flush())


def poll_leader(raft: RaftState, role: Leader, now_ms: int) -> None:
    advance_high_watermark(raft, role)
    if has_lost_majority(raft, role, now_ms) or _is_removed(raft, role):
        resign(raft, role, now_ms)
        return
    expire_change(raft, role, now_ms)
    complete_parked_fetches(raft, role, now_ms)
    if now_ms >= role.announce_at_ms:
        _announce_epoch(raft, role, now_ms)
        remove_idle_observers(raft, role, now_ms)


def resign(raft: RaftState, role: Leader, now_ms: int) -> None:
    """The successors are the other voters, most up to date first."""
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
        if voter.id in role.unacknowledged and endpoint is not None and raft.in_flight.may_send(endpoint, now_ms):
            request = end_epoch_request(raft.cluster_id, raft.me, raft.epoch, role.successors)
            raft.send(voter.id, endpoint, request, now_ms)


def on_begin_epoch(raft: RaftState, token: object, request: BeginQuorumEpochRequest, now_ms: int) -> None:
    begun = raft.accept(token, request.cluster_id, begin_epoch_partition(request), BeginQuorumEpochResponse)
    if begun is None:
        return
    error = _announcement_error(raft, begun.leader_id, begun.leader_epoch)
    if error is ErrorCode.NONE:
        endpoint = leader_endpoint_of(request.leader_endpoints, raft.listener_name)
        _follow_announced(raft, KnownLeader(begun.leader_epoch, begun.leader_id, endpoint), now_ms)
        addressee = ReplicaKey(request.voter_id, begun.voter_directory_id)
        if request.voter_id >= 0 and not raft.me.key.matches(addressee):
            error = ErrorCode.INVALID_VOTER_KEY
    raft.reply(token, begin_epoch_response(raft.known_leader, error))


def on_begin_epoch_response(raft: RaftState, response: BeginQuorumEpochResponse, now_ms: int) -> bool:
    status = response_status(response)
    if status is None:
        return False
    observe_leader(raft, status.leader, now_ms)
    return True


def on_end_epoch(raft: RaftState, token: object, request: EndQuorumEpochRequest, now_ms: int) -> None:
    ended = raft.accept(token, request.cluster_id, end_epoch_partition(request), EndQuorumEpochResponse)
    if ended is None:
        return
    error = _announcement_error(raft, ended.leader_id, ended.leader_epoch)
    if error is ErrorCode.NONE:
        endpoint = leader_endpoint_of(request.leader_endpoints, raft.listener_name)
        observe_leader(raft, KnownLeader(ended.leader_epoch, ended.leader_id, endpoint), now_ms)
        if isinstance(raft.role, Follower):
            raft.role.leader_has_resigned = True
            at_ms = succession_deadline(raft, successors_of(ended), now_ms)
            raft.role.deadline_ms = min(raft.role.deadline_ms, at_ms)
    raft.reply(token, end_epoch_response(raft.known_leader, error))


def on_end_epoch_response(raft: RaftState, send: Send, response: EndQuorumEpochResponse, now_ms: int) -> bool:
    status = response_status(response)
    if status is None:
        return False
    if isinstance(raft.role, Resigned):
        raft.role.unacknowledged.pop(send.to, None)
    observe_leader(raft, status.leader, now_ms)
    return True


def _announce_epoch(raft: RaftState, role: Leader, now_ms: int) -> None:
    """Sends BeginQuorumEpoch to all voters at first, then to those that have not fetched for a while."""
    interval_ms = raft.settings.begin_epoch_interval_ms
    role.announce_at_ms = now_ms + interval_ms
    for voter in raft.other_voters:
        last_fetch_ms = role.progress_of(voter.key).last_fetch_ms
        endpoint = voter.endpoint_for(raft.listener_name)
        if endpoint is None or (last_fetch_ms is not None and now_ms - last_fetch_ms < interval_ms):
            continue
        if raft.in_flight.may_send(endpoint, now_ms):
            request = begin_epoch_request(raft.cluster_id, raft.me, voter.key, raft.epoch)
            raft.send(voter.id, endpoint, request, now_ms)


def _is_removed(raft: RaftState, role: Leader) -> bool:
    """A leader that removed itself continues to lead until the remaining voters have committed its removal."""
    return not raft.is_voter and role.high_watermark is not None and role.high_watermark > raft.log.voters_offset


def _named(voters: Sequence[Voter]) -> list[LeaderChangeMessageVoter]:
    return [LeaderChangeMessageVoter(voter_id=voter.id) for voter in voters]


def _announcement_error(raft: RaftState, leader_id: int, epoch: int) -> ErrorCode:
    """Why a BeginQuorumEpoch or EndQuorumEpoch is rejected, or NONE."""
    if epoch < raft.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if leader_id < 0 or epoch > LAST_EPOCH else ErrorCode.NONE


def _follow_announced(raft: RaftState, leader: KnownLeader, now_ms: int) -> None:
    """The leader itself sent the request: a Prospective follows it again, a Follower learns that it has moved."""
    observe_leader(raft, leader, now_ms, from_leader=True)
    if leader.endpoint is None or leader.id == raft.me.id:
        return
    has_moved = isinstance(raft.role, Follower) and raft.leader_endpoint != leader.endpoint
    if has_moved or isinstance(raft.role, Prospective):
        raft.become_follower(leader.epoch, leader.id, leader.endpoint, now_ms)
