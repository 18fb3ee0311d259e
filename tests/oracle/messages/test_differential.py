"""Our bytes against Kafka's own classes, for every message and version that we declare, both ways, in one JVM."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from oracle.messages.kafka_messages import Answer, ask, make, new, read
from oracle.messages.make_vectors import fresh_vectors
from strandline.protocol.codec import decode, encode_bytes
from strandline.protocol.types import Message
from unit.protocol.kafka_json import differences
from unit.protocol.random_messages import every_version, random_message
from unit.protocol.vectors import read_vectors

EACH = 6
pytestmark = pytest.mark.xdist_group("kafka-messages")

Ask = Callable[[str], Answer]


def ours(cls: type[Message], version: int, seed: int) -> Message:
    return random_message(cls, version, Random(f"{cls.__name__} {version} {seed}"))


@pytest.fixture(scope="module")
def kafka(kafka_classpath: str) -> Ask:
    """Every question of this module, asked beforehand."""
    questions = []
    for cls, version in every_version():
        questions.append(new(cls, version))
        for seed in range(EACH):
            questions.append(read(cls, version, encode_bytes(ours(cls, version, seed), version)))
            questions.append(make(cls, version, seed))
    return dict(zip(questions, ask(kafka_classpath, questions), strict=True)).__getitem__


def test_kafka_reads_our_random_messages_and_writes_the_same_bytes(kafka: Ask) -> None:
    wrong = []
    for cls, version in every_version():
        for seed in range(EACH):
            message = ours(cls, version, seed)
            data = encode_bytes(message, version)
            answer = kafka(read(cls, version, data))
            if answer.error is not None or answer.data != data:
                wrong.append(f"{message} v{version}: {data.hex()}, Kafka: {answer.error or answer.data.hex()}")
            wrong += differences(message, version, answer.json) if answer.error is None else []
    assert wrong == []


def test_we_read_random_messages_of_kafka_and_write_the_same_bytes(kafka: Ask) -> None:
    wrong = []
    for cls, version in every_version():
        for seed in range(EACH):
            answer = kafka(make(cls, version, seed))
            assert answer.error is None, f"{cls.__name__} v{version}: {answer.error}"
            message, end = decode(cls, version, answer.data)
            if end != len(answer.data) or encode_bytes(message, version) != answer.data:
                wrong.append(f"{cls.__name__} v{version}: {answer.data.hex()} reads as {message}")
            wrong += differences(message, version, answer.json)
    assert wrong == []


def test_a_message_with_nothing_set_is_the_same_for_both(kafka: Ask) -> None:
    wrong = []
    for cls, version in every_version():
        answer = kafka(new(cls, version))
        data = encode_bytes(cls(), version)
        if answer.error is not None or answer.data != data:
            wrong.append(f"{cls.__name__} v{version}: {data.hex()}, Kafka: {answer.error or answer.data.hex()}")
    assert wrong == []


def test_the_checked_in_vectors_are_what_kafka_makes_today(kafka_classpath: str) -> None:
    assert fresh_vectors(kafka_classpath) == read_vectors()
