"""Kafka's metadata shell at one file, a snapshot or a log: what it prints to one command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from compat.java.jvm import java

SHELL = "org.apache.kafka.shell.MetadataShell"
# It answers when it has read the file, which may be before it has applied the last batch that it read.
TRIES = 10


def shell(programs: str, file: Path, command: Sequence[str], is_complete: Callable[[str], bool]) -> str:
    """In a JVM of its own: in one that goes on, it waits for ever the second time."""
    for _ in range(TRIES):
        said = java(programs, SHELL, "--snapshot", str(file), *command).stdout
        if is_complete(said):
            break
    return said
