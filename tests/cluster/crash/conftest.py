"""The fixtures for Java programs of the compatibility tests."""

from __future__ import annotations

from compat.java.conftest import kafka_classpath, kafka_lib, programs, tools

__all__ = ["kafka_classpath", "kafka_lib", "programs", "tools"]
