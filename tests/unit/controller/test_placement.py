"""Replicas striped over racks and brokers."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.controller.placement import Candidate, Striping, takes_new_replicas
from strandline.metadata.values import BrokerInfo
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import ZERO_UUID, Uuid


def brokers(*racks: str | None, fenced: tuple[int, ...] = ()) -> list[Candidate]:
    return [Candidate(index, rack, index in fenced) for index, rack in enumerate(racks)]


def placed(candidates: list[Candidate], partitions: int, factor: int, seed: int = 1) -> list[list[int]]:
    striping = Striping(candidates, Random(seed))
    return [striping.place(factor) for _ in range(partitions)]


def test_leaders_rotate_over_the_brokers() -> None:
    leaders = [replicas[0] for replicas in placed(brokers(None, None, None), 9, 2)]
    assert Counter(leaders) == {0: 3, 1: 3, 2: 3}


def test_replicas_of_a_partition_are_in_different_racks_while_there_are_enough() -> None:
    candidates = brokers("a", "a", "b", "b", "c", "c")
    racks = {candidate.id: candidate.rack for candidate in candidates}
    for replicas in placed(candidates, 50, 3):
        assert len({racks[replica] for replica in replicas}) == 3


def test_followers_are_shuffled_once_every_broker_has_led() -> None:
    pairs = {tuple(replicas) for replicas in placed(brokers(*[None] * 6), 60, 2)}
    assert len(pairs) > 6


def test_a_fenced_broker_becomes_a_follower_when_there_are_too_few_live_ones_and_never_leads() -> None:
    candidates = brokers(None, None, None, fenced=(1,))
    all_three = placed(candidates, 20, 3)
    assert all(replicas[0] != 1 and sorted(replicas) == [0, 1, 2] for replicas in all_three)
    assert all(1 not in replicas for replicas in placed(candidates, 20, 2))


def test_a_rack_without_live_brokers_supplies_no_leader() -> None:
    candidates = brokers("a", "b", "b", fenced=(0,))
    assert all(replicas[0] in (1, 2) for replicas in placed(candidates, 30, 2))


@pytest.mark.parametrize(
    ("candidates", "factor", "why"),
    [
        (brokers(None), 0, "at least 1"),
        (brokers(None, fenced=(0,)), 1, "none has registered"),
        ([], 1, "none has registered"),
        (brokers(None, None), 3, "only 2 brokers"),
    ],
)
def test_an_impossible_placement_is_rejected_with_the_reason(
    candidates: list[Candidate], factor: int, why: str
) -> None:
    with pytest.raises(KafkaError, match=why) as error:
        placed(candidates, 1, factor)
    assert error.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9),
    fenced=st.sets(st.integers(0, 8)),
    partitions=st.integers(1, 40),
    factor=st.integers(1, 9),
    seed=st.integers(0, 1000),
)
def test_every_assignment_has_distinct_brokers_and_a_live_leader(
    racks: list[str | None], fenced: set[int], partitions: int, factor: int, seed: int
) -> None:
    candidates = brokers(*racks, fenced=tuple(fenced))
    live = [candidate.id for candidate in candidates if not candidate.fenced]
    if factor > len(candidates) or not live:
        return
    for replicas in placed(candidates, partitions, factor, seed):
        assert len(set(replicas)) == factor
        assert replicas[0] in live
        # A fenced broker is used only after the live ones of its rack.
        assert len([replica for replica in replicas if replica in live]) >= 1


HERE, THERE = Uuid.of(3, 1001), Uuid.of(3, 1002)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, True),
        ({"fenced": True}, True),
        ({"in_controlled_shutdown": True}, False),
        ({"cordoned_directories": (HERE,)}, True),
        ({"cordoned_directories": (THERE, HERE)}, False),
        ({"cordoned_directories": ()}, True),
        ({"cordoned_directories": (HERE,), "directories": ()}, True),
    ],
)
def test_a_broker_takes_new_replicas_unless_it_shuts_down_or_is_cordoned(
    fields: dict[str, object], found: bool
) -> None:
    given = {"fenced": False, "directories": (HERE, THERE), **fields}
    assert takes_new_replicas(BrokerInfo(1, 5, ZERO_UUID, (), (), **given)) is found  # type: ignore[arg-type]
