"""Our bytes against Kafka's own classes, for every message and version that we declare, both ways, in one JVM."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from oracle.messages.kafka_messages import Result, make, new, read, run
from oracle.messages.make_vectors import fresh_vectors
from strandline.protocol.codec import decode, encode_bytes
from strandline.protocol.types import Message
from unit.protocol.kafka_json import differences
from unit.protocol.random_messages import every_version, random_message
from unit.protocol.vectors import read_vectors

EACH = 6
pytestmark = pytest.mark.xdist_group("kafka-messages")

Kafka = Callable[[str], Result]


def ours(cls: type[Message], version: int, seed: int) -> Message:
    return random_message(cls, version, Random(f"{cls.__name__} {version} {seed}"))


@pytest.fixture(scope="module")
def kafka(oracle_programs: str) -> Kafka:
    """The results of all commands of this module."""
    commands = []
    for cls, version in every_version():
        commands.append(new(cls, version))
        for seed in range(EACH):
            commands.append(read(cls, version, encode_bytes(ours(cls, version, seed), version)))
            commands.append(make(cls, version, seed))
    return dict(zip(commands, run(oracle_programs, commands), strict=True)).__getitem__


def test_kafka_reads_our_random_messages_and_writes_the_same_bytes(kafka: Kafka) -> None:
    wrong = []
    for cls, version in every_version():
        for seed in range(EACH):
            message = ours(cls, version, seed)
            data = encode_bytes(message, version)
            result = kafka(read(cls, version, data))
            if result.error is not None or result.data != data:
                wrong.append(f"{message} v{version}: {data.hex()}, Kafka: {result.error or result.data.hex()}")
            wrong += differences(message, version, result.json) if result.error is None else []
    assert wrong == []


def test_we_read_random_messages_of_kafka_and_write_the_same_bytes(kafka: Kafka) -> None:
    wrong = []
    for cls, version in every_version():
        for seed in range(EACH):
            result = kafka(make(cls, version, seed))
            assert result.error is None, f"{cls.__name__} v{version}: {result.error}"
            message, end = decode(cls, version, result.data)
            if end != len(result.data) or encode_bytes(message, version) != result.data:
                wrong.append(f"{cls.__name__} v{version}: {result.data.hex()} reads as {message}")
            wrong += differences(message, version, result.json)
    assert wrong == []


def test_a_message_with_default_values_has_the_same_bytes(kafka: Kafka) -> None:
    wrong = []
    for cls, version in every_version():
        result = kafka(new(cls, version))
        data = encode_bytes(cls(), version)
        if result.error is not None or result.data != data:
            wrong.append(f"{cls.__name__} v{version}: {data.hex()}, Kafka: {result.error or result.data.hex()}")
    assert wrong == []


def test_the_checked_in_vectors_are_those_of_kafka(oracle_programs: str) -> None:
    assert fresh_vectors(oracle_programs) == read_vectors()
