from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.log.compaction.offset_map import BYTES_PER_KEY, KeyHash, OffsetMap


def hashes_of(keys: list[bytes], seed: int = 3, before: bytes = b"") -> tuple[np.ndarray, np.ndarray]:
    data = before + b"".join(keys)
    length = np.array([len(key) for key in keys], np.int64)
    start = len(before) + np.cumsum(length) - length
    return KeyHash(random.Random(seed)).of(data, start, length)


def pairs(keys: list[bytes], **how: object) -> list[tuple[int, int]]:
    first, second = hashes_of(keys, **how)  # type: ignore[arg-type]
    return list(zip(first.tolist(), second.tolist(), strict=True))


KEYS = st.lists(st.binary(max_size=20) | st.binary(min_size=50, max_size=80), max_size=40)


@given(KEYS)
def test_only_equal_keys_have_equal_hashes(keys: list[bytes]) -> None:
    hashes = pairs(keys)
    assert len(set(hashes)) == len(set(keys))
    assert dict(zip(keys, hashes, strict=True)) == dict(zip(keys, pairs(keys, before=b"elsewhere"), strict=True))


def test_bytes_after_a_key_do_not_change_its_hash() -> None:
    data = b"abcXXXXXXXXabcYYYYYYYY"
    first, second = KeyHash(random.Random(1)).of(data, np.array([0, 11]), np.array([3, 3]))
    assert first[0] == first[1]
    assert second[0] == second[1]


def test_trailing_zeros_change_the_hash() -> None:
    keys = [b"a" + bytes(n) for n in range(70)]
    assert len(set(pairs(keys))) == 70


def test_the_hash_depends_on_the_seed() -> None:
    assert set(pairs([b"a", b"b" * 100], seed=1)).isdisjoint(pairs([b"a", b"b" * 100], seed=2))


def test_all_bits_of_the_hash_are_used() -> None:
    first, second = hashes_of([b"%d" % n for n in range(4000)])
    for half in (first, second):
        for bit in range(64):
            ones = int(((half >> np.uint64(bit)) & np.uint64(1)).sum())
            assert 1700 < ones < 2300


def test_no_keys_have_no_hashes() -> None:
    assert pairs([]) == []


def filled(entries: list[tuple[bytes, int]], budget_bytes: int = 1 << 20) -> OffsetMap:
    map_ = OffsetMap(budget_bytes)
    for key, offset in entries:
        first, second = hashes_of([key])
        map_.add(first, second, np.array([offset]))
    return map_


def looked_up(map_: OffsetMap, keys: list[bytes]) -> list[int]:
    return map_.offsets_of(*hashes_of(keys)).tolist()


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"", b"long" * 30, b"c"]), st.booleans()), max_size=60))
def test_the_map_holds_the_last_offset_of_each_key(steps: list[tuple[bytes, bool]]) -> None:
    map_ = OffsetMap(1 << 20)
    model: dict[bytes, int] = {}
    for offset, (key, ask) in enumerate(steps):
        first, second = hashes_of([key])
        map_.add(first, second, np.array([offset]))
        model[key] = offset
        if ask:
            assert looked_up(map_, [key, b"absent"]) == [offset, -1]
    assert len(map_) == len(model)
    assert looked_up(map_, list(model)) == list(model.values())


def test_an_empty_map_finds_no_key() -> None:
    assert looked_up(OffsetMap(1 << 20), [b"a", b"b"]) == [-1, -1]


def test_many_keys_are_found() -> None:
    keys = [b"key-%d" % n for n in range(100_000)]
    map_ = OffsetMap(1 << 30)
    for start in range(0, 100_000, 10_000):
        chunk = keys[start : start + 10_000] + keys[:100]
        map_.add(*hashes_of(chunk), np.arange(start, start + len(chunk)))
    assert len(map_) == 100_000
    assert looked_up(map_, keys[:100]) == list(range(100_000, 100_100))
    assert looked_up(map_, keys[5000:5003]) == [5000, 5001, 5002]


def test_keys_with_equal_first_halves_are_distinguished() -> None:
    map_ = OffsetMap(1 << 20)
    first = np.array([7, 7, 7, 9], np.uint64)
    second = np.array([3, 1, 2, 1], np.uint64)
    map_.add(first, second, np.array([10, 11, 12, 13]))
    assert map_.offsets_of(first, second).tolist() == [10, 11, 12, 13]
    assert map_.offsets_of(np.array([7, 8], np.uint64), np.array([4, 1], np.uint64)).tolist() == [-1, -1]


def test_the_budget_limits_the_number_of_distinct_keys() -> None:
    map_ = OffsetMap(2000 * BYTES_PER_KEY)
    assert map_.capacity == 2000
    keys = [b"%d" % n for n in range(1500)]
    for round_ in range(3):
        map_.add(*hashes_of(keys), np.arange(1500) + 1500 * round_)
    assert map_.has_room_for(500)
    assert not map_.has_room_for(501)
    assert len(map_) == 1500


@pytest.mark.parametrize("budget_bytes", [0, 1, 1000])
def test_a_map_holds_at_least_a_thousand_keys(budget_bytes: int) -> None:
    assert OffsetMap(budget_bytes).has_room_for(1000)
