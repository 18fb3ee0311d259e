"""Leaders and followers: each file in `scenarios/` is a story. `stage.py` says what its words mean.

STRANDLINE_REWRITE_SCENARIOS=1 writes down what the machines do instead of comparing.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unit.replication.stage import Stage

HERE = Path(__file__).parent / "scenarios"
REWRITE = os.environ.get("STRANDLINE_REWRITE_SCENARIOS") == "1"


@pytest.mark.parametrize("path", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_the_story_goes_as_it_is_written(path: Path) -> None:
    written = path.read_text()
    told = tell(written)
    if REWRITE:
        path.write_text(told)
    assert told == written


def tell(written: str) -> str:
    stage = Stage()
    told: list[str] = []
    for line in written.splitlines():
        if line.startswith("  => "):
            continue
        told.append(line)
        step = line.partition("#")[0].strip()
        if step:
            told.extend(f"  => {effect}" for effect in stage.step(step))
    return "\n".join(told) + "\n"
