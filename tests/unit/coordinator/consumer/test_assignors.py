"""The server-side assignors: who gets which partitions, and how few move."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from strandline.coordinator.consumer.assignors.specification import GroupAssignment, GroupSpec, MemberSpec
from strandline.coordinator.consumer.member import NO_ASSIGNMENT
from strandline.coordinator.consumer.target import ASSIGNORS
from strandline.model.ids import Uuid

T, U = Uuid.of(1, 100), Uuid.of(1, 101)


def assign(name: str, spec: GroupSpec) -> GroupAssignment:
    steps = ASSIGNORS[name](spec)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            assert isinstance(end.value, dict)
            return end.value


def group(
    counts: Mapping[Uuid, int], members: Mapping[str, frozenset[Uuid]], current: GroupAssignment | None = None
) -> GroupSpec:
    specs = {
        member_id: MemberSpec(None, topics, (current or {}).get(member_id, NO_ASSIGNMENT))
        for member_id, topics in sorted(members.items())
    }
    return GroupSpec(specs, counts)


def test_range_gives_equal_ranges_of_equally_large_topics_and_the_first_members_one_more() -> None:
    both = frozenset({T, U})
    assert assign("range", group({T: 5, U: 5}, {"a": both, "b": both})) == {
        "a": {T: {0, 1, 2}, U: {0, 1, 2}},
        "b": {T: {3, 4}, U: {3, 4}},
    }


def test_range_puts_static_members_first() -> None:
    only = frozenset({T})
    spec = GroupSpec({"a": MemberSpec(None, only, {}), "z": MemberSpec("i", only, {})}, {T: 3})
    assert assign("range", spec) == {"z": {T: {0, 1}}, "a": {T: {2}}}


def test_uniform_keeps_what_members_have_when_one_joins() -> None:
    only = frozenset({T})
    first = assign("uniform", group({T: 6}, {"a": only, "b": only}))
    second = assign("uniform", group({T: 6}, {"a": only, "b": only, "c": only}, first))
    assert all(second[name][T] < first[name][T] for name in "ab")
    assert sorted(len(each[T]) for each in second.values()) == [2, 2, 2]


@pytest.mark.parametrize("seed", range(200))
def test_every_partition_has_one_subscriber_and_uniform_moves_no_more_than_it_must(seed: int) -> None:
    random = Random(seed)
    topics = [Uuid.of(1, 100 + number) for number in range(random.randint(1, 5))]
    counts = {topic: random.randint(1, 12) for topic in topics}
    is_homogeneous = random.random() < 0.5
    members = {
        f"m{number}": frozenset(topics if is_homogeneous else random.sample(topics, random.randint(1, len(topics))))
        for number in range(random.randint(1, 6))
    }
    for name in ("range", "uniform"):
        first = assign(name, group(counts, members))
        _check(counts, members, first)
        gone = random.choice(sorted(members))
        rest = {member_id: subscribed for member_id, subscribed in members.items() if member_id != gone}
        second = assign(name, group(counts, rest, first)) if rest else {}
        _check(counts, rest, second)
        if name == "uniform" and is_homogeneous:
            assert all(_flat(first[member_id]) <= _flat(second[member_id]) for member_id in rest)
            sizes = [len(_flat(each)) for each in second.values()]
            assert not sizes or max(sizes) - min(sizes) <= 1


def _flat(assignment: Mapping[Uuid, frozenset[int]]) -> set[tuple[Uuid, int]]:
    return {(topic, partition) for topic, partitions in assignment.items() for partition in partitions}


def _check(counts: Mapping[Uuid, int], members: Mapping[str, frozenset[Uuid]], found: GroupAssignment) -> None:
    subscribed = {topic for topics in members.values() for topic in topics}
    flat = [each for member_id in members for each in sorted(_flat(found.get(member_id, {})))]
    assert len(flat) == len(set(flat))
    assert set(flat) == {(topic, partition) for topic in subscribed for partition in range(counts[topic])}
    for member_id, topics in members.items():
        assert set(found.get(member_id, {})) <= topics
