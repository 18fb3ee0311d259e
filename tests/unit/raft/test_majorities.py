"""Majorities, tallies, and the table of states."""

from __future__ import annotations

import itertools

import pytest

from strandline.raft.machine import states
from strandline.raft.machine.majorities import Tally, majority, offset_held_by_majority


@pytest.mark.parametrize("voters", range(1, 8))
def test_any_two_majorities_share_a_voter(voters: int) -> None:
    size = majority(voters)
    for one in itertools.combinations(range(voters), size):
        assert all(set(one) & set(other) for other in itertools.combinations(range(voters), size))
    assert size == 1 or not set(range(size - 1)) & set(range(voters - size + 1, voters))


@pytest.mark.parametrize("voters", range(1, 8))
def test_majorities_of_voter_sets_that_differ_by_one_voter_intersect(voters: int) -> None:
    """One voter at a time is added or removed (KIP-853)."""
    for old in itertools.combinations(range(voters), majority(voters)):
        assert all(set(old) & set(new) for new in itertools.combinations(range(voters + 1), majority(voters + 1)))


@pytest.mark.parametrize(
    ("ends", "held"),
    [
        ([5], 5),
        ([5, 3], 3),
        ([5, 3, 9], 5),
        ([9, 9, 0], 9),
        ([1, 2, 3, 4], 2),
        ([7, -1, -1, 7, 7], 7),
        ([4, -1, -1], -1),
    ],
)
def test_the_offset_that_a_majority_holds(ends: list[int], held: int) -> None:
    assert offset_held_by_majority(ends) == held
    assert sum(end >= held for end in ends) >= majority(len(ends))


def test_an_election_is_won_or_lost_as_soon_as_it_is_certain() -> None:
    tally = Tally((1, 2, 3, 4))
    tally.count(1, granted=True)
    tally.count(2, granted=True)
    assert not tally.is_won and not tally.is_lost
    tally.count(3, granted=False)
    assert not tally.is_lost and tally.unanswered == [4]
    tally.count(4, granted=False)
    assert tally.is_lost and not tally.is_won
    tally.retry(4)
    assert not tally.is_lost and tally.unanswered == [4]
    tally.count(4, granted=True)
    assert tally.is_won and tally.granting == [1, 2, 4]


def test_only_voters_are_counted_and_only_once() -> None:
    tally = Tally((1, 2, 3))
    tally.count(7, granted=True)
    tally.count(2, granted=False)
    tally.count(2, granted=True)
    assert tally.granting == [] and tally.votes == {2: False}
    tally.retry(1)
    tally.count(1, granted=True)
    tally.retry(1)
    assert tally.granting == [1]


def test_the_table_of_states_is_the_one_that_is_checked() -> None:
    assert states.__doc__ is not None
    lines = states.__doc__.splitlines()
    head = next(number for number, line in enumerate(lines) if "from \\ to" in line)
    columns = lines[head].split()[3:]
    table = {}
    for line in lines[head + 1 : head + 8]:
        name, *cells = line.split()
        table[name] = {column for column, cell in zip(columns, cells, strict=True) if cell != "-"}
    first = table.pop("(start)")
    assert first == {state.__name__ for state in states.FIRST}
    assert table == {
        state.__name__: {after.__name__ for after in allowed} for state, allowed in states.TRANSITIONS.items()
    }
