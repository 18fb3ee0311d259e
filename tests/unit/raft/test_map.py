"""The map of the package names every module that is there, and none that is not."""

from __future__ import annotations

import re
from pathlib import Path

import strandline.raft


def test_the_map_names_every_module_and_no_other() -> None:
    assert strandline.raft.__doc__ is not None and strandline.raft.__file__ is not None
    there = {path.stem for path in Path(strandline.raft.__file__).parent.glob("*.py")} - {"__init__"}
    rows = [line.strip() for line in strandline.raft.__doc__.splitlines() if line.startswith("    ")]
    columns = [column for row in rows for column in re.split(r"\s{2,}", row)]
    named = {name for column in columns if re.fullmatch(r"[a-z_]+(, [a-z_]+)*", column) for name in column.split(", ")}
    assert sorted(there ^ named) == []
