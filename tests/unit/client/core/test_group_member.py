"""A classic group member: the requests it sends, and when its partitions change."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from strandline.client.core.assignment_change import Change
from strandline.client.core.assignors import Subscriber
from strandline.client.core.consumer_payloads import decode_assignment, encode_assignment, encode_subscription
from strandline.client.core.group_member import GroupMember, State
from strandline.client.settings import GroupSettings
from strandline.model.errors import ErrorCode
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
)

EAGER = GroupSettings()
COOPERATIVE = GroupSettings(assignors=("cooperative-sticky",))
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def member(settings: GroupSettings = EAGER) -> GroupMember:
    return GroupMember("g", ["t"], settings, now_ms=0, backoff_ms=100)


def joined(
    one: GroupMember, assigned: Iterable[TopicPartition], *, generation: int = 1, now_ms: int = 0
) -> Change | None:
    """Joins as a follower and applies the change that the assignment causes."""
    assert isinstance(one.next_request(now_ms), JoinGroupRequest)
    one.on_response(
        JoinGroupResponse(generation_id=generation, protocol_name="range", leader="other", member_id="m"), now_ms
    )
    assert isinstance(one.next_request(now_ms), SyncGroupRequest)
    one.on_response(SyncGroupResponse(assignment=encode_assignment(assigned)), now_ms)
    change = one.change
    if change is not None:
        one.on_change_applied(change)
    return change


def test_a_member_joins_again_with_the_id_that_the_coordinator_gave_it() -> None:
    one = member()
    first = one.next_request(0)
    assert isinstance(first, JoinGroupRequest) and first.member_id == ""
    assert one.next_request(0) is None, "one request at a time"
    one.on_response(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m"), 0)
    second = one.next_request(0)
    assert isinstance(second, JoinGroupRequest) and second.member_id == "m"


def test_the_leader_assigns_after_it_has_received_the_partition_counts() -> None:
    one = member()
    one.next_request(0)
    members = [
        JoinGroupResponseMember(name, None, encode_subscription(Subscriber(name, ("t", "u")))) for name in ("m", "n")
    ]
    one.on_response(
        JoinGroupResponse(generation_id=3, protocol_name="range", leader="m", member_id="m", members=members), 0
    )
    assert one.wanted_counts == ("t", "u")
    assert one.next_request(0) is None
    one.on_partition_counts({"t": 3})
    sync = one.next_request(0)
    assert isinstance(sync, SyncGroupRequest) and sync.generation_id == 3
    assert {each.member_id: decode_assignment(each.assignment) for each in sync.assignments} == {
        "m": (P0, P1),
        "n": (P2,),
    }


def test_heartbeats_follow_the_interval() -> None:
    one = member()
    joined(one, [P0])
    assert one.next_request(2_999) is None
    assert one.next_wakeup_ms() == 3_000
    assert isinstance(one.next_request(3_000), HeartbeatRequest)
    one.on_response(HeartbeatResponse(), 3_010)
    assert one.next_wakeup_ms() == 6_000


def test_an_eager_member_gives_up_everything_before_it_rejoins_and_sends_heartbeats_meanwhile() -> None:
    one = member()
    joined(one, [P0, P1])
    one.next_request(3_000)
    one.on_response(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), 3_000)
    assert one.next_request(3_000) is None
    assert one.change == Change(revoked=(P0, P1))
    assert isinstance(one.next_request(6_000), HeartbeatRequest)
    one.on_response(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), 6_000)
    one.on_change_applied(one.change)
    assert joined(one, [P0], generation=2, now_ms=6_000) == Change(assigned=(P0,))


def test_a_cooperative_member_keeps_its_partitions_and_rejoins_after_it_has_given_some_up() -> None:
    one = member(COOPERATIVE)
    joined(one, [P0, P1])
    one.next_request(3_000)
    one.on_response(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), 3_000)
    assert joined(one, [P0, P2], generation=2, now_ms=3_000) == Change(revoked=(P1,), assigned=(P2,))
    assert one.owned == (P0, P2)
    again = one.next_request(3_000)
    assert isinstance(again, JoinGroupRequest) and again.reason == (
        "partitions were revoked, so that another member can receive them"
    )


@pytest.mark.parametrize("settings", [EAGER, COOPERATIVE])
def test_a_member_that_the_coordinator_has_removed_loses_its_partitions_and_joins_as_a_new_one(
    settings: GroupSettings,
) -> None:
    one = member(settings)
    joined(one, [P0])
    one.next_request(3_000)
    one.on_response(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), 3_000)
    assert one.change == Change(revoked=(P0,), is_lost=True)
    assert one.next_request(3_000) is None, "not before the application has noticed"
    one.on_change_applied(one.change)
    again = one.next_request(3_000)
    assert isinstance(again, JoinGroupRequest) and again.member_id == ""


def test_a_change_that_was_replaced_is_not_applied() -> None:
    one = member()
    one.next_request(0)
    one.on_response(JoinGroupResponse(generation_id=1, protocol_name="range", leader="x", member_id="m"), 0)
    one.next_request(0)
    one.on_response(SyncGroupResponse(assignment=encode_assignment([P0])), 0)
    pending = one.change
    assert pending == Change(assigned=(P0,))
    one.on_commit_error(ErrorCode.ILLEGAL_GENERATION, 10)
    one.on_change_applied(pending)
    assert one.owned == () and one.state is State.UNJOINED


def test_after_a_lost_connection_the_coordinator_is_looked_up_and_the_join_is_retried_after_the_backoff() -> None:
    one = member()
    one.next_request(0)
    one.on_no_response(50)
    assert one.coordinator_lost
    assert one.next_request(100) is None
    assert one.next_wakeup_ms() == 150
    assert isinstance(one.next_request(150), JoinGroupRequest)


def test_without_polls_the_member_leaves_and_joins_again_with_the_next_poll() -> None:
    one = member()
    joined(one, [P0])
    late_ms = EAGER.max_poll_interval_ms
    assert one.next_request(late_ms) is None
    leave = one.expired_leave_request()
    assert leave is not None and leave.members[0].member_id == "m"
    assert one.expired_leave_request() is None, "once"
    assert one.change == Change(revoked=(P0,), is_lost=True)
    one.on_poll(late_ms + 10)
    one.on_change_applied(one.change)
    assert isinstance(one.next_request(late_ms + 10), JoinGroupRequest)


def test_the_leader_rejoins_when_the_partition_counts_change() -> None:
    one = member()
    one.next_request(0)
    members = [JoinGroupResponseMember("m", None, encode_subscription(Subscriber("m", ("t",))))]
    one.on_response(
        JoinGroupResponse(generation_id=1, protocol_name="range", leader="m", member_id="m", members=members), 0
    )
    one.on_partition_counts({"t": 1})
    one.next_request(0)
    one.on_response(SyncGroupResponse(assignment=encode_assignment([P0])), 0)
    assert one.change is not None
    one.on_change_applied(one.change)
    one.on_partition_counts({"t": 1})
    assert one.next_request(1) is None
    one.on_partition_counts({"t": 2})
    one.next_request(2)
    assert one.change == Change(revoked=(P0,))


def test_an_error_that_retries_cannot_solve_ends_the_membership() -> None:
    one = member()
    one.next_request(0)
    one.on_response(JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID), 0)
    assert one.state is State.FAILED and one.error is not None and one.error.code is ErrorCode.FENCED_INSTANCE_ID
    assert one.next_request(10_000) is None and one.next_wakeup_ms() is None


def test_a_static_member_does_not_leave() -> None:
    one = member(GroupSettings(instance_id="i"))
    joined(one, [P0])
    assert one.leave("closed") is None
    other = member()
    joined(other, [P0])
    assert other.leave("closed") is not None
