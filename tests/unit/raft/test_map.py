"""The map in `raft/__init__.py` names every module in its package, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import strandline.raft


def test_the_map_names_every_module_in_its_package_and_no_other() -> None:
    assert strandline.raft.__doc__ is not None and strandline.raft.__file__ is not None
    package = Path(strandline.raft.__file__).parent
    there = {(path.parent.name, path.stem) for path in package.glob("*/*.py")} - {
        (folder, "__init__") for folder in ("machine", "disk", "shell")
    }
    named = set()
    for text in re.split(r"(?m)^(?=`)", strandline.raft.__doc__)[1:]:
        folder = text[1 : text.index("/")]
        rows = [line.strip() for line in text.splitlines() if line.startswith("    ")]
        columns = [column for row in rows for column in re.split(r"\s{2,}", row)]
        names = [column.split(", ") for column in columns if re.fullmatch(r"[a-z_]+(, [a-z_]+)*", column)]
        named |= {(folder, name) for each in names for name in each}
    assert sorted(there ^ named) == []
