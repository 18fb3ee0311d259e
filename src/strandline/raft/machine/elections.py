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
from strandline.raft.machine.answers import heard_in, the_vote_given, vote_response
from strandline.raft.machine.effects import Send
from strandline.raft.machine.following import ask_around
from strandline.raft.machine.hearing import hear_of, still_concerns
from strandline.raft.machine.leading import take_the_lead
from strandline.raft.machine.patience import backoff, contested_election, soon
from strandline.raft.machine.requests import the_vote, vote_request
from strandline.raft.machine.seat import Seat
from strandline.raft.machine.states import Candidate, Follower, Prospective, Unattached
from strandline.raft.machine.values import LAST_EPOCH, NOBODY, KnownLeader
from strandline.raft.machine.voters import ReplicaKey


def begin(seat: Seat, now_ms: int) -> None:
    """The first state of this life, by what was remembered of the last."""
    state, log_epoch = seat.quorum, seat.log.last_epoch
    if seat.is_voter and len(seat.voters) == 1:
        take_the_lead(seat, max(state.epoch, log_epoch) + 1, [seat.me.id], now_ms)
        return
    voted_for_me = seat.vote is not None and seat.me.key.is_known_as(seat.vote)
    leader = seat.voters.voter(state.leader_id)
    endpoint = None if leader is None else leader.endpoint_for(seat.listener_name)
    soon_ms = soon(seat, now_ms)
    if state.epoch < log_epoch:
        seat.become_unattached(log_epoch, now_ms, deadline_ms=soon_ms)
    elif state.leader_id == seat.me.id:
        # Never again in this epoch: what it had not synced may be lost here only, and an offset would mean two things.
        seat.become_resigned(now_ms, successors=(), untold=(), deadline_ms=soon_ms)
    elif state.leader_id != NOBODY and endpoint is not None:
        seat.become_follower(state.epoch, state.leader_id, endpoint, now_ms)
    elif state.leader_id != NOBODY or not voted_for_me or not seat.is_voter:
        seat.become_unattached(state.epoch, now_ms, deadline_ms=soon_ms)
    elif log_epoch == state.epoch:
        # It had won, and its first record survived, though not its leadership in quorum-state: the same.
        seat.become_resigned(now_ms, successors=(), untold=(), deadline_ms=soon_ms)
    else:
        seat.become_candidate(now_ms, state.epoch)


def pursue_unattached(seat: Seat, role: Unattached, now_ms: int) -> None:
    if role.deadline_ms is not None and now_ms >= role.deadline_ms:
        seat.become_prospective(now_ms)
    elif not seat.may_stand or seat.failed_elections > 0:
        # A voter that nobody elected may know of none of today's voters any more.
        ask_around(seat, now_ms)


def pursue_prospective(seat: Seat, role: Prospective, now_ms: int) -> None:
    if role.tally.is_won:
        seat.become_candidate(now_ms, seat.epoch + 1)
    elif role.tally.is_lost or now_ms >= role.deadline_ms:
        _withdraw(seat, role, now_ms)
    else:
        _ask_for_votes(seat, role, now_ms)


def pursue_candidate(seat: Seat, role: Candidate, now_ms: int) -> None:
    if role.tally.is_won:
        take_the_lead(seat, seat.epoch, role.tally.granting, now_ms)
    elif role.is_beaten and now_ms >= role.deadline_ms:
        seat.become_prospective(now_ms)
    elif role.is_beaten:
        pass
    elif role.tally.is_lost or now_ms >= role.deadline_ms:
        role.is_beaten = True
        role.deadline_ms = backoff(seat, now_ms)
    else:
        _ask_for_votes(seat, role, now_ms)


