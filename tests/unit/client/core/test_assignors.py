"""Partition assignors: complete, balanced, sticky, and cooperative hand-over in two rebalances."""

from __future__ import annotations

from random import Random

import pytest

from strandline.client.core.assignors import (
    Assignment,
    Subscriber,
    assign_cooperatively,
    assign_range,
    assign_sticky,
)
from strandline.client.core.consumer_payloads import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from strandline.model.ids import TopicPartition
from strandline.protocol.errors import MalformedMessage


def numbers(assignment: Assignment) -> dict[str, list[str]]:
    return {member: [str(each) for each in partitions] for member, partitions in assignment.items()}


def test_range_gives_the_first_members_one_partition_more_of_every_topic() -> None:
    members = [Subscriber("b", ("t", "u")), Subscriber("a", ("t", "u")), Subscriber("c", ("u",))]
    assert numbers(assign_range(members, {"t": 3, "u": 4})) == {
        "a": ["t-0", "t-1", "u-0", "u-1"],
        "b": ["t-2", "u-2"],
        "c": ["u-3"],
    }


def test_range_orders_static_members_by_instance_id_before_the_others() -> None:
    members = [Subscriber("a", ("t",)), Subscriber("c", ("t",), instance_id="2"), Subscriber("b", ("t",), (), 0, "3")]
    assert numbers(assign_range(members, {"t": 3})) == {"c": ["t-0"], "b": ["t-1"], "a": ["t-2"]}


def test_a_topic_that_does_not_exist_is_left_out() -> None:
    assert assign_range([Subscriber("a", ("t",))], {}) == {"a": []}
    assert assign_sticky([Subscriber("a", ("t",))], {}) == {"a": []}


def test_a_member_keeps_its_partitions_when_another_one_joins() -> None:
    owned = tuple(TopicPartition("t", number) for number in range(4))
    members = [Subscriber("a", ("t",), owned, 1), Subscriber("b", ("t",))]
    assert numbers(assign_sticky(members, {"t": 4})) == {"a": ["t-0", "t-1"], "b": ["t-2", "t-3"]}


def test_a_partition_that_moves_is_assigned_in_the_rebalance_after_its_owner_has_given_it_up() -> None:
    owned = tuple(TopicPartition("t", number) for number in range(4))
    first = assign_cooperatively([Subscriber("a", ("t",), owned, 1), Subscriber("b", ("t",))], {"t": 4})
    assert numbers(first) == {"a": ["t-0", "t-1"], "b": []}
    second = assign_cooperatively([Subscriber("a", ("t",), tuple(first["a"]), 2), Subscriber("b", ("t",))], {"t": 4})
    assert numbers(second) == {"a": ["t-0", "t-1"], "b": ["t-2", "t-3"]}


def test_of_two_members_that_claim_a_partition_the_one_of_the_later_generation_owns_it() -> None:
    owned = (TopicPartition("t", 0),)
    members = [Subscriber("a", ("t",), owned, 1), Subscriber("b", ("t",), owned, 2)]
    assert numbers(assign_cooperatively(members, {"t": 1})) == {"a": [], "b": ["t-0"]}


@pytest.mark.parametrize("seed", range(50))
def test_random_subscriptions_are_assigned_completely_and_cannot_be_balanced_further(seed: int) -> None:
    random = Random(seed)
    counts = {f"t{number}": random.randint(1, 9) for number in range(4)}
    members = [
        Subscriber(f"m{number}", tuple(random.sample(list(counts), random.randint(1, 4))))
        for number in range(random.randint(1, 8))
    ]
    assigned = assign_sticky(members, counts)
    topics = {each.member_id: each.topics for each in members}
    subscribed = {topic for each in members for topic in each.topics}
    flat = [partition for partitions in assigned.values() for partition in partitions]
    assert sorted(flat) == sorted(TopicPartition(topic, n) for topic in subscribed for n in range(counts[topic]))
    for member, partitions in assigned.items():
        for partition in partitions:
            assert partition.topic in topics[member]
            fewest = min(len(assigned[each]) for each in topics if partition.topic in topics[each])
            assert len(partitions) - fewest <= 1
    again = [Subscriber(each.member_id, each.topics, tuple(assigned[each.member_id]), 1) for each in members]
    assert assign_cooperatively(again, counts) == assigned, "a balanced group does not move partitions"


def test_payloads_are_read_as_they_were_written_and_newer_versions_as_the_newest_known() -> None:
    subscriber = Subscriber("m", ("a", "b"), (TopicPartition("a", 1), TopicPartition("b", 0)), 7)
    payload = encode_subscription(subscriber)
    assert decode_subscription(payload, "m") == subscriber
    assert decode_subscription(b"\0\x09" + payload[2:] + b"later fields", "m") == subscriber
    partitions = (TopicPartition("a", 1), TopicPartition("b", 0))
    assert decode_assignment(encode_assignment(partitions)) == partitions
    assert decode_assignment(b"") == ()
    with pytest.raises(MalformedMessage):
        decode_subscription(b"\0", "m")
    with pytest.raises(MalformedMessage):
        decode_assignment(b"\0\1\0\0\0\5")
