"""Where a server can run."""

from __future__ import annotations

import sys

from strandline.cli.errors import CommandFailed


def reject_windows(command: str) -> None:
    if sys.platform == "win32":
        raise CommandFailed(
            f"`strandline {command}` does not run on Windows: durable logs need POSIX file semantics. Use Linux, "
            "macOS, or the Windows Subsystem for Linux (WSL)"
        )
