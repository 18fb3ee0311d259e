"""Kafka's metadata shell on one file, a snapshot or a log: the output of one command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from compat.java.jvm import java

SHELL = "org.apache.kafka.shell.MetadataShell"
# The shell may run its command before it has applied the last batch of the file.
TRIES = 10


def run_metadata_shell(programs: str, file: Path, command: Sequence[str], is_complete: Callable[[str], bool]) -> str:
    """In a new JVM each time: in a shared JVM the second run does not end."""
    for _ in range(TRIES):
        output = java(programs, SHELL, "--snapshot", str(file), *command).stdout
        if is_complete(output):
            break
    return output
