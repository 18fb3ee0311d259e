"""How a replica comes to stand for election, and how it votes (Raft, section 5.2; KIP-595, KIP-996).

A voter that has heard of no leader for too long first asks, as Prospective, whether it *would* be voted for. Only when
a majority says so does it raise the epoch, as Candidate, and ask for votes: a replica that was merely cut off cannot
unseat a leader whom the others follow. A vote is given once per epoch, to a log that goes at least as far as the
voter's own: so whoever wins has everything that any majority ever held.

An address where nobody is (`refused`) counts as a refusal: no answer will come from there, so the ballot can be
decided, and tried again, without waiting for the election timeout.
"""

from __future__ import annotations

from strandline.model.errors import ErrorCode
from strandline.protocol.messages.quorum import VoteRequest, VoteRequestPartitionData, VoteResponse
from strandline.raft.machine.answers import response_status, vote_response, vote_response_partition
from strandline.raft.machine.effects import Send
from strandline.raft.machine.following import find_leader
from strandline.raft.machine.leader import take_leadership
from strandline.raft.machine.observed_leader import observe_and_check_epoch, observe_leader
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.requests import vote_partition, vote_request
from strandline.raft.machine.states import Candidate, Follower, Prospective, Unattached
from strandline.raft.machine.timeouts import backoff, soon, split_vote_deadline
from strandline.raft.machine.values import LAST_EPOCH, NO_NODE, KnownLeader
from strandline.raft.machine.voters import ReplicaKey


def begin(raft: RaftState, now_ms: int) -> None:
    """The first state of this life, by what was remembered of the last."""
    state, log_epoch = raft.quorum, raft.log.last_epoch
    if raft.is_voter and len(raft.voters) == 1:
        take_leadership(raft, max(state.epoch, log_epoch) + 1, [raft.me.id], now_ms)
        return
    voted_for_me = raft.vote is not None and raft.me.key.matches(raft.vote)
    leader = raft.voters.voter(state.leader_id)
    endpoint = None if leader is None else leader.endpoint_for(raft.listener_name)
    soon_ms = soon(raft, now_ms)
    if state.epoch < log_epoch:
        raft.become_unattached(log_epoch, now_ms, deadline_ms=soon_ms)
    elif state.leader_id == raft.me.id:
        # Never again in this epoch: what it had not synced may be lost here only, and an offset would mean two things.
        raft.become_resigned(now_ms, successors=(), unacknowledged=(), deadline_ms=soon_ms)
    elif state.leader_id != NO_NODE and endpoint is not None:
        raft.become_follower(state.epoch, state.leader_id, endpoint, now_ms)
    elif state.leader_id != NO_NODE or not voted_for_me or not raft.is_voter:
        raft.become_unattached(state.epoch, now_ms, deadline_ms=soon_ms)
    elif log_epoch == state.epoch:
        # It had won, and its first record survived, though not its leadership in quorum-state: the same.
        raft.become_resigned(now_ms, successors=(), unacknowledged=(), deadline_ms=soon_ms)
    else:
        raft.become_candidate(now_ms, state.epoch)


def poll_unattached(raft: RaftState, role: Unattached, now_ms: int) -> None:
    if role.deadline_ms is not None and now_ms >= role.deadline_ms:
        raft.become_prospective(now_ms)
    elif not raft.may_be_candidate or raft.failed_elections > 0:
        # A voter that nobody elected may know of none of today's voters any more.
        find_leader(raft, now_ms)


def poll_prospective(raft: RaftState, role: Prospective, now_ms: int) -> None:
    if role.tally.is_won:
        raft.become_candidate(now_ms, raft.epoch + 1)
    elif role.tally.is_lost or now_ms >= role.deadline_ms:
        _withdraw(raft, role, now_ms)
    else:
        _ask_for_votes(raft, role, now_ms)


def poll_candidate(raft: RaftState, role: Candidate, now_ms: int) -> None:
    if role.tally.is_won:
        take_leadership(raft, raft.epoch, role.tally.granting, now_ms)
    elif role.is_beaten and now_ms >= role.deadline_ms:
        raft.become_prospective(now_ms)
    elif role.is_beaten:
        pass
    elif role.tally.is_lost or now_ms >= role.deadline_ms:
        role.is_beaten = True
        role.deadline_ms = backoff(raft, now_ms)
    else:
        _ask_for_votes(raft, role, now_ms)


