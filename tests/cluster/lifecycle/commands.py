"""The command line as a process, for tests that watch it from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strandline.testing import Cluster

SOURCE = Path(__file__).resolve().parents[3] / "src"
PATIENCE_S = 60.0


def strandline(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "strandline", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )


def told(*arguments: str) -> Any:
    """What a command answers as JSON."""
    ended = strandline(*arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def until(fact: Callable[[], bool], otherwise: str = "it never came true") -> None:
    """What is true at once on one node is true a moment later on another."""
    deadline = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


def ids(members: list[dict[str, Any]]) -> list[int]:
    return [each["id"] for each in members]


def leader_of(cluster: Cluster) -> int:
    """The active controller."""
    leader: int = told("quorum", "describe", "-b", cluster.bootstrap)["leader_id"]
    return leader
