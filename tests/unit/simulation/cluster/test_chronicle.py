"""The events of a run: repeated ones are merged, minor ones are shown only near the end."""

from __future__ import annotations

from strandline.simulation.cluster.chronicle import Chronicle
from strandline.simulation.loop import VirtualLoop


def chronicle() -> Chronicle:
    return Chronicle(VirtualLoop())  # type: ignore[abstract]


def test_consecutive_commits_are_merged_into_one_line() -> None:
    events = chronicle()
    for offset in (3, 5, 9):
        events.repeat("node1", "commits", f"up to {offset}")
    assert len(events.entries) == 1
    assert str(events.entries[0]).endswith("commits up to 9 (and 2 more like it)")
    events.note("node2", "is killed")
    events.repeat("node1", "commits", "up to 10")
    assert len(events.entries) == 3


def test_a_story_has_the_last_events_in_full_and_major_events_before_them() -> None:
    events = chronicle()
    for number in range(100):
        events.note("node1", f"minor {number}", minor=True)
        events.note("node1", f"major {number}")
    story = events.story(at_most=40)
    assert len(story) == 41
    assert "earlier events left out" in story[0]
    assert [line for line in story if "minor 98" in line]
    assert not [line for line in story if "minor 50" in line]
    assert story[-1].endswith("major 99")
