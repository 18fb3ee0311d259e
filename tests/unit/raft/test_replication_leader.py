"""The leader's side of Fetch and of FetchSnapshot, the high watermark, check-quorum."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from strandline.model.errors import ErrorCode
from strandline.model.ids import ZERO_UUID
from strandline.protocol.messages.fetch import (
    EpochEndOffset,
    FetchRequest,
    ReplicaState,
    SnapshotId,
)
from strandline.protocol.messages.quorum import FetchSnapshotRequest
from strandline.raft.disk import snapshots
from strandline.raft.machine.effects import (
    Commit,
    Effect,
    Flush,
    Lead,
    LeaderChanged,
    Persist,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
    Send,
    StepDown,
)
from strandline.raft.machine.messages import begin_epoch_request, fetch_request, fetch_snapshot_request
from strandline.raft.machine.states import Resigned, Unattached
from unit.raft.memory_cluster import CLUSTER_ID, voter
from unit.raft.single_replica import SingleReplica, only, only_reply, partition_of


def fetch(
    replica: SingleReplica,
    *,
    epoch: int = 1,
    offset: int = 0,
    last_epoch: int = 0,
    max_wait_ms: int = 500,
    cluster_id: str = CLUSTER_ID,
) -> Sequence[Effect]:
    request = fetch_request(
        cluster_id,
        voter(2).key,
        epoch=epoch,
        end_offset=offset,
        last_epoch=last_epoch,
        high_watermark=None,
        max_wait_ms=max_wait_ms,
        max_bytes=1 << 20,
    )
    return replica.on_request("token", request, replica.now_ms)


def test_a_fetch_is_validated() -> None:
    replica = SingleReplica()
    replica.lead()
    assert only_reply(fetch(replica, cluster_id="elsewhere")).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    empty = replica.on_request("t", FetchRequest(cluster_id=CLUSTER_ID), 0)
    assert only_reply(empty).error_code == ErrorCode.INVALID_REQUEST
    for wrong in ({"offset": -1}, {"last_epoch": -1}, {"last_epoch": 2}, {"max_wait_ms": -1}):
        assert partition_of(fetch(replica, **wrong)).error_code == ErrorCode.INVALID_REQUEST, wrong  # type: ignore[arg-type]
    assert partition_of(fetch(replica, epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert partition_of(fetch(replica, epoch=2)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert replica.machine.epoch == 1, "the epoch of a fetch is not observed"


def test_every_response_names_the_leader_and_its_endpoint() -> None:
    replica = SingleReplica()
    replica.follow(leader_id=3, epoch=4)
    response = only_reply(fetch(replica, epoch=4))
    partition = response.responses[0].partitions[0]
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (3, 4)
    assert [(at.node_id, at.host, at.port) for at in response.node_endpoints] == [(3, "n3", 9093)]


def test_a_fetch_without_new_records_is_parked_until_its_max_wait_has_passed() -> None:
    replica = SingleReplica()
    replica.lead()
    end = replica.log.end_offset
    assert replica.fetched_by(2, end) == []
    assert replica.wait(499) == []
    answered = replica.wait(1)
    assert len(answered) == 1 and partition_of(answered).records == b""
    assert isinstance(replica.fetched_by(2, end, max_wait_ms=0)[0], Reply)


def test_a_parked_fetch_completes_when_records_are_appended() -> None:
    replica = SingleReplica()
    replica.lead()
    end = replica.log.end_offset
    replica.fetched_by(2, end)
    replica.fetched_by(3, end)
    replica.log.append_data(["x"], 1)
    effects = replica.machine.on_appended(replica.now_ms)
    assert [type(effect) for effect in effects] == [Flush, ReplyWithRecords, ReplyWithRecords]
    assert [effect.offset for effect in only(ReplyWithRecords, effects)] == [end, end]


def test_a_fetcher_with_an_old_high_watermark_gets_a_response_at_once() -> None:
    replica = SingleReplica()
    replica.lead()
    end = replica.log.end_offset
    for behind in (None, end - 1):
        assert partition_of(replica.fetched_by(3, end, high_watermark=behind)).high_watermark == end
    assert replica.fetched_by(3, end, high_watermark=end) == []
    replica.log.append_data(["x"], 1)
    replica.machine.on_appended(replica.now_ms)
    replica.sync()
    assert replica.fetched_by(2, end + 1, high_watermark=end)[0] == Commit(end + 1)


def test_a_diverging_fetch_gets_the_diverging_epoch() -> None:
    replica = SingleReplica(batches=[(1, "a"), (1, "b"), (3, "c")])
    replica.win()
    assert replica.machine.epoch == 4
    for offset, epoch, agreed in [
        (9, 3, EpochEndOffset(epoch=3, end_offset=3)),
        (2, 2, EpochEndOffset(epoch=1, end_offset=2)),
        (5, 1, EpochEndOffset(epoch=1, end_offset=2)),
        (9, 4, EpochEndOffset(epoch=4, end_offset=6)),
    ]:
        assert partition_of(replica.fetched_by(2, offset, epoch)).diverging_epoch == agreed
    assert replica.leader.progress_of(voter(2).key).end_offset == -1, "a diverging fetch acknowledges nothing"
    assert only(ReplyWithRecords, replica.fetched_by(2, 3, 3))[0].offset == 3
    assert only(ReplyWithRecords, replica.fetched_by(3, 0, 0))[0].offset == 0


def test_a_fetch_below_the_log_start_gets_the_latest_snapshot_id() -> None:
    replica = SingleReplica(batches=[(1, "a"), (2, "b"), (2, "c"), (2, "d")])
    snapshot = snapshots.SnapshotId(2, 2)
    replica.log.write_snapshot(snapshot, b"everything")
    replica.log.begin_at(snapshot)
    replica.win()
    wanted = SnapshotId(end_offset=2, epoch=2)
    for offset, epoch in [(0, 0), (1, 1), (2, 1), (4, 1)]:
        partition = partition_of(replica.fetched_by(2, offset, epoch))
        assert (partition.snapshot_id, partition.records) == (wanted, b""), (offset, epoch)
    assert only(ReplyWithRecords, replica.fetched_by(2, 2, 2))[0].offset == 2


def test_nothing_is_committed_before_a_record_of_the_leaders_own_epoch() -> None:
    replica = SingleReplica(batches=[(1, "a"), (1, "b")])
    replica.win()
    replica.sync()
    replica.fetched_by(2, 2, 1)
    replica.fetched_by(3, 2, 1)
    assert replica.leader.high_watermark is None
    effects = replica.fetched_by(2, 5, 2)
    assert [type(effect) for effect in effects][:2] == [Commit, Lead]
    assert effects[:2] == [Commit(5), Lead(2)]


def test_a_leader_counts_only_its_synced_records() -> None:
    replica = SingleReplica()
    replica.win()
    end = replica.log.end_offset
    replica.fetched_by(2, end)
    assert replica.leader.high_watermark is None
    assert Commit(end) in replica.sync()
    assert replica.fetched_by(3, end) == []


def test_the_high_watermark_never_decreases() -> None:
    replica = SingleReplica()
    replica.lead()
    first = replica.log.end_offset
    replica.log.append_data(["x"], 1)
    replica.machine.on_appended(replica.now_ms)
    replica.sync()
    replica.fetched_by(2, first + 1)
    assert replica.leader.high_watermark == first + 1
    replica.fetched_by(2, first)
    replica.fetched_by(3, first)
    assert replica.leader.high_watermark == replica.machine.high_watermark == first + 1


def test_observers_and_a_voter_with_another_directory_id_are_not_counted() -> None:
    replica = SingleReplica()
    replica.win()
    replica.sync()
    end = replica.log.end_offset
    for node_id, disk in [(7, 1), (8, 1), (2, 2), (3, 2)]:
        replica.fetched_by(node_id, end, disk=disk)
    assert replica.leader.high_watermark is None
    replica.fetched_by(3, end)
    assert replica.leader.high_watermark == end


def test_a_consumer_is_not_tracked() -> None:
    replica = SingleReplica()
    replica.lead()
    before = dict(replica.leader.progress)
    request = fetch_request(
        CLUSTER_ID,
        voter(2).key,
        epoch=1,
        end_offset=0,
        last_epoch=0,
        high_watermark=None,
        max_wait_ms=0,
        max_bytes=100,
    )
    request.replica_state = ReplicaState(replica_id=-1)
    request.topics[0].partitions[0].replica_directory_id = ZERO_UUID
    assert len(only(ReplyWithRecords, replica.on_request("t", request, 0))) == 1
    assert replica.leader.progress == before


def test_a_leader_resigns_when_it_loses_its_majority_and_not_before() -> None:
    replica = SingleReplica()
    replica.lead()
    end = replica.log.end_offset
    for _ in range(5):
        replica.wait(2999)
        replica.fetched_by(3, end)
    assert replica.machine.is_leader
    effects = replica.wait(3000)
    assert isinstance(replica.machine.role, Resigned)
    assert StepDown(1) in effects and LeaderChanged() in effects
    assert [send.to for send in only(Send, effects)] == [2, 3]
    assert replica.machine.leader_id == -1
    assert only(Persist, effects) == []


def test_a_leader_that_observes_a_higher_epoch_steps_down() -> None:
    replica = SingleReplica()
    replica.lead()
    assert replica.request_vote(3, epoch=9)[0] == ErrorCode.NONE
    assert isinstance(replica.machine.role, Unattached)


def test_the_new_epoch_is_persisted_before_parked_fetches_fail() -> None:
    replica = SingleReplica()
    replica.lead()
    replica.fetched_by(2, replica.log.end_offset)
    effects = replica.on_request("t", begin_epoch_request(CLUSTER_ID, voter(3), voter(1).key, 5), 0)
    kinds = [type(effect) for effect in effects]
    assert kinds[:3] == [Persist, StepDown, Reply]
    failed = only(Reply, effects)[0].response.responses[0].partitions[0]  # type: ignore[attr-defined]
    assert (failed.error_code, failed.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 3)


def test_voters_that_do_not_fetch_get_begin_quorum_epoch_again() -> None:
    replica = SingleReplica()
    for send in only(Send, replica.win()):
        replica.respond(send, None)
    replica.sync()
    reminders = []
    for _ in range(4):
        replica.fetched_by(2, replica.log.end_offset)
        for send in only(Send, replica.wait(500)):
            reminders.append((replica.now_ms, send.to))
            replica.respond(send, None)
    assert [to for _, to in reminders] == [3, 3]


@pytest.fixture
def with_snapshot() -> SingleReplica:
    replica = SingleReplica(batches=[(1, "a"), (2, "b"), (2, "c")])
    replica.log.write_snapshot(snapshots.SnapshotId(2, 2), b"0123456789")
    replica.log.begin_at(snapshots.SnapshotId(2, 2))
    replica.win()
    return replica


def fetch_snapshot(
    replica: SingleReplica, snapshot_id: snapshots.SnapshotId, position: int, epoch: int = 3
) -> list[Effect]:
    request = fetch_snapshot_request(CLUSTER_ID, voter(2).key, epoch, snapshot_id, position, 4)
    return replica.on_request("t", request, replica.now_ms)


def test_a_snapshot_chunk_is_a_range_of_bytes(with_snapshot: SingleReplica) -> None:
    snapshot_id = snapshots.SnapshotId(2, 2)
    (given,) = fetch_snapshot(with_snapshot, snapshot_id, 8)
    assert isinstance(given, ReplyWithSnapshot)
    assert (given.snapshot_id, given.position, given.max_bytes) == (snapshot_id, 8, 4)
    part = given.response.topics[0].partitions[0]
    assert (part.size, part.position, part.current_leader.leader_id) == (10, 8, 1)


def test_an_unknown_snapshot_and_a_position_outside_it_are_rejected(with_snapshot: SingleReplica) -> None:
    snapshot_id = snapshots.SnapshotId(2, 2)
    for requested, position, epoch, error in [
        (snapshots.SnapshotId(1, 1), 0, 3, ErrorCode.SNAPSHOT_NOT_FOUND),
        (snapshot_id, -1, 3, ErrorCode.POSITION_OUT_OF_RANGE),
        (snapshot_id, 10, 3, ErrorCode.POSITION_OUT_OF_RANGE),
        (snapshot_id, 0, 2, ErrorCode.FENCED_LEADER_EPOCH),
        (snapshot_id, 0, 4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ]:
        response = only_reply(fetch_snapshot(with_snapshot, requested, position, epoch))
        assert response.topics[0].partitions[0].error_code == error
    whole = with_snapshot.on_request("t", FetchSnapshotRequest(cluster_id="elsewhere"), 0)
    assert only_reply(whole).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_fetching_a_snapshot_counts_for_check_quorum(with_snapshot: SingleReplica) -> None:
    for _ in range(4):
        with_snapshot.wait(2000)
        fetch_snapshot(with_snapshot, snapshots.SnapshotId(2, 2), 0)
    assert with_snapshot.machine.is_leader
