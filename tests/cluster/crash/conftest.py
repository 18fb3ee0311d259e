"""The fixtures for Java programs."""

from __future__ import annotations

from oracle.conftest import kafka_classpath, kafka_lib, programs, tools

__all__ = ["kafka_classpath", "kafka_lib", "programs", "tools"]
