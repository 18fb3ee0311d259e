"""The follower's side of Fetch and of FetchSnapshot, and looking for a leader."""

from __future__ import annotations

import pytest

from strandline.model.errors import ErrorCode, NodeFault
from strandline.model.ids import Endpoint
from strandline.protocol.messages.fetch import EpochEndOffset, FetchRequest, FetchResponse, SnapshotId
from strandline.protocol.messages.quorum import FetchSnapshotRequest, FetchSnapshotResponse
from strandline.protocol.types import Message
from strandline.raft.disk import snapshots
from strandline.raft.machine.effects import (
    Commit,
    FinishSnapshot,
    Flush,
    LeaderChanged,
    Persist,
    Send,
    SnapshotChunk,
    Truncate,
)
from strandline.raft.machine.messages import end_epoch_request, fetch_response, fetch_snapshot_response
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.states import Follower, Prospective, Unattached
from strandline.raft.machine.values import KnownLeader, QuorumState
from unit.raft.memory_cluster import CLUSTER_ID, voter
from unit.raft.single_replica import SingleReplica, only


def fetch_of(send: Send) -> tuple[int, int, int, int]:
    """(offset, last epoch, current epoch, high watermark) of a fetch."""
    assert isinstance(send.request, FetchRequest)
    requested = send.request.topics[0].partitions[0]
    return (
        requested.fetch_offset,
        requested.last_fetched_epoch,
        requested.current_leader_epoch,
        requested.high_watermark,
    )


def error_response(error: ErrorCode, *, epoch: int, leader_id: int) -> FetchResponse:
    endpoint = voter(leader_id).endpoint if leader_id >= 0 else None
    return fetch_response(KnownLeader(epoch, leader_id, endpoint), error, high_watermark=None, log_start_offset=0)


def test_a_controller_fetches_only_when_its_log_is_synced() -> None:
    replica = SingleReplica()
    fetch = replica.follow()
    assert fetch_of(fetch) == (0, 0, 1, -1)
    effects = replica.respond(fetch, replica.records_for(fetch, [(1, "a"), (1, "b")], high_watermark=1))
    assert effects == [Flush(), Commit(1)]
    (again,) = only(Send, replica.sync())
    assert fetch_of(again) == (2, 1, 1, 1)


def test_a_broker_fetches_without_waiting_for_a_sync() -> None:
    replica = SingleReplica(me=voter(7), is_controller=False)
    fetch = replica.follow()
    effects = replica.respond(fetch, replica.records_for(fetch, [(1, "a")], high_watermark=1))
    assert [type(effect) for effect in effects] == [Flush, Commit, Send]


def test_a_follower_commits_no_more_than_its_log_holds() -> None:
    replica = SingleReplica()
    fetch = replica.follow()
    replica.respond(fetch, replica.records_for(fetch, [(1, "a")], high_watermark=7))
    assert replica.machine.high_watermark == 1
    (fetch,) = only(Send, replica.sync())
    replica.respond(fetch, replica.records_for(fetch, [], high_watermark=0))
    assert replica.machine.high_watermark == 1, "and it never decreases"


def test_invalid_batches_are_fetched_again() -> None:
    replica = SingleReplica(batches=[(1, "a")])
    fetch = replica.follow()
    bad = replica.records_for(fetch, [(0, "of an earlier epoch")], high_watermark=2)
    assert replica.respond(fetch, bad) == []
    assert replica.log.end_offset == 1
    (again,) = only(Send, replica.wait(20))
    assert fetch_of(again) == fetch_of(fetch)


def test_the_valid_batches_of_a_response_are_synced_before_the_rest_is_fetched_again() -> None:
    replica = SingleReplica()
    fetch = replica.follow()
    assert replica.respond(fetch, replica.records_for(fetch, [(1, "a"), (0, "bad")], high_watermark=None)) == [Flush()]
    assert replica.log.end_offset == 1
    assert replica.wait(20) == []
    (again,) = only(Send, replica.sync())
    assert fetch_of(again) == (1, 1, 1, -1)


def test_duplicate_and_late_responses_change_nothing() -> None:
    replica = SingleReplica()
    fetch = replica.follow()
    response = replica.records_for(fetch, [(1, "a")], high_watermark=1)
    replica.respond(fetch, response)
    assert replica.respond(fetch, response) == []
    (slow,) = only(Send, replica.sync())
    (again,) = [send for send in only(Send, replica.wait(2000)) if isinstance(send.request, FetchRequest)] or [None]
    assert again is None and isinstance(replica.machine.role, Prospective)
    assert replica.respond(slow, replica.records_for(slow, [(1, "b")], high_watermark=2)) == []
    assert replica.log.end_offset == 1


