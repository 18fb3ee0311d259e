"""Compiles the Java programs of this directory when they change, and runs them as processes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from bench.kafka_jars import BUILD
from oracle.kafka_server import QUICK

PROGRAMS = Path(__file__).resolve().parent / "programs"
QUIET = f"-Dlog4j2.configurationFile={PROGRAMS / 'quiet.properties'}"


class ToolResult(NamedTuple):
    code: int
    output: str

    @property
    def lines(self) -> list[str]:
        return [line.strip() for line in self.output.splitlines() if line.strip()]


def compiled(classpath: str, name: str, sources: Sequence[Path]) -> str:
    """The class path with these programs first; they are compiled if there is no build of this version."""
    version = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    home = BUILD / f"{name}-{version}"
    with open(BUILD / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            for older in BUILD.glob(f"{name}-*"):
                shutil.rmtree(older)
            subprocess.run(["javac", "-cp", classpath, "-d", f"{home}.part", *map(str, sources)], check=True)
            os.rename(f"{home}.part", home)
    return f"{home}{os.pathsep}{classpath}"


def compiled_programs(classpath: str) -> str:
    return compiled(classpath, "programs", sorted(PROGRAMS.glob("*.java")))


def java(classpath: str, *command: str, text: str = "", timeout: float = 180) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["java", *QUICK, QUIET, "-cp", classpath, *command],
        input=text,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=timeout,
    )


class Tools:
    """Kafka's command line tools, run one after the other in one JVM."""

    def __init__(self, classpath: str) -> None:
        self._process = subprocess.Popen(
            ["java", *QUICK, QUIET, "-cp", classpath, "Tools"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, tool: str, *arguments: str, text: str = "") -> ToolResult:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"tool": tool, "arguments": arguments, "input": text}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"{tool} stopped its JVM"
        return ToolResult(**json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
