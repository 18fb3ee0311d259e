"""Elections: how a voter becomes a candidate, and how it votes (Raft, section 5.2; KIP-595, KIP-996).

A voter without a leader first sends pre-votes, as Prospective: would the others vote for it? Only when a majority would
does it raise the epoch, as Candidate, and request votes: a replica that was merely partitioned cannot depose a leader
that the others follow. A vote is granted once per epoch, and only to a candidate whose log is at least as up to date as
the voter's own: so the winner has every committed record.

An endpoint that refuses connections counts as a rejected vote: no response will come from it, so the election can be
decided, and retried, before the election timeout.
"""

from __future__ import annotations

from strandline.model.errors import ErrorCode
from strandline.protocol.messages.quorum import VoteRequest, VoteRequestPartitionData, VoteResponse
from strandline.raft.machine.effects import Send
from strandline.raft.machine.leader import take_leadership
from strandline.raft.machine.messages import (
    response_status,
    vote_partition,
    vote_request,
    vote_response,
    vote_response_partition,
)
from strandline.raft.machine.observed_leader import observe_and_check_epoch, observe_leader
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.replication import find_leader
from strandline.raft.machine.states import Candidate, Follower, Prospective, Unattached
from strandline.raft.machine.timeouts import election_backoff, short_election_delay, split_vote_deadline
from strandline.raft.machine.values import LAST_EPOCH, NO_NODE, KnownLeader
from strandline.raft.machine.voters import ReplicaKey


def start(raft: RaftState, now_ms: int) -> None:
    """The first role after a start, by what quorum-state and the log say."""
    state, log_epoch = raft.quorum, raft.log.last_epoch
    if raft.is_voter and len(raft.voters) == 1:
        take_leadership(raft, max(state.epoch, log_epoch) + 1, [raft.me.id], now_ms)
        return
    voted_for_me = raft.vote is not None and raft.me.key.matches(raft.vote)
    leader = raft.voters.voter(state.leader_id)
    endpoint = None if leader is None else leader.endpoint_for(raft.listener_name)
    soon_ms = short_election_delay(raft, now_ms)
    if state.epoch < log_epoch:
        raft.become_unattached(log_epoch, now_ms, deadline_ms=soon_ms)
    elif state.leader_id == raft.me.id:
        # It must not lead this epoch again: records it had not synced may be lost here only, and one offset of the
        # epoch would then hold two different records.
        raft.become_resigned(now_ms, successors=(), unacknowledged=(), deadline_ms=soon_ms)
    elif state.leader_id != NO_NODE and endpoint is not None:
        raft.become_follower(state.epoch, state.leader_id, endpoint, now_ms)
    elif state.leader_id != NO_NODE or not voted_for_me or not raft.is_voter:
        raft.become_unattached(state.epoch, now_ms, deadline_ms=soon_ms)
    elif log_epoch == state.epoch:
        # It had won: its first record was synced, but quorum-state does not name it as leader yet. As above.
        raft.become_resigned(now_ms, successors=(), unacknowledged=(), deadline_ms=soon_ms)
    else:
        raft.become_candidate(now_ms, state.epoch)


def poll_unattached(raft: RaftState, role: Unattached, now_ms: int) -> None:
    if role.deadline_ms is not None and now_ms >= role.deadline_ms:
        raft.become_prospective(now_ms)
    elif not raft.may_be_candidate or raft.failed_elections > 0:
        # A voter that lost an election may have missed so much that it knows none of the current voters.
        find_leader(raft, now_ms)


def poll_prospective(raft: RaftState, role: Prospective, now_ms: int) -> None:
    if role.tally.is_won:
        raft.become_candidate(now_ms, raft.epoch + 1)
    elif role.tally.is_lost or now_ms >= role.deadline_ms:
        _withdraw(raft, role, now_ms)
    else:
        _request_votes(raft, role, now_ms)


def poll_candidate(raft: RaftState, role: Candidate, now_ms: int) -> None:
    if role.tally.is_won:
        take_leadership(raft, raft.epoch, role.tally.granting, now_ms)
    elif role.has_lost and now_ms >= role.deadline_ms:
        raft.become_prospective(now_ms)
    elif role.has_lost:
        pass
    elif role.tally.is_lost or now_ms >= role.deadline_ms:
        role.has_lost = True
        role.deadline_ms = election_backoff(raft, now_ms)
    else:
        _request_votes(raft, role, now_ms)


