"""The raw material of stories: what repeats is said once, what is minor only near the end."""

from __future__ import annotations

from strandline.simulation.cluster.chronicle import Chronicle
from strandline.simulation.loop import VirtualLoop


def chronicle() -> Chronicle:
    return Chronicle(VirtualLoop())  # type: ignore[abstract]


def test_commits_one_after_the_other_are_one_line() -> None:
    told = chronicle()
    for offset in (3, 5, 9):
        told.repeat("node1", "commits", f"up to {offset}")
    assert len(told.entries) == 1
    assert str(told.entries[0]).endswith("commits up to 9 (and 2 more like it)")
    told.note("node2", "is killed")
    told.repeat("node1", "commits", "up to 10")
    assert len(told.entries) == 3


def test_a_story_has_its_end_in_full_and_before_it_only_what_matters() -> None:
    told = chronicle()
    for number in range(100):
        told.note("node1", f"minor {number}", minor=True)
        told.note("node1", f"major {number}")
    story = told.story(at_most=40)
    assert len(story) == 41
    assert "earlier events left out" in story[0]
    assert [line for line in story if "minor 98" in line]
    assert not [line for line in story if "minor 50" in line]
    assert story[-1].endswith("major 99")
