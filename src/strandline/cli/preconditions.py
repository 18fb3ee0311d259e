"""Checks before a command runs: a supported platform, a config file that can be read."""

from __future__ import annotations

import os
import sys

from strandline.cli.errors import CommandFailed


def reject_windows(command: str) -> None:
    if sys.platform == "win32":
        raise CommandFailed(
            f"`strandline {command}` does not run on Windows: durable logs need POSIX file semantics. Use Linux, "
            "macOS, or the Windows Subsystem for Linux (WSL)"
        )


def check_file(path: str) -> None:
    """Reports a missing config file differently from one with invalid content."""
    if os.path.isdir(path):
        raise CommandFailed(f"{path} is a directory: name the server.properties in it")
    if not os.path.exists(path):
        raise CommandFailed(f"{path}: no such file; write a server.properties, or start a cluster with `strandline up`")
