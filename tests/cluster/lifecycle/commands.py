"""The command line as a process."""

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
TIMEOUT_S = 60.0


def strandline(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "strandline", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
    )


def json_of(*arguments: str) -> Any:
    """The output of a command with --json."""
    ended = strandline(*arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def wait_until(condition: Callable[[], bool], otherwise: str = "timed out") -> None:
    """Nodes replay metadata at different times."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


def ids(members: list[dict[str, Any]]) -> list[int]:
    return [each["id"] for each in members]


def leader_of(cluster: Cluster) -> int:
    """The active controller."""
    leader: int = json_of("quorum", "describe", "-b", cluster.bootstrap)["leader_id"]
    return leader
