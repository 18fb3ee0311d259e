"""Votes and what becomes of them, and with what a replica begins."""

from __future__ import annotations

import pytest

from strandline.model.errors import ErrorCode, NodeFault
from strandline.protocol.codec import encode_bytes
from strandline.protocol.messages.control_records import LeaderChangeMessage
from strandline.protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    VoteRequest,
    VoteResponse,
)
from strandline.raft.machine.effects import Flush, LeaderChanged, Persist, Send
from strandline.raft.machine.messages import (
    begin_epoch_request,
    end_epoch_request,
    fetch_response,
    vote_request,
    vote_response,
)
from strandline.raft.machine.states import Candidate, Follower, Prospective, Resigned, Unattached
from strandline.raft.machine.values import FormerLeader, KnownLeader, QuorumState
from strandline.raft.machine.voters import ReplicaKey
from unit.raft.memory_cluster import CLUSTER_ID, voter
from unit.raft.single_replica import SingleReplica, only, only_reply

NONE = ErrorCode.NONE


def voted(epoch: int, node_id: int, leader_id: int = -1) -> QuorumState:
    return QuorumState(epoch, leader_id, node_id, voter(node_id).directory_id)


@pytest.mark.parametrize(
    ("state", "batches", "role", "epoch"),
    [
        (QuorumState(), [], Unattached, 0),
        (QuorumState(3), [(5, "x")], Unattached, 5),
        (QuorumState(5, leader_id=1), [(5, "x")], Resigned, 5),
        (voted(5, 1), [(4, "x")], Candidate, 5),
        (voted(5, 1), [(5, "x")], Resigned, 5),
        (voted(5, 2), [(4, "x")], Unattached, 5),
        (QuorumState(5, leader_id=2), [(5, "x")], Follower, 5),
        (QuorumState(5, leader_id=9), [(5, "x")], Unattached, 5),
        (voted(5, 1, leader_id=2), [(5, "x")], Follower, 5),
        (voted(5, 1, leader_id=9), [(5, "x")], Unattached, 5),
    ],
)
def test_the_first_role_after_a_start_follows_from_quorum_state_and_log(
    state: QuorumState, batches: list[tuple[int, str]], role: type, epoch: int
) -> None:
    replica = SingleReplica(state=state, batches=batches)
    replica.start()
    assert (type(replica.machine.role), replica.machine.epoch) == (role, epoch)
    if state.epoch == epoch and role is not Resigned:
        assert replica.machine.state == state


def test_a_candidate_that_restarts_with_configured_voters_has_its_vote_without_a_directory_id() -> None:
    replica = SingleReplica(kraft_version=0, state=QuorumState(5, voted_id=1))
    effects = replica.start()
    assert isinstance(replica.machine.role, Candidate)
    assert [send.to for send in only(Send, effects)] == [2, 3]
    assert only(Persist, effects) == []


def test_a_sole_voter_leads_at_once_with_one_write() -> None:
    replica = SingleReplica(voters=[1], state=QuorumState(3), batches=[(5, "x")])
    effects = replica.start()
    assert [type(effect) for effect in effects] == [Persist, Flush, LeaderChanged]
    assert only(Persist, effects)[0].state == QuorumState(6, leader_id=1)
    assert replica.machine.is_leader and replica.machine.leader_id == 1
    assert replica.machine.leader.endpoint == voter(1).endpoint


def test_a_vote_is_persisted_before_the_response_is_sent() -> None:
    replica = SingleReplica()
    replica.start()
    request = vote_request(CLUSTER_ID, voter(2).key, voter(1).key, 4, 0, 0, pre_vote=False)
    effects = replica.on_request("token", request, 0)
    assert isinstance(effects[0], Persist)
    assert effects[0].state == voted(4, 2)
    assert only_reply(effects[1:]).topics[0].partitions[0].vote_granted


def test_a_vote_is_granted_to_one_candidate_per_epoch_and_again_to_the_same() -> None:
    replica = SingleReplica()
    replica.start()
    assert replica.request_vote(2, epoch=4) == (NONE, True)
    assert replica.request_vote(3, epoch=4) == (NONE, False)
    assert replica.request_vote(2, epoch=4) == (NONE, True)
    assert replica.request_vote(3, epoch=5) == (NONE, True)