def test_a_diverging_log_is_truncated_before_the_next_fetch() -> None:
    replica = SingleReplica(batches=[(1, "a"), (1, "b"), (2, "c")])
    fetch = replica.follow(epoch=4)
    response = replica.records_for(fetch, [], high_watermark=2)
    response.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=1, end_offset=5)
    assert replica.respond(fetch, response) == [Truncate(2)]
    replica.log.truncate(2)
    assert replica.machine.next_deadline_ms() == replica.now_ms
    (again,) = only(Send, replica.wait(0))
    assert fetch_of(again) == (2, 1, 4, -1)


def test_a_log_is_truncated_to_the_smaller_end_of_the_epoch() -> None:
    for epoch, end_offset, truncated_to in [(1, 1, 1), (1, 9, 2), (2, 9, 2), (0, 0, 0)]:
        replica = SingleReplica(batches=[(1, "a"), (1, "b"), (3, "c")])
        fetch = replica.follow(epoch=4)
        response = replica.records_for(fetch, [], high_watermark=None)
        response.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        assert replica.respond(fetch, response) == [Truncate(truncated_to)], (epoch, end_offset)


def test_a_truncation_below_the_high_watermark_stops_the_node() -> None:
    replica = SingleReplica(batches=[(1, "a"), (1, "b")], committed=2)
    fetch = replica.follow(epoch=4)
    response = replica.records_for(fetch, [], high_watermark=None)
    response.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=1, end_offset=1)
    with pytest.raises(NodeFault, match="truncated to offset 1, but it is committed up to 2"):
        replica.respond(fetch, response)
    replica = SingleReplica(batches=[(1, "a"), (1, "b")], committed=2)
    fetch = replica.follow(epoch=4)
    response = replica.records_for(fetch, [], high_watermark=None)
    response.responses[0].partitions[0].snapshot_id = SnapshotId(end_offset=1, epoch=1)
    with pytest.raises(NodeFault, match="ends before offset 2"):
        replica.respond(fetch, response)


def test_a_failed_fetch_is_retried_with_a_growing_backoff() -> None:
    replica = SingleReplica(settings=QuorumSettings(fetch_timeout_ms=10_000))
    fetch, waits = replica.follow(), []
    for _ in range(7):
        assert replica.respond(fetch, None) == []
        deadline_ms = replica.machine.next_deadline_ms()
        assert deadline_ms is not None
        waits.append(deadline_ms - replica.now_ms)
        (fetch,) = only(Send, replica.wait(waits[-1]))
    assert waits == [20, 40, 80, 160, 320, 500, 500]


def test_an_unresponsive_leader_is_left_after_the_fetch_timeout_and_a_failed_one_at_once() -> None:
    silent = SingleReplica()
    silent.follow()
    deadline_ms = silent.machine.role.deadline_ms
    assert deadline_ms is not None and 1600 <= deadline_ms <= 1900
    failed = SingleReplica()
    failed.respond(failed.follow(), None, refused=True)
    deadline_ms = failed.machine.role.deadline_ms
    assert deadline_ms is not None and deadline_ms <= 150
    failed.expire_timeout()
    assert isinstance(failed.machine.role, Prospective)


def test_a_leader_that_responds_that_it_no_longer_leads_is_left_at_once() -> None:
    replica = SingleReplica()
    replica.respond(replica.follow(), error_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch=1, leader_id=2))
    deadline_ms = replica.machine.role.deadline_ms
    assert deadline_ms is not None and deadline_ms <= 150


def test_a_follower_follows_a_newer_leader_named_in_a_response() -> None:
    replica = SingleReplica()
    effects = replica.respond(replica.follow(), error_response(ErrorCode.FENCED_LEADER_EPOCH, epoch=6, leader_id=3))
    assert only(Persist, effects)[0].state == QuorumState(6, leader_id=3)
    assert only(Send, effects)[0].endpoint == voter(3).endpoint
    assert LeaderChanged() in effects
    assert (replica.machine.leader_id, replica.machine.leader.endpoint) == (3, voter(3).endpoint)


def test_a_follower_ahead_of_the_epoch_of_a_node_retries() -> None:
    replica = SingleReplica()
    fetch = replica.follow(epoch=6)
    assert replica.respond(fetch, error_response(ErrorCode.UNKNOWN_LEADER_EPOCH, epoch=5, leader_id=2)) == []
    assert isinstance(replica.machine.role, Follower) and replica.machine.epoch == 6
    assert len(only(Send, replica.wait(20))) == 1


