from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from strandline.client.core.descriptions import BrokerDescription
from strandline.client.core.replica_placement import plan_drain, plan_everywhere, plan_spread
from strandline.model.ids import Endpoint, TopicPartition


def broker(number: int, rack: str | None = None) -> BrokerDescription:
    return BrokerDescription(number, Endpoint("host", 9092), rack, False)


def partition(index: int) -> TopicPartition:
    return TopicPartition("t", index)


def test_a_drained_broker_is_replaced_in_its_place_and_other_replicas_stay() -> None:
    placement = {partition(0): [1, 2], partition(1): [2, 3], partition(2): [3, 2], partition(3): [1, 3]}
    plan = plan_drain(placement, {2}, [broker(1), broker(2), broker(3)])
    assert plan.moves == {partition(0): [1, 3], partition(1): [1, 3], partition(2): [3, 1]}
    assert plan.stuck == []


def test_the_replicas_of_a_drained_broker_are_spread() -> None:
    placement = {partition(index): [4, 1 + index % 3] for index in range(30)}
    moves = plan_drain(placement, {4}, [broker(number) for number in (1, 2, 3, 4)]).moves
    assert set(Counter(replicas[0] for replicas in moves.values()).values()) == {10}


def test_a_partition_with_a_replica_on_every_broker_is_stuck() -> None:
    placement = {partition(0): [1, 2, 3], partition(1): [1, 2]}
    plan = plan_drain(placement, {2}, [broker(1), broker(2), broker(3)])
    assert plan.stuck == [partition(0)]
    assert plan.moves == {partition(1): [1, 3]}


def test_a_rack_without_a_replica_is_preferred_to_a_broker_with_fewer_replicas() -> None:
    brokers = [broker(1, "a"), broker(2, "b"), broker(3, "a"), broker(4, "b")]
    placement = {partition(0): [1, 2], **{partition(index): [4] for index in range(1, 5)}}
    assert plan_drain(placement, {2}, brokers).moves == {partition(0): [1, 4]}


def test_a_failed_broker_is_drained_to_live_brokers() -> None:
    assert plan_drain({partition(0): [7, 1]}, {7}, [broker(1), broker(2)]).moves == {partition(0): [2, 1]}


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_spreading_balances_leaders_and_replicas(factor: int) -> None:
    placement = {partition(index): [1] for index in range(24)}
    brokers = [broker(number) for number in (1, 2, 3, 4)]
    moves = plan_spread(placement, brokers, factor)
    placed = {each: moves.get(each, [1]) for each in placement}
    assert set(Counter(replicas[0] for replicas in placed.values()).values()) == {6}
    assert set(Counter(each for replicas in placed.values() for each in replicas).values()) == {6 * factor}
    assert all(len(set(replicas)) == factor for replicas in placed.values())


def test_spreading_uses_every_rack_once_before_any_rack_twice() -> None:
    random = Random(1)
    for _ in range(50):
        brokers = [broker(number, random.choice("abc")) for number in range(1, 10)]
        racks = {each.id: each.rack for each in brokers}
        factor = random.randint(1, 5)
        moves = plan_spread({partition(index): [] for index in range(20)}, brokers, factor)
        for replicas in moves.values():
            assert len({racks[each] for each in replicas}) == min(factor, len(set(racks.values())))


def test_a_topic_that_is_spread_already_is_not_moved() -> None:
    brokers = [broker(number) for number in (1, 2, 3)]
    once = plan_spread({partition(index): [1, 2] for index in range(6)}, brokers)
    settled = {partition(index): once.get(partition(index), [1, 2]) for index in range(6)}
    assert plan_spread(settled, brokers) == {}


def test_more_replicas_than_brokers_are_rejected() -> None:
    with pytest.raises(ValueError, match="3 replicas, but there are only 2 brokers"):
        plan_spread({partition(0): [1, 2, 3]}, [broker(1), broker(2)])


def test_placing_everywhere_rotates_the_preferred_leader() -> None:
    moves = plan_everywhere([partition(index) for index in range(4)], [5, 6, 7])
    assert list(moves.values()) == [[5, 6, 7], [6, 7, 5], [7, 5, 6], [5, 6, 7]]
    assert all(one[0] != other[0] for one, other in pairwise(moves.values()))
