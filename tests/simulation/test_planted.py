"""The simulator finds every planted bug as a violation of the right invariant, and no violation without the bug."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.planting import PACKAGE, Bug, DoesNotApply, bugs, simulate

BUGS = bugs()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_violates_its_invariant(bug: Bug, tmp_path: Path) -> None:
    name = f": breaks {bug.invariant}"
    output = simulate(bug.plant(tmp_path), ("--keep-going", *bug.run), until=name)
    assert f"{name}\n" in output, f"not found: {bug.sentence}\n{output}"


FEW_SEEDS = ("--seeds", "1..2")
"""Overrides the seeds of the bug's `run:` line, since the last option counts."""


@pytest.mark.parametrize("run", sorted({(*bug.run, *FEW_SEEDS) for bug in BUGS}), ids=" ".join)
def test_the_same_runs_violate_nothing_without_the_bug(run: tuple[str, ...]) -> None:
    assert "broken: nothing\n" in simulate(PACKAGE.parent, run)


def test_every_invariant_has_a_planted_bug() -> None:
    assert len(BUGS) >= 12
    found = {bug.invariant for bug in BUGS}
    assert found >= {f"I-{number}" for number in range(1, 11)} | {"liveness", "inconsistent-offsets"}


def test_a_patch_of_other_code_does_not_apply(tmp_path: Path) -> None:
    bug = BUGS[0]
    lines = [f"{line} " if line.startswith(" ") else line for line in bug.diff.splitlines()]
    with pytest.raises(DoesNotApply):
        Bug(bug.name, bug.sentence, bug.invariant, bug.run, "\n".join(lines)).plant(tmp_path)