def test_an_observer_fetches_from_a_known_node_and_follows_the_leader_it_names() -> None:
    bootstrap = [Endpoint("n8", 9093), Endpoint("n9", 9093)]
    replica = SingleReplica(me=voter(7), voters=[], kraft_version=0, bootstrap=bootstrap)
    (first,) = only(Send, replica.start())
    assert (first.to, first.endpoint in bootstrap) == (-1, True)
    (second,) = only(Send, replica.respond(first, None))
    assert {first.endpoint, second.endpoint} == set(bootstrap)
    assert replica.respond(second, error_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch=0, leader_id=-1)) == []
    (third,) = only(Send, replica.wait(20))
    (found,) = only(Send, replica.respond(third, error_response(ErrorCode.FENCED_LEADER_EPOCH, epoch=3, leader_id=4)))
    assert (found.to, found.endpoint) == (4, voter(4).endpoint)


def test_an_observer_that_fetches_from_the_leader_by_chance_uses_the_response() -> None:
    replica = SingleReplica(me=voter(7), voters=[], kraft_version=0, bootstrap=[Endpoint("n2", 9093)])
    (fetch,) = only(Send, replica.start())
    effects = replica.respond(fetch, replica.records_for(fetch, [(0, "a")], high_watermark=1))
    assert isinstance(replica.machine.role, Follower)
    assert replica.log.end_offset == 1 and Commit(1) in effects


def test_an_observer_does_not_return_to_a_failed_leader_that_other_nodes_name() -> None:
    replica = SingleReplica(me=voter(7), is_controller=False)
    fetch = replica.follow(leader_id=2)
    (around,) = only(Send, replica.respond(fetch, None, refused=True))
    assert around.to != 2
    replica.respond(around, error_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch=1, leader_id=2))
    replica.wait(200)
    assert isinstance(replica.machine.role, Unattached)
    assert (replica.machine.leader_id, replica.machine.leader.endpoint) == (-1, None)
    for _ in range(10):
        replica.wait(500)
        assert isinstance(replica.machine.role, Unattached)


def chunk(snapshot_id: snapshots.SnapshotId, position: int, data: bytes, size: int) -> FetchSnapshotResponse:
    known = KnownLeader(1, 2, voter(2).endpoint)
    response = fetch_snapshot_response(known, ErrorCode.NONE, snapshot_id, position=position, size=size)
    response.topics[0].partitions[0].unaligned_records = data
    return response


def fetch_snapshot_after_offer(replica: SingleReplica, snapshot_id: snapshots.SnapshotId) -> Send:
    fetch = replica.follow()
    (send,) = only(Send, replica.respond(fetch, snapshot_offer(replica, fetch, snapshot_id)))
    return send


def snapshot_offer(replica: SingleReplica, fetch: Send, snapshot_id: snapshots.SnapshotId) -> FetchResponse:
    response = replica.records_for(fetch, [], high_watermark=None)
    offered = SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch)
    response.responses[0].partitions[0].snapshot_id = offered
    return response


def position_of(request: Message) -> int:
    assert isinstance(request, FetchSnapshotRequest)
    return request.topics[0].partitions[0].position


def test_a_snapshot_is_fetched_in_chunks_and_then_fetching_continues() -> None:
    replica, snapshot_id = SingleReplica(), snapshots.SnapshotId(5, 1)
    send = fetch_snapshot_after_offer(replica, snapshot_id)
    assert position_of(send.request) == 0
    written, send = replica.respond(send, chunk(snapshot_id, 0, b"abc", 5))
    assert written == SnapshotChunk(snapshot_id, 0, b"abc")
    assert isinstance(send, Send) and position_of(send.request) == 3
    assert replica.respond(send, chunk(snapshot_id, 3, b"de", 5)) == [
        SnapshotChunk(snapshot_id, 3, b"de"),
        FinishSnapshot(snapshot_id),
    ]
    assert replica.wait(10) == [], "nothing is fetched until it is loaded"
    replica.log.restart_at(snapshot_id, b"abcde", 1, replica.log.voters)
    commit, fetch = replica.machine.on_snapshot_loaded(snapshot_id, replica.now_ms)
    assert commit == Commit(5)
    assert isinstance(fetch, Send) and fetch_of(fetch) == (5, 1, 1, 5)


@pytest.mark.parametrize(
    "bad",
    [
        chunk(snapshots.SnapshotId(5, 1), 0, b"", 5),
        chunk(snapshots.SnapshotId(5, 1), 2, b"abc", 5),
        chunk(snapshots.SnapshotId(6, 1), 0, b"abc", 5),
        fetch_snapshot_response(
            KnownLeader(1, 2, voter(2).endpoint), ErrorCode.SNAPSHOT_NOT_FOUND, snapshots.SnapshotId(5, 1)
        ),
    ],
    ids=["empty", "of another place", "of another snapshot", "gone"],
)
def test_a_failed_snapshot_is_discarded_and_the_log_is_fetched_again(bad: FetchSnapshotResponse) -> None:
    replica = SingleReplica()
    send = fetch_snapshot_after_offer(replica, snapshots.SnapshotId(5, 1))
    assert replica.respond(send, bad) == []
    (fetch,) = only(Send, replica.wait(20))
    assert fetch_of(fetch) == (0, 0, 1, -1)


