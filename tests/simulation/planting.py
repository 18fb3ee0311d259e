"""Bugs to plant: patches against the package, each with the invariant that must be found broken and how to look for it.

A patch file begins with a sentence, `invariant:` and `run:` (arguments of `strandline sim run`), then a unified diff.
The seeds are more than it takes, since every change of the code makes other runs of them, and looking ends where the
invariant is found broken. The patch is applied to a copy of the package; a hunk whose lines are not there, or stand in
several places, is an error: code that has moved on must take its planted bugs along.
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
    """The code is not what the patch was made for."""


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
        told = dict(field.split(": ", 1) for field in fields if field)
        return cls(path.stem, sentence, told["invariant"], tuple(shlex.split(told["run"])), "--- " + diff)

    def plant(self, directory: Path) -> Path:
        """A copy of the package with the bug in it, under `directory`."""
        shutil.copytree(PACKAGE, directory / "strandline")
        for file in re.split(r"(?m)^(?=--- )", self.diff):
            if file:
                _apply(file, directory)
        return directory


def bugs() -> list[Bug]:
    return [Bug.read(path) for path in sorted(PATCHES.glob("*.patch"))]


def simulate(source: Path, arguments: tuple[str, ...], until: str | None = None) -> str:
    """What `strandline sim run` prints with the package found in `source`, up to the line that ends in `until`."""
    command = [sys.executable, "-m", "strandline.simulation", "run", "--no-shrink", "--jobs", "1", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONUNBUFFERED": "1"}
    told: list[str] = []
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told.append(line)
            if until is not None and line.rstrip().endswith(until):
                process.kill()
    return "".join(told)


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
            raise DoesNotApply(f"{path.name}: these lines stand in {len(places)} places:\n" + "\n".join(old))
        lines[places[0] : places[0] + len(old)] = new
    path.write_text("\n".join(lines) + "\n")
