"""Adding, removing and updating voters, on the leader's side; DescribeQuorum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from strandline.model.errors import ErrorCode
from strandline.model.ids import METADATA_TOPIC, ZERO_UUID
from strandline.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from strandline.protocol.messages.fetch import FetchRequest
from strandline.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    KRaftVersionFeature,
    Listener,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
)
from strandline.raft.machine.effects import Effect, Flush, Reply, Send
from strandline.raft.machine.messages import listeners_to_wire, update_voter_request
from strandline.raft.machine.replication import MAX_OBSERVERS
from strandline.raft.machine.voters import Voter
from unit.raft.memory_cluster import CLUSTER_ID, voter
from unit.raft.single_replica import SingleReplica, only, only_reply

VOTE = 52


def adding(new: Voter, **changes: Any) -> AddRaftVoterRequest:
    request = AddRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=new.id, voter_directory_id=new.directory_id, listeners=listeners_to_wire(new)
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def removing(removed: Voter) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=removed.id, voter_directory_id=removed.directory_id)


def versions_response(low: int, high: int, *, votes: bool = True) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=VOTE)] if votes else [],
        supported_features=[SupportedFeatureKey(name="kraft.version", min_version=low, max_version=high)],
    )


def outcome(effects: Sequence[Effect]) -> tuple[ErrorCode, str | None]:
    response = only_reply(effects)
    return ErrorCode(response.error_code), response.error_message


@pytest.fixture
def leading() -> SingleReplica:
    """With node 4 caught up as an observer."""
    replica = SingleReplica()
    replica.lead()
    replica.fetched_by(4, replica.log.end_offset, max_wait_ms=0)
    return replica


def begin_to_add(replica: SingleReplica, **changes: Any) -> Send:
    effects = replica.on_request("add", adding(voter(4), **changes), replica.now_ms)
    (probe,) = only(Send, effects)
    assert isinstance(probe.request, ApiVersionsRequest)
    return probe


def commit_all(replica: SingleReplica) -> list[Effect]:
    """Everything is synced, and all replicas have fetched it."""
    effects = list(replica.sync())
    for node_id in (2, 3, 4):
        effects += replica.fetched_by(node_id, replica.log.end_offset)
    return effects


def test_a_voter_is_added_when_it_has_responded_caught_up_and_the_record_is_committed(leading: SingleReplica) -> None:
    probe = begin_to_add(leading)
    assert (probe.to, probe.endpoint) == (4, voter(4).endpoint)
    effects = leading.respond(probe, versions_response(0, 1))
    assert Flush() in effects and only(Reply, effects) == []
    assert [each.id for each in leading.log.voters.voters] == [1, 2, 3, 4]
    assert leading.log.voters.voter(4) == voter(4)
    assert outcome([each for each in commit_all(leading) if isinstance(each, Reply)]) == (ErrorCode.NONE, None)


def test_a_majority_of_the_new_voters_is_needed_to_commit_them(leading: SingleReplica) -> None:
    leading.respond(begin_to_add(leading), versions_response(0, 1))
    end = leading.log.end_offset
    leading.sync()
    leading.fetched_by(2, end)
    assert leading.leader.high_watermark == end - 1, "two of four"
    leading.fetched_by(4, end)
    assert leading.leader.high_watermark == end


def test_without_ack_when_committed_the_response_is_sent_when_the_record_is_appended(leading: SingleReplica) -> None:
    effects = leading.respond(begin_to_add(leading, ack_when_committed=False), versions_response(0, 1))
    assert only_reply(only(Reply, effects)) == AddRaftVoterResponse(error_message=None)
    assert outcome(leading.on_request("r", removing(voter(2)), 0))[0] == ErrorCode.REQUEST_TIMED_OUT
    assert [each for each in commit_all(leading) if isinstance(each, Reply) and each.token == "add"] == []
    assert leading.leader.change is None


def test_why_a_voter_is_not_added(leading: SingleReplica) -> None:
    add = leading.on_request
    no_listener = [Listener(name="ELSEWHERE", host="n4", port=1)]
    for request, error in [
        (adding(voter(4), cluster_id="elsewhere"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (adding(voter(4), voter_directory_id=ZERO_UUID), ErrorCode.INVALID_REQUEST),
        (adding(voter(4), listeners=no_listener), ErrorCode.INVALID_REQUEST),
        (adding(voter(2)), ErrorCode.DUPLICATE_VOTER),
        (adding(voter(2, 2)), ErrorCode.DUPLICATE_VOTER),
    ]:
        assert outcome(add("t", request, leading.now_ms))[0] == error
    assert [each.id for each in leading.log.voters.voters] == [1, 2, 3]


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (None, ErrorCode.REQUEST_TIMED_OUT),
        (ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), ErrorCode.REQUEST_TIMED_OUT),
        (ApiVersionsResponse(), ErrorCode.INVALID_REQUEST),
        (versions_response(0, 0), ErrorCode.INVALID_REQUEST),
        (versions_response(2, 3), ErrorCode.INVALID_REQUEST),
        # A broker keeps the log as well, but it does not sync what it acknowledges.
        (versions_response(0, 1, votes=False), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_voter_that_does_not_respond_or_lacks_the_version_is_not_added(
    leading: SingleReplica, response: ApiVersionsResponse | None, error: ErrorCode
) -> None:
    assert outcome(leading.respond(begin_to_add(leading), response))[0] == error
    assert leading.leader.change is None and len(leading.log.voters) == 3


def test_a_voter_that_is_behind_is_not_added() -> None:
    replica = SingleReplica()
    replica.lead()
    replica.fetched_by(4, 0, 0)
    assert outcome(replica.respond(begin_to_add(replica), versions_response(0, 1)))[0] == ErrorCode.REQUEST_TIMED_OUT
    replica.fetched_by(4, replica.log.end_offset)
    assert only(Reply, replica.respond(begin_to_add(replica), versions_response(0, 1))) == []


def test_one_change_at_a_time_and_none_before_the_leader_has_committed_a_record() -> None:
    replica = SingleReplica()
    replica.win()
    assert outcome(replica.on_request("t", removing(voter(2)), 0))[0] == ErrorCode.REQUEST_TIMED_OUT
    replica.sync()
    replica.fetched_by(3, replica.log.end_offset, max_wait_ms=0)
    assert replica.on_request("t", removing(voter(2)), 0) == [Flush()]
    assert outcome(replica.on_request("t", removing(voter(3)), 0))[0] == ErrorCode.REQUEST_TIMED_OUT
    (expired,) = only(Reply, replica.wait(2000))
    assert outcome([expired])[0] == ErrorCode.REQUEST_TIMED_OUT
    assert outcome(replica.on_request("t", removing(voter(3)), 0))[0] == ErrorCode.REQUEST_TIMED_OUT, (
        "its request timed out, but it is not committed"
    )


def test_why_a_voter_is_not_removed(leading: SingleReplica) -> None:
    remove = leading.on_request
    assert outcome(remove("t", removing(voter(9)), 0))[0] == ErrorCode.VOTER_NOT_FOUND
    assert outcome(remove("t", removing(voter(2, 2)), 0))[0] == ErrorCode.VOTER_NOT_FOUND
    assert outcome(remove("t", removing(Voter(2)), 0))[0] == ErrorCode.INVALID_REQUEST
    alone = SingleReplica(voters=[1])
    alone.start()
    alone.sync()
    assert outcome(alone.on_request("t", removing(voter(1)), 0))[0] == ErrorCode.VOTER_NOT_FOUND
    follower = SingleReplica()
    follower.follow()
    assert outcome(follower.on_request("t", removing(voter(2)), 0))[0] == (ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_pending_change_fails_when_the_leader_is_deposed(leading: SingleReplica) -> None:
    begin_to_add(leading)
    effects = leading.machine.resign(leading.now_ms)
    (failed,) = [reply for reply in only(Reply, effects) if reply.token == "add"]
    assert outcome([failed])[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def updated(replica: SingleReplica, me: Voter, **changes: Any) -> ErrorCode:
    request = update_voter_request(CLUSTER_ID, me, replica.machine.epoch)
    for name, value in changes.items():
        setattr(request, name, value)
    effects = [each for each in replica.on_request("u", request, 0) if isinstance(each, Reply)]
    response = only_reply(effects)
    assert (response.current_leader.leader_id, response.current_leader.host) == (1, "n1")
    return ErrorCode(response.error_code)


def test_a_voter_that_moved_is_written_to_the_log_at_once(leading: SingleReplica) -> None:
    moved = voter(3, port=1234)
    assert updated(leading, voter(3)) == ErrorCode.NONE
    assert leading.log.voters_offset == 2, "nothing is appended"
    assert updated(leading, moved) == ErrorCode.NONE
    assert leading.log.voters.voter(3) == moved
    assert updated(leading, voter(3)) == ErrorCode.REQUEST_TIMED_OUT, "the last change is not committed"


def test_why_a_voter_is_not_updated(leading: SingleReplica) -> None:
    too_new = KRaftVersionFeature(min_supported_version=2, max_supported_version=3)
    for me, changes, error in [
        (voter(9), {}, ErrorCode.VOTER_NOT_FOUND),
        (voter(3, 2), {}, ErrorCode.VOTER_NOT_FOUND),
        (voter(3), {"voter_directory_id": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
        (voter(3), {"listeners": []}, ErrorCode.INVALID_REQUEST),
        (voter(3), {"kraft_version_feature": too_new}, ErrorCode.INVALID_REQUEST),
        (voter(3), {"current_leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        (voter(3), {"current_leader_epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (voter(3), {"cluster_id": "elsewhere"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
    ]:
        assert updated(leading, me, **changes) == error


def test_the_kraft_version_increases_by_one_and_never_decreases() -> None:
    replica = SingleReplica(kraft_version=0)
    replica.lead()
    upgrade = replica.machine.upgrade_kraft_version
    assert outcome(upgrade("t", 2, 0))[0] == ErrorCode.INVALID_UPDATE_VERSION
    assert outcome(upgrade("t", -1, 0))[0] == ErrorCode.INVALID_UPDATE_VERSION
    assert outcome(upgrade("t", 0, 0)) == (ErrorCode.NONE, None)
    assert outcome(upgrade("t", 1, 0))[0] == ErrorCode.INVALID_UPDATE_VERSION, "2 and 3 have not sent UpdateRaftVoter"
    assert updated(replica, voter(2)) == updated(replica, voter(3)) == ErrorCode.NONE
    assert replica.log.kraft_version == 0
    assert upgrade("t", 1, 0) == [Flush()]
    assert replica.log.kraft_version == 1
    assert replica.log.voters.voters == (voter(1), voter(2), voter(3))
    assert replica.leader.progress_of(voter(2).key).end_offset == 1, "its progress is kept"
    assert outcome(only(Reply, commit_all(replica))[:1]) == (ErrorCode.NONE, None)
    assert outcome(upgrade("t", 0, 0))[0] == ErrorCode.INVALID_UPDATE_VERSION


def test_a_repeated_upgrade_succeeds_only_when_the_first_is_committed() -> None:
    replica = SingleReplica(kraft_version=0)
    replica.lead()
    updated(replica, voter(2))
    updated(replica, voter(3))
    upgrade = replica.machine.upgrade_kraft_version
    upgrade("first", 1, 0)
    assert outcome(upgrade("meanwhile", 1, 1))[0] == ErrorCode.REQUEST_TIMED_OUT
    assert outcome(only(Reply, replica.machine.on_time(2000)))[0] == ErrorCode.REQUEST_TIMED_OUT
    assert outcome(upgrade("again", 1, 2001))[0] == ErrorCode.REQUEST_TIMED_OUT, "a new leader may truncate it"
    commit_all(replica)
    assert outcome(upgrade("once more", 1, 2002)[:1]) == (ErrorCode.NONE, None)


def test_a_voter_that_does_not_support_the_new_version_prevents_the_upgrade() -> None:
    replica = SingleReplica(kraft_version=0)
    replica.lead()
    updated(replica, voter(2))
    old = KRaftVersionFeature(min_supported_version=0, max_supported_version=0)
    assert updated(replica, voter(3), kraft_version_feature=old) == ErrorCode.NONE
    code, why = outcome(replica.machine.upgrade_kraft_version("t", 1, 0))
    assert code == ErrorCode.INVALID_UPDATE_VERSION and why is not None and "[3]" in why


def describing(topic: str = METADATA_TOPIC, partition: int = 0) -> DescribeQuorumRequest:
    requested = DescribeQuorumRequestPartitionData(partition_index=partition)
    return DescribeQuorumRequest(topics=[DescribeQuorumRequestTopicData(topic_name=topic, partitions=[requested])])


def test_describe_quorum_reports_the_progress_of_each_replica() -> None:
    replica = SingleReplica()
    replica.lead()
    end = replica.log.end_offset
    replica.now_ms += 100
    replica.fetched_by(7, end)
    replica.now_ms += 100
    replica.log.append_data(["x"], 1)
    replica.machine.on_appended(replica.now_ms)
    replica.fetched_by(2, end)
    replica.now_ms += 100
    replica.fetched_by(2, end + 1)
    now = replica.now_ms
    effects = replica.machine.on_request("d", describing(), 2, now, now + 1_000_000)
    response = only_reply(effects)
    partition = response.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 1, end)
    seen = [
        (each.replica_id, each.log_end_offset, each.last_fetch_timestamp, each.last_caught_up_timestamp)
        for each in [*partition.current_voters, *partition.observers]
    ]
    wall = now + 1_000_000
    assert seen == [
        (1, end + 1, wall, wall),
        (2, end + 1, wall, wall),
        (3, -1, -1, -1),
        (7, end, wall - 200, wall - 200),
    ]
    assert [each.replica_directory_id for each in partition.current_voters] == [
        voter(1).directory_id,
        voter(2).directory_id,
        voter(3).directory_id,
    ]
    assert [(node.node_id, node.listeners[0].host) for node in response.nodes] == [(1, "n1"), (2, "n2"), (3, "n3")]
    old = only_reply(replica.machine.on_request("d", describing(), 1, now, wall))
    assert old.nodes == [] and old.topics[0].partitions[0].observers[0].replica_directory_id == ZERO_UUID


def test_only_the_leader_serves_describe_quorum_and_only_for_the_metadata_topic() -> None:
    follower = SingleReplica()
    follower.follow()
    (refused,) = follower.machine.on_request("d", describing(), 2, 0, 0)
    assert isinstance(refused, Reply)
    assert only_reply([refused]).topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    (unknown,) = follower.machine.on_request("d", describing("t", 3), 2, 0, 0)
    partition = only_reply([unknown]).topics[0].partitions[0]
    assert (partition.partition_index, partition.error_code) == (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_an_observer_that_does_not_fetch_is_removed() -> None:
    replica = SingleReplica()
    replica.lead()
    replica.fetched_by(7, replica.log.end_offset)
    for _ in range(101):
        replica.wait(2999)
        replica.fetched_by(2, replica.log.end_offset)
    assert list(replica.leader.progress) == [voter(2).key]


def test_the_number_of_tracked_observers_is_limited_and_voters_are_never_dropped() -> None:
    replica = SingleReplica()
    replica.lead()
    for node_id in range(10, 10 + MAX_OBSERVERS):
        replica.fetched_by(node_id, replica.log.end_offset, max_wait_ms=0)
    replica.wait(1)
    replica.fetched_by(10, replica.log.end_offset, max_wait_ms=0)
    for disk in range(1, 6):
        replica.fetched_by(9, replica.log.end_offset, max_wait_ms=0, disk=disk)
    known = replica.leader.progress
    assert len(known) == MAX_OBSERVERS + 1
    assert voter(2).key in known and voter(10).key in known, "a voter, and an observer that fetched again"
    assert [voter(9, disk).key in known for disk in range(1, 6)] == [True] * 5
    assert [voter(node_id).key in known for node_id in range(11, 17)] == [False] * 5 + [True]


def test_a_follower_fetches_while_the_leader_delays_a_voter_update() -> None:
    replica = SingleReplica(me=voter(1, port=1234))
    fetch = replica.follow()
    update, fetch = only(Send, replica.respond(fetch, replica.records_for(fetch, [], high_watermark=0)))
    assert isinstance(update.request, UpdateRaftVoterRequest)
    for number in range(3):
        (flush,) = replica.respond(fetch, replica.records_for(fetch, [(1, f"record {number}")], high_watermark=0))
        assert flush == Flush()
        (fetch,) = only(Send, replica.sync())
        assert isinstance(fetch.request, FetchRequest)
    assert replica.log.end_offset == 3
    assert replica.respond(update, None) == [], "and a request that fails costs no fetch either"
    (flush,) = replica.respond(fetch, replica.records_for(fetch, [(1, "one more")], high_watermark=0))
    assert len(only(Send, replica.sync())) == 1


def test_a_voter_sends_an_update_of_its_entry_once() -> None:
    replica = SingleReplica(me=voter(1, port=1234))
    fetch = replica.follow()
    update, _ = only(Send, replica.respond(fetch, replica.records_for(fetch, [], high_watermark=0)))
    assert isinstance(update.request, UpdateRaftVoterRequest)
    assert update.request.listeners[0].port == 1234
    true = SingleReplica()
    fetch = true.follow()
    (again,) = only(Send, true.respond(fetch, true.records_for(fetch, [], high_watermark=0)))
    assert type(again.request) is type(fetch.request)
