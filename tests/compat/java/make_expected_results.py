"""Writes expected_results.txt: the results of the Java client's checks with Apache Kafka 4.3.1, one line each.

    PYTHONPATH=src:tests:. .venv/bin/python -m compat.java.make_expected_results

Kafka runs on a directory that we formatted, so that it has the same features as our node.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.kafka_jars import classpath
from compat.java.conftest import SETTINGS
from compat.java.jvm import compiled_programs, java
from oracle.kafka_server import kafka_server, write_node_properties

EXPECTED_RESULTS = Path(__file__).resolve().parent / "expected_results.txt"


def results_of(programs: str, bootstrap: str) -> dict[str, str]:
    done = java(programs, "Checks", bootstrap, timeout=600)
    assert done.returncode == 0, done.stderr
    return dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)


def read_expected_results() -> dict[str, str]:
    return dict(line.split("\t", 1) for line in EXPECTED_RESULTS.read_text().splitlines())


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        properties = write_node_properties(Path(directory), SETTINGS)
        with kafka_server(classpath(), properties) as kafka:
            results = results_of(compiled_programs(classpath()), kafka.bootstrap)
    EXPECTED_RESULTS.write_text("".join(f"{name}\t{result}\n" for name, result in results.items()))


if __name__ == "__main__":
    main()