def test_a_snapshot_that_cannot_be_loaded_is_fetched_again_after_a_doubling_backoff_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replica, snapshot_id = SingleReplica(), snapshots.SnapshotId(5, 1)
    fetch = replica.follow()
    for rest_ms in (20, 40, 80, 160, 320, 500, 500):
        (send,) = only(Send, replica.respond(fetch, snapshot_offer(replica, fetch, snapshot_id)))
        assert position_of(send.request) == 0
        replica.respond(send, chunk(snapshot_id, 0, b"abcde", 5))
        assert replica.machine.on_snapshot_failed(snapshot_id, "it has no footer", replica.now_ms) == []
        assert replica.machine.next_deadline_ms() == replica.now_ms + rest_ms
        assert only(Send, replica.wait(rest_ms - 1)) == []
        (fetch,) = only(Send, replica.wait(1))
        assert fetch_of(fetch) == (0, 0, 1, -1)
    assert caplog.text.count("it has no footer") == 1


def test_a_loaded_snapshot_resets_the_backoff() -> None:
    replica, damaged, whole = SingleReplica(), snapshots.SnapshotId(5, 1), snapshots.SnapshotId(6, 1)
    send = fetch_snapshot_after_offer(replica, damaged)
    replica.respond(send, chunk(damaged, 0, b"abcde", 5))
    replica.machine.on_snapshot_failed(damaged, "it has no footer", replica.now_ms)
    (fetch,) = only(Send, replica.wait(20))
    (send,) = only(Send, replica.respond(fetch, snapshot_offer(replica, fetch, whole)))
    replica.respond(send, chunk(whole, 0, b"abcde", 5))
    replica.log.restart_at(whole, b"abcde", 1, replica.log.voters)
    (fetch,) = only(Send, replica.machine.on_snapshot_loaded(whole, replica.now_ms))
    assert fetch_of(fetch) == (6, 1, 1, 6)
    assert isinstance(replica.machine.role, Follower)
    assert replica.machine.role.failed_snapshots == 0


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_fetch_timeout_restarts_after_a_snapshot_is_loaded(is_whole: bool) -> None:
    replica, snapshot_id = SingleReplica(), snapshots.SnapshotId(5, 1)
    replica.respond(fetch_snapshot_after_offer(replica, snapshot_id), chunk(snapshot_id, 0, b"abcde", 5))
    replica.now_ms += 10_000
    if is_whole:
        replica.log.restart_at(snapshot_id, b"abcde", 1, replica.log.voters)
        (fetch,) = only(Send, replica.machine.on_snapshot_loaded(snapshot_id, replica.now_ms))
    else:
        replica.machine.on_snapshot_failed(snapshot_id, "it has no footer", replica.now_ms)
        (fetch,) = only(Send, replica.wait(20))
    assert isinstance(replica.machine.role, Follower)
    assert fetch.endpoint == voter(2).endpoint
    replica.expire_timeout()
    assert isinstance(replica.machine.role, Prospective), "but afterwards the fetch timeout counts"


def test_loading_a_snapshot_does_not_extend_the_deadline_after_a_resignation() -> None:
    replica, snapshot_id = SingleReplica(), snapshots.SnapshotId(5, 1)
    replica.respond(fetch_snapshot_after_offer(replica, snapshot_id), chunk(snapshot_id, 0, b"abcde", 5))
    resigning = end_epoch_request(CLUSTER_ID, voter(2), 1, [voter(3).key])
    replica.on_request("end", resigning, replica.now_ms)
    replica.now_ms += 10_000
    replica.log.restart_at(snapshot_id, b"abcde", 1, replica.log.voters)
    replica.machine.on_snapshot_loaded(snapshot_id, replica.now_ms)
    assert isinstance(replica.machine.role, Prospective)


def test_a_lost_connection_keeps_the_chunks_already_received() -> None:
    replica, snapshot_id = SingleReplica(), snapshots.SnapshotId(5, 1)
    send = fetch_snapshot_after_offer(replica, snapshot_id)
    (send,) = only(Send, replica.respond(send, chunk(snapshot_id, 0, b"abc", 5)))
    replica.respond(send, None)
    (again,) = only(Send, replica.wait(20))
    assert position_of(again.request) == 3
