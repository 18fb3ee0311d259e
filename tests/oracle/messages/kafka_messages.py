"""Runs Kafka's message classes (KafkaMessages.java): many commands in one JVM."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from compat.java.jvm import java
from strandline.protocol.types import Message


@dataclass(frozen=True)
class Result:
    """A message that Kafka encoded, as bytes and as JSON, or the exception."""

    data: bytes
    json: dict[str, Any]
    error: str | None


def read(cls: type[Message], version: int, data: bytes) -> str:
    """The command to decode these bytes and encode them again."""
    return f"read {cls.__name__} {version} {data.hex()}"


def make(cls: type[Message], version: int, seed: int) -> str:
    """The command to encode a random message."""
    return f"make {cls.__name__} {version} {seed}"


def new(cls: type[Message], version: int) -> str:
    """The command to encode a message with default values."""
    return f"new {cls.__name__} {version}"


def run(classpath: str, commands: list[str]) -> list[Result]:
    done = java(classpath, "KafkaMessages", text="\n".join(commands) + "\n", timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(commands), done.stderr
    return [_result(line) for line in lines]


def _result(line: str) -> Result:
    if line.startswith("!"):
        return Result(b"", {}, line[2:])
    data, _, text = line.partition(" ")
    return Result(bytes.fromhex(data), json.loads(text), None)
