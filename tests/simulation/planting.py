"""Planted bugs: patches of the package, each with the invariant that the simulator must find violated.

A patch file starts with a sentence, `invariant:` and `run:` (arguments of `strandline sim run`), then a unified diff.
The seeds are more than needed, since every change of the code changes the runs; the search ends at the first violation
of the invariant. The patch is applied to a copy of the package; a hunk whose lines are not found exactly once is an
error: a change of the code must adapt its planted bugs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "strandline"
PATCHES = Path(__file__).parent / "planted"
_HUNK = re.compile(r"@@ -(\d+)")


class DoesNotApply(Exception):
    """The lines of a hunk are not found exactly once."""


@dataclass(frozen=True)
class Bug:
    name: str
    sentence: str
    invariant: str
    run: tuple[str, ...]
    diff: str

    @classmethod
    def read(cls, path: Path) -> Bug:
        head, _, diff = path.read_text().partition("\n--- ")
        sentence, *fields = head.strip().splitlines()
        values = dict(field.split(": ", 1) for field in fields if field)
        return cls(path.stem, sentence, values["invariant"], tuple(shlex.split(values["run"])), "--- " + diff)

    def plant(self, directory: Path) -> Path:
        """Copies the package to `directory` and applies the patch to the copy."""
        shutil.copytree(PACKAGE, directory / "strandline")
        for file in re.split(r"(?m)^(?=--- )", self.diff):
            if file:
                _apply(file, directory)
        return directory


def bugs() -> list[Bug]:
    return [Bug.read(path) for path in sorted(PATCHES.glob("*.patch"))]


def simulate(source: Path, arguments: tuple[str, ...], until: str | None = None) -> str:
    """The output of `strandline sim run` with the package in `source`, up to the line that ends with `until`."""
    command = [sys.executable, "-m", "strandline.simulation", "run", "--no-shrink", "--jobs", "1", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONUNBUFFERED": "1"}
    output: list[str] = []
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            if until is not None and line.rstrip().endswith(until):
                process.kill()
    return "".join(output)


def _apply(file: str, directory: Path) -> None:
    first, _, *rest = file.splitlines()
    path = directory / first.removeprefix("--- a/").split("\t")[0]
    lines = path.read_text().splitlines()
    hunks: list[list[str]] = []
    for line in rest:
        if _HUNK.match(line):
            hunks.append([])
        else:
            hunks[-1].append(line)
    for hunk in hunks:
        old = [line[1:] for line in hunk if line[:1] in (" ", "-", "")]
        new = [line[1:] for line in hunk if line[:1] in (" ", "+", "")]
        places = [at for at in range(len(lines) - len(old) + 1) if lines[at : at + len(old)] == old]
        if len(places) != 1:
            raise DoesNotApply(f"{path.name}: these lines occur {len(places)} times:\n" + "\n".join(old))
        lines[places[0] : places[0] + len(old)] = new
    path.write_text("\n".join(lines) + "\n")
