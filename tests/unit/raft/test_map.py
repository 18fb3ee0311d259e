"""The map of the package names every module once it is there, and none that is not."""

from __future__ import annotations

import re
from pathlib import Path

import strandline.raft


def test_the_map_names_every_module() -> None:
    assert strandline.raft.__doc__ is not None and strandline.raft.__file__ is not None
    there = {path.stem for path in Path(strandline.raft.__file__).parent.glob("*.py")} - {"__init__"}
    words = set(re.findall(r"\b[a-z]+(?:_[a-z]+)*\b", strandline.raft.__doc__))
    assert sorted(there - words) == []
