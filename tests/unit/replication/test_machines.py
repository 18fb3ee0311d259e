"""Cases that the scenarios do not cover: responses at odd moments, and logs without epochs."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from strandline.log.settings import LogSettings
from strandline.metadata.values import PartitionInfo
from strandline.model.errors import ErrorCode
from strandline.model.ids import Uuid
from strandline.protocol.messages.fetch import PartitionData
from strandline.records.batch import Record, encode_batch
from strandline.replication.fetch_sessions import FetchSession, RequestedPartition
from strandline.replication.follower import (
    Append,
    Delayed,
    Failed,
    Fetching,
    FetchLeaderOffsets,
    Follower,
    RaiseHighWatermark,
    RaiseLogStart,
    Truncate,
    TruncateFully,
)
from strandline.replication.leader import Leader, ProposalOutcome
from unit.log.logs import truncate
from unit.replication.transcript_player import WALL_MS, Registry, Replica

TOPIC_ID = Uuid.of(1, 1)


def replica(*values: str, leader_epoch: int = -1) -> Replica:
    made = Replica(1, LogSettings())
    for number, value in enumerate(values):
        record = Record(0, WALL_MS, None, value.encode(), ())
        made.log.append_as_follower(encode_batch([record], base_offset=number, leader_epoch=leader_epoch))
    return made


def follower(made: Replica, leader_epoch: int = 5) -> Follower:
    return Follower(made.log, leader_epoch, max_bytes=1000, backoff_ms=1000)


def test_a_log_without_epochs_is_truncated_to_its_high_watermark_before_the_first_fetch() -> None:
    made = replica("a", "b", "c")
    made.log.advance_high_watermark(2)
    following = follower(made)
    assert following.start() == [Truncate(2)]
    assert following.next_fetch(0, now_ms=0) is None
    truncate(made.log, 2)
    following.on_truncated()
    wanted = following.next_fetch(0, now_ms=0)
    assert wanted is not None and wanted.fetch_offset == 2


def test_a_follower_outside_the_leaders_range_truncates_its_log_or_raises_its_log_start() -> None:
    made = replica("a", "b", "c")
    cases: list[tuple[int, int, list[object]]] = [
        (0, 2, [Truncate(2)]),
        (7, 9, [TruncateFully(7)]),
        (1, 9, [RaiseHighWatermark(1), RaiseLogStart(1)]),
        (0, 3, []),
    ]
    for earliest, latest, effects in cases:
        following = follower(made)
        following.next_fetch(0, now_ms=0)
        assert following.on_response(PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE), 0) == [
            FetchLeaderOffsets()
        ]
        assert following.on_leader_offsets(earliest, latest) == effects


@pytest.mark.parametrize(
    ("code", "becomes"),
    [
        (ErrorCode.CORRUPT_MESSAGE, Delayed),
        (ErrorCode.FENCED_LEADER_EPOCH, Failed),
        (9999, Delayed),
    ],
)
def test_an_error_delays_the_follower_or_fails_it_until_new_metadata(code: int, becomes: type) -> None:
    following = follower(replica("a", leader_epoch=5))
    following.next_fetch(0, now_ms=100)
    assert following.on_response(PartitionData(error_code=code), now_ms=100) == []
    assert isinstance(following.state, becomes)
    assert following.next_fetch(0, now_ms=1099) is None
    assert (following.next_fetch(0, now_ms=1100) is not None) is (becomes is Delayed)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_a_leader_that_does_not_know_of_its_leadership_yet_is_fetched_from_again_soon(code: ErrorCode) -> None:
    following = follower(replica("a", leader_epoch=5))
    now_ms, delays = 100, []
    for _ in range(9):
        assert following.next_fetch(0, now_ms) is not None
        following.on_response(PartitionData(error_code=code), now_ms)
        assert isinstance(following.state, Delayed)
        delays.append(following.state.until_ms - now_ms)
        now_ms = following.state.until_ms
    assert delays == [10, 20, 40, 80, 160, 320, 640, 1000, 1000]


def test_a_response_in_another_state_than_fetching_is_ignored() -> None:
    following = follower(replica("a", leader_epoch=5))
    following.next_fetch(0, now_ms=0)
    following.on_fetch_failed(now_ms=0)
    assert following.on_response(PartitionData(high_watermark=1), now_ms=0) == []
    following.on_log_failed("the disk")
    assert following.on_leader_offsets(0, 0) == []
    assert following.state == Failed("the disk")
    assert follower(replica()).state == Fetching()


def test_a_response_is_ignored_if_the_log_has_changed_since_the_request() -> None:
    made = replica("a", "b", leader_epoch=5)
    following = follower(made)
    records = encode_batch([Record(0, WALL_MS, None, b"c", ())], base_offset=2, leader_epoch=5)
    response = PartitionData(high_watermark=3, records=records)
    assert following.on_response(response, now_ms=0) == []  # nothing was fetched yet
    following.next_fetch(0, now_ms=0)
    truncate(made.log, 1)
    assert following.on_response(response, now_ms=0) == []
    following.next_fetch(0, now_ms=0)
    made.log.epochs.assign(6, 1)
    assert following.on_response(response, now_ms=0) == []
    wanted = following.next_fetch(0, now_ms=0)
    assert wanted is not None and (wanted.fetch_offset, wanted.last_fetched_epoch) == (1, 6)
    assert following.on_response(response, now_ms=0) == [Append(records, 1), RaiseHighWatermark(3)]


def test_with_flush_messages_1_a_follower_fetches_only_after_a_flush() -> None:
    made = replica("a", leader_epoch=5)
    made.log.update_settings(LogSettings(flush_messages=1))
    following = follower(made)  # a new one, of what another has appended
    assert following.must_flush and following.next_fetch(0, now_ms=0) is None
    made.log.flush()
    wanted = following.next_fetch(0, now_ms=0)
    assert wanted is not None and wanted.fetch_offset == 1


def leader(replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...] = (1, 2)) -> Leader:
    registry = Registry()
    registry.epochs = {broker_id: 7 for broker_id in replicas}
    info = PartitionInfo(replicas, isr, leader=1, leader_epoch=5, partition_epoch=3)
    return Leader(replica().log, info, 1, registry, lag_time_max_ms=30_000)


def test_metadata_older_than_the_controllers_response_is_ignored() -> None:
    leading = leader()
    remote = leading.remote(3, 7, 5)
    assert remote is not None
    change = leading.on_fetch(remote, 7, 0, 0, now_ms=0)
    assert change is not None and change.members == ((1, -1), (2, -1), (3, 7))
    assert leading.on_proposal_response(change, ErrorCode.NONE, (1, 2, 3), 4) is ProposalOutcome.DONE
    leading.on_metadata(PartitionInfo((1, 2, 3), (1, 2), leader=1, leader_epoch=5, partition_epoch=3))
    assert leading.isr == (1, 2, 3) and leading.partition_epoch == 4


def test_a_response_to_a_proposal_superseded_by_metadata_is_ignored() -> None:
    leading = leader()
    remote = leading.remote(3, 7, 5)
    assert remote is not None
    change = leading.on_fetch(remote, 7, 0, 0, now_ms=0)
    assert change is not None
    leading.on_metadata(PartitionInfo((1, 2, 3), (1,), leader=1, leader_epoch=5, partition_epoch=4))
    assert leading.on_proposal_response(change, ErrorCode.NONE, (1, 2, 3), 4) is ProposalOutcome.DONE
    assert leading.isr == (1,) and leading.proposed is None


def test_removed_replicas_are_forgotten_and_new_ones_have_an_unknown_log_end() -> None:
    leading = leader()
    leading.on_metadata(PartitionInfo((1, 2, 4), (1, 2), leader=1, leader_epoch=5, partition_epoch=4))
    assert list(leading.remotes) == [2, 4]
    assert leading.remotes[4].log_end_offset == -1


def test_the_low_watermark_waits_for_all_members_of_the_isr_and_no_other_replica() -> None:
    leading = leader()
    log = leading._log
    log.append_as_follower(encode_batch([Record(0, WALL_MS, None, b"a", ())], leader_epoch=5))
    for broker_id in (2, 3):
        remote = leading.remote(broker_id, 7, 5)
        assert remote is not None
        leading.on_fetch(remote, 7, 1, 0, now_ms=0)
    log.delete_records_before(1)
    leading.on_log_start_moved()
    assert leading.low_watermark.value == 0
    remote = leading.remote(2, 7, 5)
    assert remote is not None
    leading.on_fetch(remote, 7, 1, 1, now_ms=0)
    assert leading.low_watermark.value == 0  # 3 is proposed, so it may be in the ISR
    assert leading.proposed is not None
    leading.on_proposal_response(leading.proposed, ErrorCode.INELIGIBLE_REPLICA)
    leading.on_log_start_moved()
    assert leading.low_watermark.value == 1


def test_the_leader_notifies_the_followers_fetch_session_of_news() -> None:
    leading = leader(isr=(1, 2, 3))
    log, remote = leading._log, leading.remote(2, 7, 5)
    assert remote is not None
    leading.on_fetch(remote, 7, 0, 0, now_ms=0)
    assert leading.is_fully_caught_up(remote, 7, 0)
    requested = RequestedPartition(TOPIC_ID, "", 0, 0, 1000)
    remote.attach_session(FetchSession(1, True, OrderedDict({requested.key: requested}), 1, 0, 0), requested.key)
    urgent_before = 0

    def notified() -> bool | None:
        """Whether the last news were urgent; None: there were none."""
        nonlocal urgent_before
        assert remote is not None and remote.session is not None
        news, urgent = bool(remote.session.with_news), remote.session.urgent_news.value > urgent_before
        remote.session.with_news.clear()
        urgent_before = remote.session.urgent_news.value
        return urgent if news else None

    log.append_as_follower(encode_batch([Record(0, WALL_MS, None, b"a", ())], leader_epoch=5))
    leading.on_append(now_ms=1)
    assert notified() is True
    assert not leading.is_fully_caught_up(remote, 7, 0), "it lacks a record"
    leading.on_fetch(remote, 7, 1, 0, now_ms=2)
    assert notified() is None
    assert leading.is_fully_caught_up(remote, 7, 1) and not leading.is_fully_caught_up(remote, 8, 1)
    other = leading.remote(3, 7, 5)
    assert other is not None
    leading.on_fetch(other, 7, 1, 0, now_ms=3)
    assert notified() is False, "the high watermark has risen"
    log.delete_records_before(1)
    leading.on_log_start_moved()
    assert notified() is False
    leading.on_log_start_moved()
    assert notified() is None
    leading.on_metadata(PartitionInfo((1, 2, 3), (1, 3), leader=1, leader_epoch=5, partition_epoch=4))
    assert notified() is False and not leading.is_fully_caught_up(remote, 7, 1), "it has to join the ISR again"
    leading.resign("over")
    assert notified() is True


def test_a_follower_that_was_caught_up_until_an_append_has_the_whole_lag_time_from_then() -> None:
    leading = leader(isr=(1, 2))
    remote = leading.remote(2, 7, 5)
    assert remote is not None
    leading.on_fetch(remote, 7, 0, 0, now_ms=0)
    leading._log.append_as_follower(encode_batch([Record(0, WALL_MS, None, b"a", ())], leader_epoch=5))
    leading.on_append(now_ms=1_000_000)
    assert leading.check_lag(1_030_000) is None
    late = leading.check_lag(1_030_001)
    assert late is not None and late.isr == (1,)
