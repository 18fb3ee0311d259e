"""Consumer groups (KIP-848), by the heartbeats of their members."""

from __future__ import annotations

from random import Random

import pytest

from strandline.coordinator.consumer.group import State
from strandline.coordinator.offset_expiry import expire_offsets
from strandline.coordinator.offset_requests import delete_group
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from unit.coordinator.consumer.machine import GROUP, Consumer, FakeTopics, Machine, owners, settle, with_settings


def test_the_first_member_gets_every_partition_with_its_first_heartbeat() -> None:
    machine = Machine(FakeTopics(t=3))
    a = Consumer(machine, "a", subscribed_topic_names=["t"]).join()
    assert (a.epoch, a.owned) == (2, {"t": {0, 1, 2}})
    assert machine.group.state() is State.STABLE
    assert a.response.heartbeat_interval_ms == 5_000


def test_a_partition_moves_only_after_its_owner_no_longer_reports_it() -> None:
    machine = Machine(FakeTopics(t=4))
    a = Consumer(machine, "a", subscribed_topic_names=["t"]).join()
    b = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    assert (b.epoch, b.owned) == (3, {})
    assert machine.group.state() is State.RECONCILING
    a.beat()  # the response takes two partitions away; the member has not confirmed it yet
    assert (a.epoch, a.partitions) == (2, 2)
    assert b.beat().owned == {}
    assert a.beat().epoch == 3
    assert b.beat().partitions == 2
    assert machine.group.state() is State.STABLE
    assert len(owners([a, b])) == 4


def test_an_assignment_is_sent_when_it_changes_and_after_a_full_request() -> None:
    machine = Machine(FakeTopics(t=1))
    a = Consumer(machine, "a", subscribed_topic_names=["t"]).join()
    assert a.beat().response.assignment is None
    a.send(rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[])
    assert a.response.assignment is not None


def test_a_member_that_does_not_revoke_in_its_rebalance_timeout_is_removed() -> None:
    machine = Machine(FakeTopics(t=4), with_settings(session_timeout_ms=3_600_000))
    a = Consumer(machine, "a", subscribed_topic_names=["t"]).join()
    b = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    a.beat()
    machine.wait(59_000)
    a.beat(report=False)
    assert "a" in machine.group.members
    machine.wait(1_000)
    assert "a" not in machine.group.members
    assert b.beat().partitions == 4


def test_a_member_without_heartbeats_is_removed_after_its_session_timeout() -> None:
    machine = Machine(FakeTopics(t=4))
    a = Consumer(machine, "a", subscribed_topic_names=["t"]).join()
    b = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    settle(a, b)
    machine.wait(44_000)
    b.beat()
    machine.wait(2_000)
    assert b.beat().partitions == 4
    with pytest.raises(KafkaError) as error:
        a.beat()
    assert error.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_leave_make_room_at_once() -> None:
    machine = Machine(FakeTopics(t=4))
    a = Consumer(machine, "a", subscribed_topic_names=["t"]).join()
    b = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    settle(a, b)
    assert a.leave().response.member_epoch == -1
    assert b.beat().partitions == 4
    b.leave()
    assert machine.group.state() is State.EMPTY


def test_a_static_member_that_left_for_now_gets_its_partitions_back_under_a_new_member_id() -> None:
    machine = Machine(FakeTopics(t=4))
    a = Consumer(machine, "a", subscribed_topic_names=["t"], instance_id="i").join()
    b = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    settle(a, b)
    epoch = machine.group.epoch()
    a.leave(-2)
    assert b.beat().partitions == 2
    returned = Consumer(machine, "a2", subscribed_topic_names=["t"], instance_id="i").join()
    assert (returned.partitions, machine.group.epoch()) == (2, epoch)
    assert len(owners([returned, b])) == 4
    with pytest.raises(KafkaError) as error:
        a.send(member_epoch=epoch, instance_id="i")
    assert error.value.code is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_is_away_for_its_session_timeout_is_removed() -> None:
    machine = Machine(FakeTopics(t=4))
    a = Consumer(machine, "a", subscribed_topic_names=["t"], instance_id="i").join()
    a.leave(-2)
    machine.wait(45_000)
    assert machine.group.state() is State.EMPTY


def test_an_instance_id_in_use_is_not_given_to_another_member() -> None:
    machine = Machine(FakeTopics(t=4))
    Consumer(machine, "a", subscribed_topic_names=["t"], instance_id="i").join()
    with pytest.raises(KafkaError) as error:
        Consumer(machine, "b", subscribed_topic_names=["t"], instance_id="i").join()
    assert error.value.code is ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_heartbeat_with_the_previous_epoch_is_accepted_when_the_response_was_lost() -> None:
    machine = Machine(FakeTopics(t=4))
    a = Consumer(machine, "a", subscribed_topic_names=["t"]).join()
    b = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    a.beat().beat()
    assert a.epoch == 3
    a.epoch = 2
    assert a.beat().epoch == 3
    b.leave()
    a.beat()
    for epoch in (2, 9):
        a.epoch = epoch
        with pytest.raises(KafkaError) as error:
            a.beat()
        assert error.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert a.join().partitions == 4


