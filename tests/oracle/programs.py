"""The Java programs under tests/oracle, which run Kafka's own classes: all compiled together, once for each change."""

from __future__ import annotations

from pathlib import Path

from compat.java.jvm import compiled

HERE = Path(__file__).resolve().parent


def compiled_oracle_programs(classpath: str) -> str:
    """The class path with the compiled programs first."""
    return compiled(classpath, "oracle-programs", sorted(HERE.rglob("*.java")))