def on_vote(seat: Seat, token: object, request: VoteRequest, now_ms: int) -> None:
    if request.cluster_id not in (None, seat.cluster_id):
        seat.reply(token, VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        return
    asked = the_vote(request)
    if asked is None:
        seat.reply(token, VoteResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    error = _refusal(seat, request, asked, now_ms)
    granted = error is ErrorCode.NONE and _grants(seat, asked)
    if asked.pre_vote and not granted and isinstance(seat.role, Prospective):
        # Its log falls short of ours, and it protects no leader any more: it would not refuse us again.
        seat.role.tally.ask_again(asked.replica_id)
    if granted and not asked.pre_vote and seat.vote is None:
        vote = ReplicaKey(asked.replica_id, asked.replica_directory_id)
        seat.become_unattached(seat.epoch, now_ms, vote=vote)
    seat.reply(token, vote_response(seat.known_leader, error, granted=granted))


def on_vote_response(seat: Seat, send: Send, response: VoteResponse, now_ms: int) -> bool:
    role = seat.role
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION and isinstance(role, Prospective):
        # A voter from before KIP-996 cannot be asked beforehand: do as was done then.
        seat.become_candidate(now_ms, seat.epoch + 1)
        return True
    heard, given = heard_in(response), the_vote_given(response)
    if heard is None or given is None:
        return False
    if not still_concerns(seat, heard.leader, now_ms) or not isinstance(role, Prospective | Candidate):
        return True
    if heard.error is not ErrorCode.NONE and heard.error is not ErrorCode.INVALID_VOTER_KEY:
        return False
    role.tally.count(send.to, granted=given.vote_granted)
    if isinstance(role, Candidate) and not given.vote_granted:
        # Somebody else stands, too. Those who still say nothing are not waited for much longer: both must begin again.
        role.deadline_ms = min(role.deadline_ms, contested_election(seat, now_ms))
    return True


def on_vote_failed(seat: Seat, send: Send, refused: bool) -> None:
    if refused and isinstance(seat.role, Prospective | Candidate):
        seat.role.tally.count(send.to, granted=False)


def _withdraw(seat: Seat, role: Prospective, now_ms: int) -> None:
    """Not wanted: the others follow a leader, or have longer logs, or are not there. Back to where it was."""
    retry_ms = backoff(seat, now_ms)
    known = seat.known_leader
    if known.id not in (NOBODY, seat.me.id) and known.endpoint is not None:
        seat.become_follower(known.epoch, known.id, known.endpoint, now_ms)
    else:
        deadline_ms = retry_ms if role.tally.is_lost else seat.election_timeout(now_ms)
        seat.become_unattached(seat.epoch, now_ms, deadline_ms=deadline_ms)


def _ask_for_votes(seat: Seat, role: Prospective | Candidate, now_ms: int) -> None:
    for voter_id in role.tally.unanswered:
        voter = seat.voters.voter(voter_id)
        endpoint = None if voter is None else voter.endpoint_for(seat.listener_name)
        if voter is None or endpoint is None or not seat.mail.is_free(endpoint, now_ms):
            continue
        request = vote_request(
            seat.cluster_id,
            seat.me.key,
            voter.key,
            seat.epoch,
            seat.log.last_epoch,
            seat.log.end_offset,
            pre_vote=isinstance(role, Prospective),
        )
        seat.send(voter_id, endpoint, request, now_ms)


def _refusal(seat: Seat, request: VoteRequest, asked: VoteRequestPartitionData, now_ms: int) -> ErrorCode:
    """Why the request cannot be considered, or NONE. Its epoch is learnt on the way."""
    newest_possible = asked.replica_epoch if asked.pre_vote else asked.replica_epoch - 1
    is_possible = asked.last_offset >= 0 and 0 <= asked.last_offset_epoch <= newest_possible
    if not is_possible or asked.replica_epoch > LAST_EPOCH:
        return ErrorCode.INVALID_REQUEST
    if asked.replica_epoch < seat.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    hear_of(seat, KnownLeader(asked.replica_epoch, NOBODY, None), now_ms)
    asked_for = ReplicaKey(request.voter_id, asked.voter_directory_id)
    if request.voter_id != NOBODY and not seat.me.key.is_known_as(asked_for):
        return ErrorCode.INVALID_VOTER_KEY
    return ErrorCode.NONE


def _grants(seat: Seat, asked: VoteRequestPartitionData) -> bool:
    has_enough = (asked.last_offset_epoch, asked.last_offset) >= (seat.log.last_epoch, seat.log.end_offset)
    match seat.role:
        case Unattached() | Prospective() if asked.pre_vote:
            return has_enough
        case Unattached() | Prospective() if seat.vote is not None:
            return ReplicaKey(asked.replica_id, asked.replica_directory_id).is_known_as(seat.vote)
        case Unattached() | Prospective():
            return has_enough and seat.quorum.leader_id == NOBODY
        case Follower() as role:
            # Whoever hears from its leader protects it from elections that nobody needs.
            needs_leader = not role.has_fetched or role.leader_is_gone or role.leader_has_resigned
            return has_enough and asked.pre_vote and needs_leader
        case Candidate():
            return has_enough and asked.pre_vote
        case _:
            return False
