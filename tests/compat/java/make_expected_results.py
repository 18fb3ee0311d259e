"""Writes answers.txt: what the Java client's checks find at Apache Kafka 4.3.1, a line for each.

    PYTHONPATH=src:tests:. .venv/bin/python -m compat.java.make_answers

Kafka runs on a directory that we formatted, so that it has the same features as our node.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.kafka_jars import classpath
from compat.java.conftest import SETTINGS
from compat.java.jvm import compiled, java
from oracle.kafka_server import kafka_server, write_node_properties

ANSWERS = Path(__file__).resolve().parent / "answers.txt"


def answers_of(programs: str, bootstrap: str) -> dict[str, str]:
    done = java(programs, "Checks", bootstrap, timeout=600)
    assert done.returncode == 0, done.stderr
    return dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)


def read_answers() -> dict[str, str]:
    return dict(line.split("\t", 1) for line in ANSWERS.read_text().splitlines())


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        properties = write_node_properties(Path(directory), SETTINGS)
        with kafka_server(classpath(), properties) as kafka:
            answers = answers_of(compiled(classpath()), kafka.bootstrap)
    ANSWERS.write_text("".join(f"{name}\t{answer}\n" for name, answer in answers.items()))


if __name__ == "__main__":
    main()
