"""Fixtures and the marker of all tests against Apache Kafka; without Java or Maven the tests are skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import kafka_jars
from compat.java.jvm import Tools, compiled_programs
from oracle.programs import compiled_oracle_programs

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.oracle)


@pytest.fixture(scope="session")
def kafka_lib() -> Path:
    """The directory of Kafka's jars."""
    try:
        return kafka_jars.jars()
    except kafka_jars.OracleMissing as missing:
        if os.environ.get("STRANDLINE_REQUIRE_ORACLE") == "1":
            pytest.fail(f"the oracle is required here, but {missing}")
        pytest.skip(f"no oracle: {missing}")


@pytest.fixture(scope="session")
def kafka_classpath(kafka_lib: Path) -> str:
    """The argument of `java -cp`."""
    return str(kafka_lib / "*")


@pytest.fixture(scope="session")
def oracle_programs(kafka_classpath: str) -> str:
    """The class path with the Java programs under tests/oracle first."""
    return compiled_oracle_programs(kafka_classpath)


@pytest.fixture(scope="session")
def programs(kafka_classpath: str) -> str:
    """The class path with the Java programs of tests/compat first."""
    return compiled_programs(kafka_classpath)


@pytest.fixture(scope="session")
def tools(programs: str) -> Iterator[Tools]:
    """Kafka's command line tools in one JVM."""
    with Tools(programs) as opened:
        yield opened
