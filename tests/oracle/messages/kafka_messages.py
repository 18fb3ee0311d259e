"""Asks Kafka's message classes (KafkaMessages.java): many questions, one JVM."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strandline.protocol.types import Message

PROGRAM = Path(__file__).with_name("KafkaMessages.java")


@dataclass(frozen=True)
class Answer:
    """What Kafka wrote, as bytes and as JSON, or what it threw."""

    data: bytes
    json: dict[str, Any]
    error: str | None


def read(cls: type[Message], version: int, data: bytes) -> str:
    """The question: what do you make of these bytes?"""
    return f"read {cls.__name__} {version} {data.hex()}"


def make(cls: type[Message], version: int, seed: int) -> str:
    """The question: make one at random."""
    return f"make {cls.__name__} {version} {seed}"


def new(cls: type[Message], version: int) -> str:
    """The question: what is one with nothing set?"""
    return f"new {cls.__name__} {version}"


def ask(classpath: str, questions: list[str]) -> list[Answer]:
    done = subprocess.run(
        ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", classpath, str(PROGRAM)],
        input="\n".join(questions) + "\n",
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(questions), done.stderr
    return [_answer(line) for line in lines]


def _answer(line: str) -> Answer:
    if line.startswith("!"):
        return Answer(b"", {}, line[2:])
    data, _, text = line.partition(" ")
    return Answer(bytes.fromhex(data), json.loads(text), None)