def test_partitions_that_are_added_to_a_topic_are_assigned_with_the_next_heartbeat() -> None:
    machine = Machine(FakeTopics(t=1))
    a = Consumer(machine, "a", subscribed_topic_names=["t", "later"]).join()
    machine.topics.set("t", 3)
    machine.machine.on_topics_changed(frozenset({"t"}), None)
    assert a.beat().owned == {"t": {0, 1, 2}}
    machine.topics.set("later", 2)
    machine.machine.on_topics_changed(frozenset({"later"}), 9)
    assert a.beat().partitions == 5
    machine.topics.delete("t")
    machine.machine.on_topics_changed(frozenset({"t"}), 10)
    a.send()
    assert a.owned == {"later": {0, 1}}


def test_a_changed_subscription_takes_topics_away_at_once() -> None:
    machine = Machine(FakeTopics(t=2, u=2), with_settings(assignment_interval_ms=1_000))
    a = Consumer(machine, "a", subscribed_topic_names=["t", "u"]).join()
    assert a.partitions == 4
    a.send(subscribed_topic_names=["u"], topic_partitions=None)
    assert a.owned == {"u": {0, 1}}
    machine.wait(1_000)
    a.beat()
    assert (a.epoch, a.owned) == (3, {"u": {0, 1}})


def test_targets_are_computed_at_most_once_per_assignment_interval() -> None:
    machine = Machine(FakeTopics(t=4), with_settings(assignment_interval_ms=1_000))
    a = Consumer(machine, "a", subscribed_topic_names=["t"]).join()
    b = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    assert (b.epoch, machine.group.epoch(), machine.group.state()) == (2, 3, State.ASSIGNING)
    machine.wait(1_000)
    b.beat()
    assert machine.group.assignment_epoch() == 3
    settle(a, b)
    assert (a.partitions, b.partitions) == (2, 2)


def test_topics_are_matched_with_a_regular_expression_on_the_coordinator() -> None:
    machine = Machine(FakeTopics(**{"web-1": 2, "web-2": 2, "other": 2}))
    a = Consumer(machine, "a", subscribed_topic_regex="web-.*").join()
    assert a.owned == {}
    machine.wait(10)
    assert a.beat().owned == {"web-1": {0, 1}, "web-2": {0, 1}}
    machine.topics.set("web-3", 1)
    machine.machine.on_topics_changed(frozenset({"web-3"}), machine.topics.version)
    machine.wait(10_001)
    a.beat()
    machine.wait(10)
    assert a.beat().partitions == 5
    b = Consumer(machine, "b", subscribed_topic_regex="web-.*").join()
    settle(a, b)
    assert len(owners([a, b])) == 5
    a.leave()
    b.leave()
    assert machine.group.regexes.keys() == []


@pytest.mark.parametrize("regex", ["web-(", "a{1001}", "(?<x>a)\\k<x>", "(?=a)"])
def test_an_invalid_regular_expression_is_rejected(regex: str) -> None:
    machine = Machine(FakeTopics(t=1))
    with pytest.raises(KafkaError) as error:
        Consumer(machine, "a", subscribed_topic_regex=regex).join()
    assert error.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert machine.machine.group(GROUP) is None


