"""The net has teeth: every bug planted into a copy of the package is found, within its seeds, by the right invariant.

Without the bug the same seeds break nothing. `strandline sim run --seeds 1..1000` is the longer way to look.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.planting import PACKAGE, Bug, DoesNotApply, bugs, simulate

BUGS = bugs()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_and_called_by_its_name(bug: Bug, tmp_path: Path) -> None:
    found = simulate(bug.plant(tmp_path), bug.run)
    assert found.returncode == 1, f"not found: {bug.sentence}\n{found.stdout}\n{found.stderr}"
    assert f": breaks {bug.invariant}\n" in found.stdout, found.stdout


@pytest.mark.parametrize("run", sorted({bug.run for bug in BUGS}), ids=" ".join)
def test_without_the_bug_the_same_seeds_break_nothing(run: tuple[str, ...]) -> None:
    found = simulate(PACKAGE.parent, run)
    assert found.returncode == 0, found.stdout


def test_there_are_many_and_every_invariant_is_among_them() -> None:
    assert len(BUGS) >= 12
    assert {bug.invariant for bug in BUGS} == {"I-1", "I-2", "I-3", "I-4", "I-5", "I-6", "I-7", "liveness"}


def test_a_patch_for_other_code_is_refused(tmp_path: Path) -> None:
    bug = BUGS[0]
    lines = [f"{line} " if line.startswith(" ") else line for line in bug.diff.splitlines()]
    with pytest.raises(DoesNotApply):
        Bug(bug.name, bug.sentence, bug.invariant, bug.run, "\n".join(lines)).plant(tmp_path)
