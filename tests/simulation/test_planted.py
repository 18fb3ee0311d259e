"""The net has teeth: bugs that are planted in a copy of the package are found, by the name of what they break.

The few that show at once are looked for every time; STRANDLINE_PLANTED=all looks for all of them (some minutes).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simulation.planting import Bug, bugs, simulate

AT_ONCE = (
    "acknowledged_before_sync",
    "leader_counts_what_is_not_synced",
    "partition_epoch_stays",
    "persisted_after_answering",
    "uncommitted_metadata_followed",
    "vote_not_synced",
)
ALL = os.environ.get("STRANDLINE_PLANTED") == "all"


def test_every_planted_bug_still_has_a_place_in_the_code(tmp_path: Path) -> None:
    planted = bugs()
    assert len(planted) >= 12
    for bug in planted:
        bug.plant(tmp_path / bug.name)


@pytest.mark.slow
@pytest.mark.parametrize("bug", [each for each in bugs() if ALL or each.name in AT_ONCE], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_by_the_invariant_that_it_breaks(bug: Bug, tmp_path: Path) -> None:
    found = simulate(bug.plant(tmp_path), bug.run)
    assert found.returncode == 1, found.stdout[-3000:]
    assert f"broken: {bug.invariant} 1" in found.stdout, found.stdout[-3000:]
