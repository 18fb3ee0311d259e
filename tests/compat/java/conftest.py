"""Fixtures of the Java tests: the class path with our programs, and one node for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat.java.jvm import Tools, compiled_programs
from oracle.conftest import kafka_classpath, kafka_lib
from strandline.launch.cluster import Cluster

__all__ = ["kafka_classpath", "kafka_lib"]

SETTINGS = {"num.partitions": "3"}


@pytest.fixture(scope="session")
def programs(kafka_classpath: str) -> str:
    return compiled_programs(kafka_classpath)


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node of its own: these tests change configs of all brokers and count topics."""
    with Cluster.started(tmp_path_factory.mktemp("java"), settings=SETTINGS) as cluster:
        yield cluster.bootstrap


@pytest.fixture(scope="session")
def tools(programs: str) -> Iterator[Tools]:
    with Tools(programs) as opened:
        yield opened