def test_a_vote_is_granted_only_to_a_log_that_is_up_to_date() -> None:
    for log, granted in [((9, 1), False), ((1, 2), False), ((2, 2), True), ((1, 3), True)]:
        replica = SingleReplica(batches=[(1, "a"), (2, "b")])
        replica.start()
        assert replica.request_vote(2, epoch=7, log=log) == (NONE, granted), log
        assert replica.request_vote(3, epoch=7, log=log, pre_vote=True) == (NONE, granted), log


def test_a_pre_vote_changes_no_state() -> None:
    replica = SingleReplica()
    replica.start()
    request = vote_request(CLUSTER_ID, voter(2).key, voter(1).key, 0, 0, 0, pre_vote=True)
    assert only(Persist, replica.on_request("token", request, 0)) == []
    assert replica.request_vote(3, epoch=0, pre_vote=True) == (NONE, True)
    assert replica.machine.state == QuorumState()


def test_an_observer_may_receive_and_send_vote_requests() -> None:
    """Voter sets differ from node to node while they change."""
    replica = SingleReplica(me=voter(7), voters=[1, 2, 3])
    replica.start()
    assert replica.request_vote(8, epoch=3, of=voter(7).key) == (NONE, True)


def test_a_follower_rejects_pre_votes_while_it_fetches_from_its_leader() -> None:
    replica = SingleReplica()
    fetch = replica.follow(leader_id=2)
    assert replica.request_vote(3, epoch=1, pre_vote=True) == (NONE, True)
    again = only(Send, replica.respond(fetch, replica.records_for(fetch, [], high_watermark=None)))[0]
    assert replica.request_vote(3, epoch=1, pre_vote=True) == (NONE, False)
    assert replica.request_vote(3, epoch=1) == (NONE, False)
    replica.respond(again, None)
    assert replica.request_vote(3, epoch=1, pre_vote=True) == (NONE, False)
    again = only(Send, replica.wait(20))[0]
    replica.respond(again, None, refused=True)
    assert replica.request_vote(3, epoch=1, pre_vote=True) == (NONE, True)
    again = only(Send, replica.wait(40))[0]
    replica.respond(again, replica.records_for(again, [], high_watermark=None))
    assert replica.request_vote(3, epoch=1, pre_vote=True) == (NONE, False)


