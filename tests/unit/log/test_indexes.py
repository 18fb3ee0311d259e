"""Offset and time indexes: lookups compared with a list, spilling, padding, and damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.log import offset_index, time_index
from strandline.log.index_file import NotLoaded
from strandline.log.offset_index import OffsetIndex
from strandline.log.time_index import TimeIndex
from strandline.runtime.disk import SystemDisk

DISK = SystemDisk()
BASE = 1_000_000


@given(
    gaps=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 500)), max_size=60),
    spills=st.sets(st.integers(0, 60)),
    end=st.integers(0, 3000),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lookups_in_an_offset_index_do_not_depend_on_what_is_in_memory(
    tmp_path: Path, gaps: list[tuple[int, int]], spills: set[int], end: int
) -> None:
    path = str(tmp_path / "index")
    Path(path).unlink(missing_ok=True)
    index = OffsetIndex(BASE)
    model = [(BASE, 0)]
    for number, (offsets, size) in enumerate(gaps):
        entry = (model[-1][0] + offsets, model[-1][1] + size)
        index.add(*entry)
        model.append(entry)
        if number in spills:
            index.spill(DISK, path)
            index.unload()
    index.load(DISK, path)

    def check() -> None:
        last_offset, last_position = model[-1]
        for offset in range(BASE, last_offset + 3, 7):
            assert index.floor(offset) == max(entry for entry in model if entry[0] <= offset)
        for position in range(0, last_position + 3, 61):
            assert index.floor_position(position) == max(entry for entry in model if entry[1] <= position)
            behind = [entry[0] for entry in model[1:] if entry[1] >= position]
            assert index.after_position(position) == (behind[0] if behind else None)

    check()
    index.keep_before(BASE + end)
    model = [entry for entry in model if entry == (BASE, 0) or entry[0] < BASE + end]
    check()
    index.trim(DISK, path)
    assert Path(path).stat().st_size == 8 * (len(model) - 1)


def test_older_entries_that_are_only_on_disk_must_be_loaded_first(tmp_path: Path) -> None:
    path = str(tmp_path / "index")
    index = OffsetIndex(0)
    for number in range(1, 5000):
        index.add(number * 10, number * 100)
        if number == 4000:
            index.spill(DISK, path)
            index.unload()
    assert index.floor(45_000) == (45_000, 450_000)
    with pytest.raises(NotLoaded):
        index.floor(15)
    index.load(DISK, path)
    assert index.floor(15) == (10, 100)


def test_memory_is_bounded_by_spilling(tmp_path: Path) -> None:
    path = str(tmp_path / "index")
    index = OffsetIndex(0)
    for number in range(1, 20_000):
        index.add(number, number)
        if index.unwritten >= 512:
            index.spill(DISK, path)
    first, entries = index.in_memory()
    assert len(entries) // 8 < 5000
    assert first + len(entries) // 8 == index.count == 19_999


def test_a_time_index_ignores_entries_that_do_not_ascend_in_both(tmp_path: Path) -> None:
    index = TimeIndex(BASE)
    index.add(100, BASE + 5)
    index.add(100, BASE + 6)
    index.add(90, BASE + 7)
    index.add(110, BASE + 5)
    index.add(120, BASE + 9)
    assert index.count == 2
    assert index.floor(99) == (-1, BASE)
    assert index.floor(119) == (100, BASE + 5)
    assert index.floor(120) == (120, BASE + 9)
    index.keep_before(BASE + 9)
    assert (index.count, index.last_timestamp, index.last_offset) == (1, 100, BASE + 5)


def test_padding_of_a_preallocated_index_is_not_taken_for_entries() -> None:
    entries = offset_index.ENTRY.pack(5, 4100) + offset_index.ENTRY.pack(9, 8300)
    assert offset_index.sane_prefix(entries + bytes(10 << 10), 1 << 20) == entries
    assert offset_index.sane_prefix(bytes(10 << 10), 1 << 20) == b""
    times = time_index.ENTRY.pack(1_700_000_000_000, 5)
    assert time_index.sane_prefix(times + bytes(12 << 10), 100) == times
    assert time_index.sane_prefix(bytes(12 << 10), 100) == b""


@pytest.mark.parametrize(
    "second", [(5, 9000), (4, 9000), (6, 4100), (6, 4000), (-1, 9000), (6, -5), (6, 1 << 20)], ids=str
)
def test_an_offset_index_is_used_up_to_the_first_impossible_entry(second: tuple[int, int]) -> None:
    first = offset_index.ENTRY.pack(5, 4100)
    behind = offset_index.ENTRY.pack(7, 9500)
    assert offset_index.sane_prefix(first + offset_index.ENTRY.pack(*second) + behind, 1 << 20) == first


def test_an_incomplete_entry_is_dropped() -> None:
    entry = offset_index.ENTRY.pack(5, 4100)
    assert offset_index.sane_prefix(entry + b"\0\0\0", 1 << 20) == entry