def on_vote(raft: RaftState, token: object, request: VoteRequest, now_ms: int) -> None:
    requested = raft.accept(token, request.cluster_id, vote_partition(request), VoteResponse)
    if requested is None:
        return
    error = _vote_error(raft, request, requested, now_ms)
    granted = error is ErrorCode.NONE and _grants(raft, requested)
    if requested.pre_vote and not granted and isinstance(raft.role, Prospective):
        # The sender's log is behind this log, and it no longer follows a leader: it would now grant our pre-vote.
        raft.role.tally.retry(requested.replica_id)
    if granted and not requested.pre_vote and raft.vote is None:
        vote = ReplicaKey(requested.replica_id, requested.replica_directory_id)
        raft.become_unattached(raft.epoch, now_ms, vote=vote)
    raft.reply(token, vote_response(raft.known_leader, error, granted=granted))


def on_vote_response(raft: RaftState, send: Send, response: VoteResponse, now_ms: int) -> bool:
    role = raft.role
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION and isinstance(role, Prospective):
        # A voter from before KIP-996 knows no pre-vote: request votes at once, as was done then.
        raft.become_candidate(now_ms, raft.epoch + 1)
        return True
    status, given = response_status(response), vote_response_partition(response)
    if status is None or given is None:
        return False
    if not observe_and_check_epoch(raft, status.leader, now_ms) or not isinstance(role, Prospective | Candidate):
        return True
    if status.error is not ErrorCode.NONE and status.error is not ErrorCode.INVALID_VOTER_KEY:
        return False
    role.tally.count(send.to, granted=given.vote_granted)
    if isinstance(role, Candidate) and not given.vote_granted:
        # There is another candidate. Voters that have not responded are not waited for much longer: if the vote is
        # split, both candidates must start another election.
        role.deadline_ms = min(role.deadline_ms, split_vote_deadline(raft, now_ms))
    return True


def on_vote_failed(raft: RaftState, send: Send, refused: bool) -> None:
    if refused and isinstance(raft.role, Prospective | Candidate):
        raft.role.tally.count(send.to, granted=False)


def _withdraw(raft: RaftState, role: Prospective, now_ms: int) -> None:
    """The pre-vote is lost: the others follow a leader, or are more up to date, or do not respond."""
    retry_ms = election_backoff(raft, now_ms)
    known = raft.known_leader
    if known.id not in (NO_NODE, raft.me.id) and known.endpoint is not None:
        raft.become_follower(known.epoch, known.id, known.endpoint, now_ms)
    else:
        deadline_ms = retry_ms if role.tally.is_lost else raft.election_timeout(now_ms)
        raft.become_unattached(raft.epoch, now_ms, deadline_ms=deadline_ms)


def _request_votes(raft: RaftState, role: Prospective | Candidate, now_ms: int) -> None:
    for voter_id in role.tally.unanswered:
        voter = raft.voters.voter(voter_id)
        endpoint = None if voter is None else voter.endpoint_for(raft.listener_name)
        if voter is None or endpoint is None or not raft.in_flight.may_send(endpoint, now_ms):
            continue
        request = vote_request(
            raft.cluster_id,
            raft.me.key,
            voter.key,
            raft.epoch,
            raft.log.last_epoch,
            raft.log.end_offset,
            pre_vote=isinstance(role, Prospective),
        )
        raft.send(voter_id, endpoint, request, now_ms)


def _vote_error(raft: RaftState, request: VoteRequest, requested: VoteRequestPartitionData, now_ms: int) -> ErrorCode:
    """Why the request is rejected, or NONE. Its epoch is observed."""
    newest_possible = requested.replica_epoch if requested.pre_vote else requested.replica_epoch - 1
    is_possible = requested.last_offset >= 0 and 0 <= requested.last_offset_epoch <= newest_possible
    if not is_possible or requested.replica_epoch > LAST_EPOCH:
        return ErrorCode.INVALID_REQUEST
    if requested.replica_epoch < raft.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    observe_leader(raft, KnownLeader(requested.replica_epoch, NO_NODE, None), now_ms)
    addressee = ReplicaKey(request.voter_id, requested.voter_directory_id)
    if request.voter_id != NO_NODE and not raft.me.key.matches(addressee):
        return ErrorCode.INVALID_VOTER_KEY
    return ErrorCode.NONE


def _grants(raft: RaftState, requested: VoteRequestPartitionData) -> bool:
    has_enough = (requested.last_offset_epoch, requested.last_offset) >= (raft.log.last_epoch, raft.log.end_offset)
    match raft.role:
        case Unattached() | Prospective() if requested.pre_vote:
            return has_enough
        case Unattached() | Prospective() if raft.vote is not None:
            return ReplicaKey(requested.replica_id, requested.replica_directory_id).matches(raft.vote)
        case Unattached() | Prospective():
            return has_enough and raft.quorum.leader_id == NO_NODE
        case Follower() as role:
            # A follower in contact with its leader protects it from needless elections.
            needs_leader = not role.has_fetched or role.leader_has_failed or role.leader_has_resigned
            return has_enough and requested.pre_vote and needs_leader
        case Candidate():
            return has_enough and requested.pre_vote
        case _:
            return False
