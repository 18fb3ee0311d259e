"""The timeline compared with a copy of the whole dictionary per moment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.model.timeline import ABSENT, LATEST, Timeline, TimelineMap

KEYS = st.integers(0, 5)
STEP = st.one_of(
    st.tuples(st.just("set"), KEYS, st.integers(0, 9)),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("batch")),
    st.tuples(st.just("commit"), st.integers(0, 4)),
    st.tuples(st.just("revert"), st.integers(0, 4)),
    st.tuples(st.just("undo"), st.integers(0, 4)),
    st.tuples(st.just("pin")),
    st.tuples(st.just("unpin")),
)


class Naive:
    """Each moment is a full copy; moment n is the state before batch n."""

    def __init__(self) -> None:
        self.moments: dict[int, dict[int, int]] = {0: {}}
        self.now: dict[int, int] = {}
        self.next = 0


def agree(map_: TimelineMap[int, int], naive: Naive, moment: int, expected: dict[int, int]) -> None:
    assert dict(map_.items(moment)) == expected
    assert sorted(map_.keys(moment)) == sorted(expected)
    assert sorted(map_.values(moment)) == sorted(expected.values())
    for key in range(6):
        assert map_.get(key, moment) == expected.get(key)
        assert map_.at(key, moment) == expected.get(key, ABSENT)


@given(st.lists(STEP, max_size=60))
def test_every_readable_moment_equals_a_copy_taken_then(steps: list[tuple[object, ...]]) -> None:
    timeline, naive = Timeline(), Naive()
    map_: TimelineMap[int, int] = TimelineMap(timeline)
    pins: list[int] = []
    timeline.mark(0)
    for verb, *arguments in steps:
        match verb, arguments:
            case "set", [int(key), int(value)]:
                map_[key] = value
                naive.now[key] = value
            case "delete", [int(key)] if key in naive.now:
                del map_[key]
                del naive.now[key]
            case "batch", []:
                naive.next += 1
                naive.moments[naive.next] = dict(naive.now)
                timeline.mark(naive.next)
            case "commit", [int(back)]:
                timeline.commit(max(timeline.committed, naive.next - back))
            case "revert", [int(back)]:
                moment = max(timeline.committed, naive.next - back)
                timeline.revert_to(moment)
                naive.now, naive.next = dict(naive.moments[moment]), moment
                pins = [pin for pin in pins if pin <= moment]
                timeline.mark(moment)
            case "undo", [int(back)]:
                moment = max(timeline.committed, naive.next - back)
                timeline.undo_since(moment)
                naive.now = dict(naive.moments[moment])
            case "pin", []:
                timeline.pin(timeline.committed)
                pins.append(timeline.committed)
            case "unpin", [] if pins:
                timeline.unpin(pins.pop(0))
            case _:
                pass
        agree(map_, naive, LATEST, naive.now)
        for moment in [*pins, *range(timeline.committed, naive.next + 1)]:
            agree(map_, naive, moment, naive.moments[moment])


def test_commit_returns_each_touched_key_with_its_earlier_value() -> None:
    timeline = Timeline()
    colours: TimelineMap[str, str] = TimelineMap(timeline)
    sizes: TimelineMap[str, int] = TimelineMap(timeline)
    timeline.mark(10)
    colours["a"] = "red"
    colours["a"] = "blue"
    timeline.mark(12)
    sizes["a"] = 3
    colours["a"] = "green"
    timeline.mark(20)
    colours["a"] = "black"

    touched = timeline.commit(20)

    assert [(entry.offset, entry.key, entry.old) for entry in touched] == [
        (10, "a", ABSENT),
        (12, "a", ABSENT),
        (12, "a", "blue"),
    ]
    assert [entry.map for entry in touched] == [colours, sizes, colours]
    assert colours.get("a", 20) == "green"
    assert colours.get("a") == "black"


def test_earlier_values_are_dropped_by_the_commit() -> None:
    timeline = Timeline()
    map_: TimelineMap[int, int] = TimelineMap(timeline)
    for offset in range(5000):
        timeline.mark(offset)
        map_[offset % 7] = offset
        timeline.commit(offset + 1)
    assert not map_._past
    assert not timeline._pending
    assert not timeline._droppable


def test_the_backlog_of_a_pin_is_dropped_step_by_step() -> None:
    timeline = Timeline()
    map_: TimelineMap[int, int] = TimelineMap(timeline)
    timeline.pin(0)
    for offset in range(5000):
        timeline.mark(offset)
        map_[offset] = offset
        timeline.commit(offset + 1)
    assert map_.keys(0) == []
    timeline.unpin(0)
    assert 0 < len(timeline._droppable) < 5000
    for offset in range(5000, 5010):
        timeline.commit(offset)
    assert not timeline._droppable
    assert len(map_) == 5000


def test_a_committed_moment_can_neither_be_reverted_nor_written_nor_pinned() -> None:
    timeline = Timeline()
    timeline.mark(5)
    timeline.commit(6)
    with pytest.raises(ValueError, match="below the committed"):
        timeline.revert_to(5)
    with pytest.raises(ValueError, match="is below"):
        timeline.mark(5)
    with pytest.raises(ValueError, match="below the committed"):
        timeline.pin(5)


def test_the_change_counter_increases_with_changes_and_commits() -> None:
    timeline = Timeline()
    map_: TimelineMap[int, int] = TimelineMap(timeline)
    other: TimelineMap[int, int] = TimelineMap(timeline)
    timeline.mark(1)
    map_[1] = 1
    written = map_.changes
    timeline.commit(2)
    assert map_.changes > written
    assert other.changes == 0