def test_a_regular_expression_that_backtracking_engines_cannot_match_costs_nothing() -> None:
    machine = Machine(FakeTopics(**{"a" * 200: 1}))
    a = Consumer(machine, "a", subscribed_topic_regex="(a*)*(a|aa)+b").join()
    machine.wait(10)
    assert a.beat().owned == {}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_requests_that_break_the_protocol_are_rejected(fields: dict[str, object], code: ErrorCode) -> None:
    joining: dict[str, object] = {
        "group_id": GROUP,
        "member_id": "a",
        "rebalance_timeout_ms": 1,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    request = ConsumerGroupHeartbeatRequest(**{**joining, **fields})  # type: ignore[arg-type]
    with pytest.raises(KafkaError) as error:
        Machine(FakeTopics(t=1)).heartbeat(request)
    assert error.value.code is code


def test_a_full_group_takes_no_more_members() -> None:
    machine = Machine(FakeTopics(t=4), with_settings(max_size=1))
    a = Consumer(machine, "a", subscribed_topic_names=["t"]).join()
    with pytest.raises(KafkaError) as error:
        Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    assert error.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.beat().partitions == 4


def test_a_group_is_the_same_after_a_failover() -> None:
    machine = Machine(FakeTopics(t=6))
    a = Consumer(machine, "a", subscribed_topic_names=["t"], instance_id="i").join()
    b = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    a.beat()  # asked to revoke
    machine.fail_over()
    assert machine.group.state() is State.RECONCILING
    settle(a, b)
    assert (a.partitions, b.partitions) == (3, 3)
    machine.wait(45_000)
    assert machine.group.state() is State.EMPTY


def test_an_empty_group_is_deleted_with_all_its_records() -> None:
    machine = Machine(FakeTopics(t=6))
    a = Consumer(machine, "a", subscribed_topic_names=["t"]).join()
    with pytest.raises(KafkaError) as error:
        delete_group(machine.machine, GROUP)
    assert error.value.code is ErrorCode.NON_EMPTY_GROUP
    a.leave()
    machine.mark()
    machine.apply(expire_offsets(machine.machine.offsets, machine.machine.groups(), 1_000, machine.now))
    assert machine.machine.group(GROUP) is None
    machine.fail_over()
    assert machine.machine.group(GROUP) is None


def test_a_large_group_gets_its_target_in_slices() -> None:
    machine = Machine(FakeTopics(t=5_000))
    consumers = [Consumer(machine, f"m{n:03}", subscribed_topic_names=["t"]).join() for n in range(50)]
    settle(*consumers)
    machine.wait(1_000)
    assert machine.group.assignment_epoch() == machine.group.epoch()
    settle(*consumers)
    assert {consumer.partitions for consumer in consumers} == {100}
    assert len(owners(consumers)) == 5_000


def test_a_failed_append_of_a_slice_starts_the_target_again() -> None:
    machine = Machine(FakeTopics(t=5_000))
    consumers = [Consumer(machine, f"m{n:03}", subscribed_topic_names=["t"]).join() for n in range(2)]
    settle(*consumers)
    machine.wait(1_000)
    settle(*consumers)
    consumers.append(Consumer(machine, "new", subscribed_topic_names=["t"]).join())
    while True:
        key = machine.machine.timers.pop_expired(machine.now_ms)
        machine.now_ms += 1
        if key is None:
            continue
        machine.mark()
        decision = machine.machine.on_timer(key, machine.now)
        if decision.records:
            break
    assert decision.on_append_failed is not None
    decision.on_append_failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, machine.now)
    machine.wait(1_000)
    assert machine.group.assignment_epoch() < machine.group.epoch()
    consumers[0].beat()
    machine.wait(1_000)
    settle(*consumers)
    assert len(owners(consumers)) == 5_000


def test_a_static_member_may_return_with_another_subscription() -> None:
    machine = Machine(FakeTopics(t=2, u=2))
    a = Consumer(machine, "a", subscribed_topic_names=["t"], instance_id="i").join()
    a.leave(-2)
    returned = Consumer(machine, "a2", subscribed_topic_names=["u"], instance_id="i").join()
    settle(returned)
    assert returned.owned == {"u": {0, 1}}
    epoch = machine.group.epoch()
    machine.group.request_metadata_refresh()
    returned.beat()
    assert machine.group.epoch() == epoch, "the subscribed topics were known already"


def test_random_stories_never_give_a_partition_to_two_members_and_settle() -> None:
    for seed in range(60):
        random = Random(seed)
        machine = Machine(FakeTopics(t=6, u=3, v=1), with_settings(assignment_interval_ms=random.choice([0, 1_000])))
        consumers: dict[str, Consumer] = {}
        for step in range(60):
            _random_step(random, machine, consumers, step)
            owners(consumers)
        machine.wait(1_000)
        for _ in range(8):
            for consumer in consumers.values():
                consumer.beat()
            machine.wait(1_100)
        if consumers:
            assert machine.group.state() is State.STABLE, f"seed {seed}"
            wanted = {topic for consumer in consumers.values() for topic in consumer.fields["subscribed_topic_names"]}
            assert {topic for topic, _ in owners(consumers)} == wanted


def _random_step(random: Random, machine: Machine, consumers: dict[str, Consumer], step: int) -> None:
    choice = random.random()
    if choice < 0.15 and len(consumers) < 5:
        topics = random.sample(["t", "u", "v"], random.randint(1, 3))
        assignor = random.choice([None, "range", "uniform"])
        name = f"m{step}"
        consumers[name] = Consumer(machine, name, subscribed_topic_names=topics, server_assignor=assignor).join()
    elif choice < 0.2 and consumers:
        consumers.pop(random.choice(sorted(consumers))).leave()
    elif choice < 0.25:
        machine.fail_over()
    elif choice < 0.3 and consumers:
        consumer = consumers[random.choice(sorted(consumers))]
        consumer.fields["subscribed_topic_names"] = random.sample(["t", "u", "v"], random.randint(1, 3))
        consumer.send(subscribed_topic_names=consumer.fields["subscribed_topic_names"], topic_partitions=None)
    elif choice < 0.4:
        machine.wait(random.randint(1, 2_000))
    elif consumers:
        consumers[random.choice(sorted(consumers))].beat(report=random.random() < 0.8)
