"""Writes tests/unit/protocol/vectors.txt.xz: messages encoded by Kafka, for machines without Java.

PYTHONPATH=src:tests:. python -m oracle.messages.make_vectors
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from bench import kafka_jars
from oracle.messages.kafka_messages import make, run
from oracle.programs import compiled_oracle_programs
from strandline.protocol.types import Message
from unit.protocol.random_messages import every_message
from unit.protocol.vectors import VECTORS, Vector, write_vectors

TRIES = 12
ENOUGH_BYTES = 400


def versions_worth_keeping(cls: type[Message]) -> Iterator[int]:
    """The oldest, the last inflexible, the first flexible and the newest version."""
    first, last = cls.versions
    flexible = cls.flexible if cls.flexible is not None else last
    yield from sorted({version for version in (first, flexible - 1, flexible, last) if first <= version <= last})


def fresh_vectors(classpath: str) -> list[Vector]:
    """Of a dozen random messages the longest below a limit: short messages are mostly empty lists."""
    wanted = [(cls, version) for cls in every_message() for version in versions_worth_keeping(cls)]
    commands = [make(cls, version, 1000 * version + seed) for cls, version in wanted for seed in range(TRIES)]
    results = run(classpath, commands)
    vectors = []
    for index, (cls, version) in enumerate(wanted):
        tried = results[index * TRIES : (index + 1) * TRIES]
        small = [result for result in tried if len(result.data) <= ENOUGH_BYTES]
        chosen = max(small, key=lambda result: len(result.data)) if small else tried[0]
        vectors.append(Vector(cls.__name__, version, chosen.data, chosen.json))
    return vectors


if __name__ == "__main__":
    vectors = fresh_vectors(compiled_oracle_programs(kafka_jars.classpath()))
    write_vectors(vectors)
    plain = sum(len(json.dumps(vector.json)) + len(vector.data) for vector in vectors)
    print(f"{len(vectors)} vectors, {plain} bytes, {VECTORS.stat().st_size} packed, in {VECTORS}")
