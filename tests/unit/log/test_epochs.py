"""Leader epochs: assignment, end offsets, truncation at both ends."""

from __future__ import annotations

import pytest

from strandline.log.epochs import UNDEFINED, EpochCache, EpochEnd


@pytest.fixture
def cache() -> EpochCache:
    return EpochCache(((2, 10), (3, 20), (7, 50)))


def test_assigning_the_same_epoch_again_changes_nothing(cache: EpochCache) -> None:
    cache.assign(7, 60)
    assert cache.entries == ((2, 10), (3, 20), (7, 50))


def test_a_new_epoch_removes_entries_that_contradict_it(cache: EpochCache) -> None:
    cache.assign(8, 20)
    assert cache.entries == ((2, 10), (8, 20))
    cache.assign(5, 30)
    assert cache.entries == ((2, 10), (5, 30))


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        (7, EpochEnd(7, 99)),
        (8, UNDEFINED),
        (-1, UNDEFINED),
        (5, EpochEnd(3, 50)),
        (3, EpochEnd(3, 50)),
        (2, EpochEnd(2, 20)),
        (1, EpochEnd(1, 10)),
    ],
)
def test_an_epoch_ends_where_the_next_starts(cache: EpochCache, requested: int, expected: EpochEnd) -> None:
    assert cache.end_offset_for(requested, 99) == expected


def test_an_empty_log_has_no_epoch() -> None:
    assert EpochCache().end_offset_for(0, 0) == UNDEFINED
    assert EpochCache().latest == -1
    assert EpochCache().epoch_for(5) == -1


def test_the_epoch_of_an_offset_is_the_last_that_starts_at_or_below_it(cache: EpochCache) -> None:
    assert [cache.epoch_for(offset) for offset in (9, 10, 19, 20, 49, 50, 1000)] == [-1, 2, 2, 3, 3, 7, 7]


def test_truncating_the_end_removes_epochs_that_start_there_or_later(cache: EpochCache) -> None:
    cache.truncate_from_end(50)
    assert cache.entries == ((2, 10), (3, 20))


def test_truncating_the_start_keeps_the_epoch_of_the_new_start(cache: EpochCache) -> None:
    cache.truncate_from_start(35)
    assert cache.entries == ((3, 35), (7, 50))
    cache.truncate_from_start(50)
    assert cache.entries == ((7, 50),)


def test_truncating_before_the_first_epoch_changes_nothing(cache: EpochCache) -> None:
    cache.truncate_from_start(5)
    assert cache.entries == ((2, 10), (3, 20), (7, 50))
