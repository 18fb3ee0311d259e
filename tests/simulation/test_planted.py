"""The net has teeth: every bug planted into a copy of the package is found, by the right invariant.

Without the bug such runs break nothing. `strandline sim run --seeds 1..1000` is the longer way to look.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.planting import PACKAGE, Bug, DoesNotApply, bugs, simulate

BUGS = bugs()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_and_called_by_its_name(bug: Bug, tmp_path: Path) -> None:
    name = f": breaks {bug.invariant}"
    told = simulate(bug.plant(tmp_path), ("--keep-going", *bug.run), until=name)
    assert f"{name}\n" in told, f"not found: {bug.sentence}\n{told}"


SOME = ("--seeds", "1..2")
"""Of the seeds that a bug is looked for in; they come first and what comes last counts."""


@pytest.mark.parametrize("run", sorted({(*bug.run, *SOME) for bug in BUGS}), ids=" ".join)
def test_without_the_bug_the_same_runs_break_nothing(run: tuple[str, ...]) -> None:
    assert "broken: nothing\n" in simulate(PACKAGE.parent, run)


def test_there_are_many_and_every_invariant_is_among_them() -> None:
    assert len(BUGS) >= 12
    found = {bug.invariant for bug in BUGS}
    assert found >= {f"I-{number}" for number in range(1, 11)} | {"liveness", "inconsistent-offsets"}


def test_a_patch_for_other_code_is_refused(tmp_path: Path) -> None:
    bug = BUGS[0]
    lines = [f"{line} " if line.startswith(" ") else line for line in bug.diff.splitlines()]
    with pytest.raises(DoesNotApply):
        Bug(bug.name, bug.sentence, bug.invariant, bug.run, "\n".join(lines)).plant(tmp_path)