def test_a_leader_and_a_resigned_leader_grant_no_vote_in_their_epoch() -> None:
    replica = SingleReplica()
    replica.lead()
    far = (99, 1)
    assert replica.request_vote(2, epoch=1, log=far, pre_vote=True) == (NONE, False)
    replica.machine.resign(replica.now_ms)
    assert isinstance(replica.machine.role, Resigned)
    assert replica.request_vote(2, epoch=1, log=far, pre_vote=True) == (NONE, False)
    assert replica.request_vote(2, epoch=1, log=(99, 0)) == (NONE, False)
    assert replica.request_vote(2, epoch=2, log=far) == (NONE, True)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (
            vote_request("elsewhere", voter(2).key, voter(1).key, 3, 0, 0, pre_vote=False),
            ErrorCode.INCONSISTENT_CLUSTER_ID,
        ),
        (VoteRequest(cluster_id=CLUSTER_ID), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_request_of_another_cluster_or_about_something_else_fails_as_a_whole(
    request_: VoteRequest, error: ErrorCode
) -> None:
    replica = SingleReplica()
    replica.start()
    assert only_reply(replica.on_request("token", request_, 0)) == VoteResponse(error_code=error)
    assert replica.machine.epoch == 0


def test_invalid_vote_requests_are_rejected_with_the_right_error() -> None:
    replica = SingleReplica(state=QuorumState(5))
    replica.start()
    assert replica.request_vote(2, epoch=4) == (ErrorCode.FENCED_LEADER_EPOCH, False)
    assert replica.request_vote(2, epoch=6, log=(3, 6)) == (ErrorCode.INVALID_REQUEST, False)
    assert replica.request_vote(2, epoch=6, log=(-1, 0)) == (ErrorCode.INVALID_REQUEST, False)
    assert replica.machine.epoch == 5
    assert replica.request_vote(2, epoch=6, log=(3, 6), pre_vote=True) == (NONE, True)
    other_replica = ReplicaKey(1, voter(1, 2).directory_id)
    assert replica.request_vote(2, epoch=7, of=other_replica) == (ErrorCode.INVALID_VOTER_KEY, False)
    assert replica.machine.epoch == 7, "the epoch is observed all the same"
    assert replica.request_vote(2, epoch=7, of=ReplicaKey(-1)) == (NONE, True), "version 0 names no voter"


def test_a_prospective_learns_the_leader_from_vote_responses() -> None:
    replica = SingleReplica()
    replica.start()
    sends = only(Send, replica.expire_timeout())
    named = KnownLeader(4, 3, voter(3).endpoint)
    effects = replica.respond(sends[0], vote_response(named, ErrorCode.FENCED_LEADER_EPOCH))
    assert isinstance(replica.machine.role, Follower)
    assert (replica.machine.epoch, replica.machine.leader_id) == (4, 3)
    assert only(Send, effects)[0].endpoint == voter(3).endpoint


def test_a_voter_without_pre_vote_support_receives_a_vote_request() -> None:
    replica = SingleReplica()
    replica.start()
    sends = only(Send, replica.expire_timeout())
    effects = replica.respond(sends[0], VoteResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    assert isinstance(replica.machine.role, Candidate)
    assert isinstance(effects[0], Persist)


def test_late_responses_of_an_earlier_election_are_ignored() -> None:
    replica = SingleReplica()
    replica.start()
    early = only(Send, replica.expire_timeout())
    replica.respond(early[0], replica.vote())
    assert isinstance(replica.machine.role, Candidate)
    replica.respond(early[1], replica.vote())
    replica.respond(early[0], replica.vote())
    assert isinstance(replica.machine.role, Candidate)


def test_a_candidate_retries_failed_requests_and_loses_when_no_majority_is_reachable() -> None:
    replica = SingleReplica()
    replica.start()
    replica.respond(only(Send, replica.expire_timeout())[0], replica.vote())
    first = replica.machine.role
    assert isinstance(first, Candidate)
    again = only(Send, replica.wait(replica.settings.request_timeout_ms // 2))
    assert again == []
    replica = SingleReplica()
    replica.start()
    two, three = only(Send, replica.respond(only(Send, replica.expire_timeout())[0], replica.vote()))
    replica.respond(two, None)
    (two_again,) = only(Send, replica.wait(20))
    assert two_again.to == 2
    replica.respond(two_again, None, refused=True)
    replica.respond(three, replica.vote(granted=False))
    role = replica.machine.role
    assert isinstance(role, Candidate) and role.has_lost
    replica.expire_timeout()
    assert isinstance(replica.machine.role, Prospective)
    assert replica.machine.epoch == 1


def test_two_leaders_in_one_epoch_stop_the_node() -> None:
    replica = SingleReplica()
    replica.follow(leader_id=2)
    with pytest.raises(NodeFault, match="two leaders: 2 and 3"):
        replica.on_request("token", begin_epoch_request(CLUSTER_ID, voter(3), voter(1).key, 1), 0)
    leading = SingleReplica()
    leading.lead()
    with pytest.raises(NodeFault, match="two leaders: 1 and 3"):
        leading.on_request("token", begin_epoch_request(CLUSTER_ID, voter(3), voter(1).key, 1), 0)


def test_begin_and_end_quorum_epoch_requests_are_validated() -> None:
    replica = SingleReplica(state=QuorumState(5))
    replica.start()
    begin = end = replica.on_request
    elsewhere = begin_epoch_request("elsewhere", voter(2), voter(1).key, 9)
    assert only_reply(begin("t", elsewhere, 0)).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert only_reply(begin("t", BeginQuorumEpochRequest(), 0)).error_code == ErrorCode.INVALID_REQUEST
    assert only_reply(end("t", EndQuorumEpochRequest(), 0)).error_code == ErrorCode.INVALID_REQUEST
    old = only_reply(begin("t", begin_epoch_request(CLUSTER_ID, voter(2), voter(1).key, 4), 0)).topics[0].partitions[0]
    assert (old.error_code, old.leader_epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 5)
    assert isinstance(replica.machine.role, Unattached)
    wrong = (
        only_reply(begin("t", begin_epoch_request(CLUSTER_ID, voter(2), voter(1, 2).key, 6), 0)).topics[0].partitions[0]
    )
    assert (wrong.error_code, wrong.leader_id) == (ErrorCode.INVALID_VOTER_KEY, 2)
    assert isinstance(replica.machine.role, Follower)


def test_an_impossibly_high_epoch_is_ignored() -> None:
    """A replica that adopted a corrupt or malicious epoch would soon have no epoch left for the next election."""
    replica = SingleReplica()
    fetch = replica.follow(leader_id=2, epoch=5)
    last = 2**31 - 1
    machine, me = replica.machine, voter(1).key
    vote = vote_request(CLUSTER_ID, voter(3).key, me, last, 5, 9, pre_vote=False)
    begin = begin_epoch_request(CLUSTER_ID, voter(3), me, last)
    end = end_epoch_request(CLUSTER_ID, voter(3), last, [me])
    replies = (
        only_reply(replica.on_request("t", vote, 0)),
        only_reply(replica.on_request("t", begin, 0)),
        only_reply(replica.on_request("t", end, 0)),
    )
    assert [reply.topics[0].partitions[0].error_code for reply in replies] == [ErrorCode.INVALID_REQUEST] * 3
    named = KnownLeader(last, 3, None)
    replica.respond(
        fetch, fetch_response(named, ErrorCode.FENCED_LEADER_EPOCH, high_watermark=None, log_start_offset=0)
    )
    assert (machine.epoch, machine.leader_id) == (5, 2)


def test_the_preferred_successors_of_a_leader_wait_in_order() -> None:
    waits = []
    for place in range(4):
        replica = SingleReplica(voters=[1, 2, 3, 4, 5])
        replica.follow(leader_id=5)
        others = [voter(node_id).key for node_id in (2, 3, 4)]
        successors = [*others[:place], voter(1).key, *others[place:]]
        replica.on_request("t", end_epoch_request(CLUSTER_ID, voter(5), 1, successors), 0)
        waits.append(0 if isinstance(replica.machine.role, Prospective) else replica.machine.role.deadline_ms)
    assert waits == [0, 125, 250, 500]
    unnamed = SingleReplica()
    unnamed.follow(leader_id=2)
    unnamed.on_request("t", end_epoch_request(CLUSTER_ID, voter(2), 1, [voter(3).key]), 0)
    assert unnamed.machine.role.deadline_ms == 1000


def elected_after(replica: SingleReplica) -> None:
    """Its leader does not respond, and voter 2 or 3 grants its pre-vote and vote."""
    sends = only(Send, replica.expire_timeout())
    sends = only(Send, replica.respond(sends[0], replica.vote()))
    replica.respond(sends[0], replica.vote())
    assert replica.machine.is_leader


def test_a_leader_knows_the_former_leader_and_the_last_contact_with_it() -> None:
    replica = SingleReplica()
    replica.now_ms = 500
    fetch = replica.follow(leader_id=2, epoch=4)
    replica.now_ms = 700
    replica.respond(fetch, replica.records_for(fetch, [], high_watermark=None))
    assert replica.machine.former_leader is None, "it is still the leader"
    elected_after(replica)
    assert replica.machine.former_leader == FormerLeader(2, 4, 700)


def test_the_leader_of_an_earlier_epoch_is_not_the_former_leader() -> None:
    replica = SingleReplica()
    fetch = replica.follow(leader_id=2, epoch=4)
    replica.respond(fetch, replica.records_for(fetch, [], high_watermark=None))
    begun = begin_epoch_request(CLUSTER_ID, voter(3), voter(1).key, 5)
    replica.on_request("t", begun, replica.now_ms)
    elected_after(replica)
    assert (replica.machine.epoch, replica.machine.former_leader) == (6, None), "3 has never responded"


def test_a_first_leader_and_one_that_led_before_have_no_former_leader() -> None:
    replica = SingleReplica()
    replica.win()
    assert replica.machine.former_leader is None
    replica.machine.resign(replica.now_ms)
    assert replica.machine.former_leader is None, "only leaders have one"
    elected_after(replica)
    assert replica.machine.former_leader is None


def test_a_new_leader_appends_a_leader_change_and_the_voters_if_the_log_has_none() -> None:
    for kraft_version, more in [(0, []), (1, ["KRaftVersionRecord", "VotersRecord"])]:
        replica = SingleReplica(kraft_version=kraft_version)
        replica.win()
        change, *others = [record for _, _, record in replica.log.records(0, 10)]
        assert isinstance(change, LeaderChangeMessage)
        assert [type(record).__name__ for record in others] == more
        assert change.version == 0, "Kafka 4.3 reads no other"
        assert [each.voter_id for each in change.voters] == [1, 2, 3]
        assert [each.voter_id for each in change.granting_voters] == [1, 2]
        assert encode_bytes(change, change.version)