def on_vote(raft: RaftState, token: object, request: VoteRequest, now_ms: int) -> None:
    if request.cluster_id not in (None, raft.cluster_id):
        raft.reply(token, VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        return
    asked = vote_partition(request)
    if asked is None:
        raft.reply(token, VoteResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    error = _refusal(raft, request, asked, now_ms)
    granted = error is ErrorCode.NONE and _grants(raft, asked)
    if asked.pre_vote and not granted and isinstance(raft.role, Prospective):
        # Its log falls short of ours, and it protects no leader any more: it would not refuse us again.
        raft.role.tally.ask_again(asked.replica_id)
    if granted and not asked.pre_vote and raft.vote is None:
        vote = ReplicaKey(asked.replica_id, asked.replica_directory_id)
        raft.become_unattached(raft.epoch, now_ms, vote=vote)
    raft.reply(token, vote_response(raft.known_leader, error, granted=granted))


def on_vote_response(raft: RaftState, send: Send, response: VoteResponse, now_ms: int) -> bool:
    role = raft.role
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION and isinstance(role, Prospective):
        # A voter from before KIP-996 cannot be asked beforehand: do as was done then.
        raft.become_candidate(now_ms, raft.epoch + 1)
        return True
    heard, given = response_status(response), vote_response_partition(response)
    if heard is None or given is None:
        return False
    if not observe_and_check_epoch(raft, heard.leader, now_ms) or not isinstance(role, Prospective | Candidate):
        return True
    if heard.error is not ErrorCode.NONE and heard.error is not ErrorCode.INVALID_VOTER_KEY:
        return False
    role.tally.count(send.to, granted=given.vote_granted)
    if isinstance(role, Candidate) and not given.vote_granted:
        # Somebody else stands, too. Those who still say nothing are not waited for much longer: both must begin again.
        role.deadline_ms = min(role.deadline_ms, split_vote_deadline(raft, now_ms))
    return True


def on_vote_failed(raft: RaftState, send: Send, refused: bool) -> None:
    if refused and isinstance(raft.role, Prospective | Candidate):
        raft.role.tally.count(send.to, granted=False)


def _withdraw(raft: RaftState, role: Prospective, now_ms: int) -> None:
    """Not wanted: the others follow a leader, or have longer logs, or are not there. Back to where it was."""
    retry_ms = backoff(raft, now_ms)
    known = raft.known_leader
    if known.id not in (NO_NODE, raft.me.id) and known.endpoint is not None:
        raft.become_follower(known.epoch, known.id, known.endpoint, now_ms)
    else:
        deadline_ms = retry_ms if role.tally.is_lost else raft.election_timeout(now_ms)
        raft.become_unattached(raft.epoch, now_ms, deadline_ms=deadline_ms)


def _ask_for_votes(raft: RaftState, role: Prospective | Candidate, now_ms: int) -> None:
    for voter_id in role.tally.unanswered:
        voter = raft.voters.voter(voter_id)
        endpoint = None if voter is None else voter.endpoint_for(raft.listener_name)
        if voter is None or endpoint is None or not raft.in_flight.is_free(endpoint, now_ms):
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


def _refusal(raft: RaftState, request: VoteRequest, asked: VoteRequestPartitionData, now_ms: int) -> ErrorCode:
    """Why the request cannot be considered, or NONE. Its epoch is learnt on the way."""
    newest_possible = asked.replica_epoch if asked.pre_vote else asked.replica_epoch - 1
    is_possible = asked.last_offset >= 0 and 0 <= asked.last_offset_epoch <= newest_possible
    if not is_possible or asked.replica_epoch > LAST_EPOCH:
        return ErrorCode.INVALID_REQUEST
    if asked.replica_epoch < raft.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    observe_leader(raft, KnownLeader(asked.replica_epoch, NO_NODE, None), now_ms)
    asked_for = ReplicaKey(request.voter_id, asked.voter_directory_id)
    if request.voter_id != NO_NODE and not raft.me.key.matches(asked_for):
        return ErrorCode.INVALID_VOTER_KEY
    return ErrorCode.NONE


def _grants(raft: RaftState, asked: VoteRequestPartitionData) -> bool:
    has_enough = (asked.last_offset_epoch, asked.last_offset) >= (raft.log.last_epoch, raft.log.end_offset)
    match raft.role:
        case Unattached() | Prospective() if asked.pre_vote:
            return has_enough
        case Unattached() | Prospective() if raft.vote is not None:
            return ReplicaKey(asked.replica_id, asked.replica_directory_id).matches(raft.vote)
        case Unattached() | Prospective():
            return has_enough and raft.quorum.leader_id == NO_NODE
        case Follower() as role:
            # Whoever hears from its leader protects it from elections that nobody needs.
            needs_leader = not role.has_fetched or role.leader_has_failed or role.leader_has_resigned
            return has_enough and asked.pre_vote and needs_leader
        case Candidate():
            return has_enough and asked.pre_vote
        case _:
            return False
