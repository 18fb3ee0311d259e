"""A member of a consumer group (KIP-848): what its heartbeats contain, and when its partitions change."""

from __future__ import annotations

from strandline.client.core.assignment_change import Change
from strandline.client.core.consumer_member import ConsumerMember
from strandline.client.core.group_member import State
from strandline.client.settings import GroupSettings
from strandline.model.errors import ErrorCode
from strandline.model.ids import TopicPartition, Uuid
from strandline.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
)

T = Uuid(b"id of topic t 16")
SETTINGS = GroupSettings(protocol="consumer")
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def member(names: dict[Uuid, str] | None = None, settings: GroupSettings = SETTINGS) -> ConsumerMember:
    known = {T: "t"} if names is None else names
    return ConsumerMember("g", ["t"], settings, 0, 100, "m", known.get, lambda name: T)


def sent(one: ConsumerMember, now_ms: int) -> ConsumerGroupHeartbeatRequest:
    request = one.next_request(now_ms)
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    return request


def answer(one: ConsumerMember, now_ms: int, epoch: int, *partitions: int, changed: bool = True) -> None:
    topics = [ConsumerGroupHeartbeatRequestTopicPartitions(T, list(partitions))] if partitions else []
    one.on_response(
        ConsumerGroupHeartbeatResponse(
            member_id="m",
            member_epoch=epoch,
            heartbeat_interval_ms=5_000,
            assignment=ConsumerGroupHeartbeatResponseAssignment(topics) if changed else None,
        ),
        now_ms,
    )


def owned(request: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    if request.topic_partitions is None:
        return None
    return [index for topic in request.topic_partitions for index in topic.partitions]


def joined(one: ConsumerMember, *partitions: int) -> None:
    sent(one, 0)
    answer(one, 0, 1, *partitions)
    assert one.change is not None
    one.on_change_applied(one.change)
    sent(one, 0)
    answer(one, 0, 1, changed=False)


def test_the_first_heartbeat_says_everything_and_later_ones_only_what_has_changed() -> None:
    one = member()
    first = sent(one, 0)
    assert (first.member_epoch, first.subscribed_topic_names, owned(first)) == (0, ["t"], [])
    answer(one, 10, 1, 0, 1)
    assert one.change == Change(assigned=(P0, P1))
    assert one.next_request(20) is None, "the application has not taken the partitions over yet"
    one.on_change_applied(one.change)
    acknowledged = sent(one, 30)
    assert (acknowledged.member_epoch, owned(acknowledged)) == (1, [0, 1])
    assert acknowledged.subscribed_topic_names is None
    answer(one, 30, 1, changed=False)
    assert one.next_wakeup_ms() == 5_030, "the interval is the coordinator's"
    assert owned(sent(one, 5_030)) is None


def test_revoked_partitions_are_acknowledged_at_once_and_heartbeats_go_on_meanwhile() -> None:
    one = member()
    joined(one, 0, 1)
    sent(one, 5_000)
    answer(one, 5_000, 1, 0)
    assert one.change == Change(revoked=(P1,))
    while_revoking = sent(one, 10_000)
    assert owned(while_revoking) is None
    answer(one, 10_000, 1, changed=False)
    one.on_change_applied(one.change)
    assert owned(sent(one, 10_001)) == [0]


def test_a_fenced_member_loses_everything_and_joins_again() -> None:
    one = member()
    joined(one, 0)
    sent(one, 5_000)
    one.on_response(ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH), 5_000)
    assert one.change == Change(revoked=(P0,), is_lost=True)
    assert one.next_request(5_000) is None
    one.on_change_applied(one.change)
    again = sent(one, 5_000)
    assert (again.member_epoch, again.subscribed_topic_names, owned(again)) == (0, ["t"], [])


def test_an_assignment_of_an_unknown_topic_waits_for_metadata() -> None:
    names: dict[Uuid, str] = {}
    one = member(names)
    sent(one, 0)
    answer(one, 0, 1, 0)
    assert one.change is None and one.wanted_counts == ("t",)
    names[T] = "t"
    one.on_partition_counts({"t": 1})
    assert one.change == Change(assigned=(P0,)) and one.wanted_counts == ()


def test_after_a_request_without_a_response_the_next_one_says_everything() -> None:
    one = member()
    joined(one, 0)
    sent(one, 5_000)
    one.on_no_response(5_050)
    assert one.coordinator_lost and one.next_request(5_100) is None
    again = sent(one, 5_150)
    assert (again.subscribed_topic_names, owned(again)) == (["t"], [0])


def test_without_polls_the_member_leaves_at_the_limit() -> None:
    one = member()
    joined(one, 0)
    limit_ms = SETTINGS.max_poll_interval_ms
    now_ms = 5_000
    while now_ms < limit_ms:
        if one.next_request(now_ms) is not None:
            answer(one, now_ms, 1, changed=False)
        now_ms = one.next_wakeup_ms() or limit_ms
    assert one.next_request(now_ms) is None and one.stopped_polling
    leave = one.expired_leave_request()
    assert leave is not None and leave.member_epoch == -1 and one.expired_leave_request() is None


def test_static_members_leave_for_the_time_being() -> None:
    one = member(settings=GroupSettings(protocol="consumer", instance_id="i"))
    joined(one, 0)
    leave = one.leave("closed")
    assert leave is not None and (leave.member_epoch, leave.instance_id) == (-2, "i")


def test_an_error_that_retries_cannot_solve_ends_the_membership() -> None:
    one = member()
    sent(one, 0)
    one.on_response(ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_ASSIGNOR, error_message="why"), 0)
    assert one.state is State.FAILED and one.error is not None and one.next_request(10_000) is None


def test_a_commit_with_a_stale_epoch_is_followed_by_a_heartbeat_at_once() -> None:
    one = member()
    joined(one, 0)
    assert one.next_request(10) is None
    one.on_commit_error(ErrorCode.STALE_MEMBER_EPOCH, 20)
    assert one.next_wakeup_ms() == 20
    sent(one, 20)
    answer(one, 20, 2, changed=False)
    assert one.generation == 2
