"""Kafka's command line tools in one JVM."""

from __future__ import annotations

from compat.java.conftest import programs, tools

__all__ = ["programs", "tools"]
