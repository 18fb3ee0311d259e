"""A restart: the vote that is read back, and which nodes can join the quorum."""

from __future__ import annotations

from random import Random

import pytest

from strandline.model.errors import NodeFault
from strandline.model.ids import METADATA_TOPIC, Endpoint, Uuid
from strandline.protocol.messages.quorum import (
    VoteRequest,
    VoteRequestPartitionData,
    VoteRequestTopicData,
    VoteResponse,
)
from strandline.raft.disk.recovery import check_voters, read_state
from strandline.raft.machine.effects import Reply
from strandline.raft.machine.replica import Replica
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.values import QuorumState
from strandline.raft.machine.voters import Voter, VoterHistory, VoterSet
from strandline.raft.shell.stored_log import StoredLog
from unit.raft.test_stored_log import OpenedLog, StoppedClock

CONFIGURED = VoterSet(tuple(Voter(each, listeners=(("C", Endpoint(f"n{each}", 9)),)) for each in (1, 2, 3)))


def vote_of(candidate: int, directory_id: Uuid) -> VoteRequest:
    requested = VoteRequestPartitionData(
        replica_epoch=4, replica_id=candidate, replica_directory_id=directory_id, last_offset_epoch=0, last_offset=0
    )
    return VoteRequest(
        cluster_id="c", voter_id=1, topics=[VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[requested])]
    )


def is_granted(replica: Replica, request: VoteRequest) -> bool:
    (response,) = [
        effect.response for effect in replica.on_request("token", request, 0, 2, 0) if isinstance(effect, Reply)
    ]
    assert isinstance(response, VoteResponse)
    return response.topics[0].partitions[0].vote_granted


def test_a_vote_persisted_without_a_directory_id_is_the_same_vote_after_a_restart() -> None:
    """With configured voters (kraft.version 0), quorum-state has no directory ids."""
    made = OpenedLog()

    def restarted() -> Replica:
        log = StoredLog(made.storage, VoterHistory(CONFIGURED), StoppedClock(), lambda: 9)
        me = Voter(1, Uuid.of(1, 101), (("C", Endpoint("n1", 9)),))
        state = made.storage.read_state()
        replica = Replica(me, "c", log, state, QuorumSettings(), Random(1), is_controller=True, bootstrap=())
        replica.start(1)
        return replica

    first = restarted()
    assert is_granted(first, vote_of(2, Uuid.of(1, 102)))
    made.storage.write_state(first.state, 0, CONFIGURED)
    assert made.storage.read_state() == QuorumState(epoch=4, voted_id=2)
    assert is_granted(restarted(), vote_of(2, Uuid.of(1, 102)))
    assert not is_granted(restarted(), vote_of(3, Uuid.of(1, 103)))


@pytest.mark.parametrize(
    ("history", "me", "is_controller", "has_bootstrap", "why"),
    [
        (VoterHistory(VoterSet(())), Voter(1), True, False, "the voters are unknown"),
        (VoterHistory(CONFIGURED), Voter(4), True, True, r"node 4 .* not among the voters \[1, 2, 3\]"),
        (VoterHistory(VoterSet((Voter(1, Uuid.of(1, 7)),)), 1), Voter(1, Uuid.of(1, 8)), True, True, "is elsewhere"),
    ],
)
def test_a_node_that_can_never_join_the_quorum_does_not_start(
    history: VoterHistory, me: Voter, is_controller: bool, has_bootstrap: bool, why: str
) -> None:
    with pytest.raises(NodeFault, match=why):
        check_voters(history, me, is_controller=is_controller, has_bootstrap=has_bootstrap)


@pytest.mark.parametrize(
    ("history", "me", "is_controller"),
    [
        (VoterHistory(CONFIGURED), Voter(4), False),
        (VoterHistory(VoterSet(())), Voter(4), True),
        (VoterHistory(VoterSet((Voter(1, Uuid.of(1, 7)), Voter(2))), 1), Voter(1, Uuid.of(1, 8)), True),
    ],
)
def test_an_observer_need_not_be_in_the_voter_set(history: VoterHistory, me: Voter, is_controller: bool) -> None:
    check_voters(history, me, is_controller=is_controller, has_bootstrap=True)


def test_a_controller_that_has_lost_its_metadata_directory_does_not_start_and_a_broker_does() -> None:
    made = OpenedLog()
    me = Voter(1, Uuid.of(1, 101), (("C", Endpoint("n1", 9)),))
    no_voters = VoterHistory(VoterSet(()))
    assert read_state(made.storage, no_voters, me, is_controller=True) == QuorumState(), "it has never run"
    made.storage.write_state(QuorumState(epoch=4, voted_id=2), 1, CONFIGURED)
    assert read_state(made.storage, no_voters, me, is_controller=True).epoch == 4
    made.disk.remove(f"{made.storage.path}/quorum-state")
    with pytest.raises(NodeFault, match="are lost"):
        read_state(made.storage, no_voters, me, is_controller=True)
    assert read_state(made.storage, no_voters, me, is_controller=False) == QuorumState()
