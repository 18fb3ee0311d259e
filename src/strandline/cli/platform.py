"""Where a server can run."""

from __future__ import annotations

import sys

from strandline.cli.errors import Failed


def refuse_windows(command: str) -> None:
    if sys.platform == "win32":
        raise Failed(
            f"`strandline {command}` does not run on Windows: durable logs need POSIX file semantics. Use Linux, "
            "macOS, or the Windows Subsystem for Linux (WSL)"
        )
