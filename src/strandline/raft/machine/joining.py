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
from strandline.raft.machine.answers import response_status
from strandline.raft.machine.observed_leader import observe_leader
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.requests import add_voter_request, remove_voter_request, update_voter_request
from strandline.raft.machine.states import Follower

logger = logging.getLogger(__name__)


def update_own_voter(raft: RaftState, role: Follower, now_ms: int) -> None:
    """When it has caught up, whenever the voters change, and every few seconds, as long as something is to be said."""
    if not raft.is_controller or not role.has_caught_up or raft.is_truncating:
        return
    if now_ms < role.check_voters_at_ms and role.checked_voters_offset == raft.log.voters_offset:
        return
    endpoint, request = raft.leader_endpoint, _what_is_to_be_said(raft, role)
    if request is not None and (endpoint is None or not raft.in_flight.is_free(endpoint, now_ms, about_voters=True)):
        return
    if role.checked_voters_offset != raft.log.voters_offset and not raft.is_voter:
        _tell_of_no_vote(raft)
    role.checked_voters_offset = raft.log.voters_offset
    role.check_voters_at_ms = now_ms + raft.settings.voter_update_interval_ms
    if request is not None and endpoint is not None:
        raft.send(raft.quorum.leader_id, endpoint, request, now_ms)


def on_update_voter_response(raft: RaftState, response: UpdateRaftVoterResponse, now_ms: int) -> bool:
    if isinstance(raft.role, Follower) and response.error_code == ErrorCode.NONE:
        raft.role.has_sent_voter_update = True
    on_change_response(raft, response, now_ms)
    heard = response_status(response)
    if heard is not None:
        observe_leader(raft, heard.leader, now_ms)
    return True


def on_change_response(
    raft: RaftState, response: UpdateRaftVoterResponse | AddRaftVoterResponse | RemoveRaftVoterResponse, now_ms: int
) -> bool:
    """Whether it was done is told by the log. A leader that has another change under way is asked again soon."""
    if isinstance(raft.role, Follower) and response.error_code == ErrorCode.REQUEST_TIMED_OUT:
        raft.role.check_voters_at_ms = now_ms + raft.settings.begin_epoch_interval_ms
    return True


def _tell_of_no_vote(raft: RaftState) -> None:
    namesake = raft.voters.voter(raft.me.id)
    if namesake is None:
        voters = ", ".join(str(voter.id) for voter in raft.voters.voters)
        logger.info("this controller follows without a vote: the voters are %s", voters)
        return
    logger.warning(
        "this controller follows without a vote: voter %d is another one, with the directory %s, not %s. Give this "
        "node a node.id of its own; or, if it takes the place of one that is gone, remove that vote and add this one",
        raft.me.id,
        namesake.directory_id,
        raft.me.directory_id,
    )


def _what_is_to_be_said(raft: RaftState, role: Follower) -> Message | None:
    is_dynamic = raft.log.kraft_version > 0
    if raft.is_voter:
        is_known = raft.voters.describes(raft.me) if is_dynamic else role.has_sent_voter_update
        return None if is_known else update_voter_request(raft.cluster_id, raft.me, raft.epoch)
    if not is_dynamic or not raft.settings.auto_join:
        return None
    former = raft.voters.voter(raft.me.id)
    if former is not None:
        return remove_voter_request(raft.cluster_id, former.key)
    return add_voter_request(raft.cluster_id, raft.me, raft.settings.request_timeout_ms)
