"""A controller sees to it that the voter set in the log is true of itself (KIP-853, KIP-1186).

A voter whose listeners or versions are no longer what the voter set says tells the leader (UpdateRaftVoter). While
voters are configured nothing is written in the log, but each tells every leader once, so that they can be written when
kraft.version is raised. A controller that is no voter joins of itself if that is wanted (`auto_join`); when its id is
taken by the disk that it had before, that voter is removed first.
"""

from __future__ import annotations

import logging

from strandline.model.errors import ErrorCode
from strandline.protocol.messages.quorum import AddRaftVoterResponse, RemoveRaftVoterResponse, UpdateRaftVoterResponse
from strandline.protocol.types import Message
from strandline.raft.machine.answers import heard_in
from strandline.raft.machine.hearing import hear_of
from strandline.raft.machine.requests import add_voter_request, remove_voter_request, update_voter_request
from strandline.raft.machine.seat import Seat
from strandline.raft.machine.states import Follower

logger = logging.getLogger(__name__)


def keep_voters_true(seat: Seat, role: Follower, now_ms: int) -> None:
    """When it has caught up, whenever the voters change, and every few seconds, as long as something is to be said."""
    if not seat.is_controller or not role.has_caught_up or seat.is_being_cut:
        return
    if now_ms < role.check_voters_at_ms and role.checked_voters_offset == seat.log.voters_offset:
        return
    endpoint, request = seat.leader_endpoint, _what_is_to_be_said(seat, role)
    if request is not None and (endpoint is None or not seat.mail.is_free(endpoint, now_ms, about_voters=True)):
        return
    if role.checked_voters_offset != seat.log.voters_offset and not seat.is_voter:
        _tell_of_no_vote(seat)
    role.checked_voters_offset = seat.log.voters_offset
    role.check_voters_at_ms = now_ms + seat.settings.voter_update_interval_ms
    if request is not None and endpoint is not None:
        seat.send(seat.quorum.leader_id, endpoint, request, now_ms)


def on_update_voter_response(seat: Seat, response: UpdateRaftVoterResponse, now_ms: int) -> bool:
    if isinstance(seat.role, Follower) and response.error_code == ErrorCode.NONE:
        seat.role.has_described_itself = True
    on_change_response(seat, response, now_ms)
    heard = heard_in(response)
    if heard is not None:
        hear_of(seat, heard.leader, now_ms)
    return True


def on_change_response(
    seat: Seat, response: UpdateRaftVoterResponse | AddRaftVoterResponse | RemoveRaftVoterResponse, now_ms: int
) -> bool:
    """Whether it was done is told by the log. A leader that has another change under way is asked again soon."""
    if isinstance(seat.role, Follower) and response.error_code == ErrorCode.REQUEST_TIMED_OUT:
        seat.role.check_voters_at_ms = now_ms + seat.settings.begin_epoch_interval_ms
    return True


def _tell_of_no_vote(seat: Seat) -> None:
    namesake = seat.voters.voter(seat.me.id)
    if namesake is None:
        voters = ", ".join(str(voter.id) for voter in seat.voters.voters)
        logger.info("this controller follows without a vote: the voters are %s", voters)
        return
    logger.warning(
        "this controller follows without a vote: voter %d is another one, with the directory %s, not %s. Give this "
        "node a node.id of its own; or, if it takes the place of one that is gone, remove that vote and add this one",
        seat.me.id,
        namesake.directory_id,
        seat.me.directory_id,
    )


def _what_is_to_be_said(seat: Seat, role: Follower) -> Message | None:
    is_dynamic = seat.log.kraft_version > 0
    if seat.is_voter:
        is_known = seat.voters.is_true_of(seat.me) if is_dynamic else role.has_described_itself
        return None if is_known else update_voter_request(seat.cluster_id, seat.me, seat.epoch)
    if not is_dynamic or not seat.settings.auto_join:
        return None
    former = seat.voters.voter(seat.me.id)
    if former is not None:
        return remove_voter_request(seat.cluster_id, former.key)
    return add_voter_request(seat.cluster_id, seat.me, seat.settings.request_timeout_ms)
