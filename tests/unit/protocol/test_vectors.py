"""Bytes that Apache Kafka's classes wrote, decoded and encoded by ours."""

from __future__ import annotations

from strandline.protocol.codec import decode, encode_bytes
from unit.protocol.kafka_json import differences
from unit.protocol.random_messages import every_message
from unit.protocol.vectors import read_vectors

OURS = {cls.__name__: cls for cls in every_message()}


def test_every_message_has_vectors_of_its_oldest_and_newest_version() -> None:
    kept = {(vector.name, vector.version) for vector in read_vectors()}
    assert {(name, version) for name, cls in OURS.items() for version in cls.versions} <= kept


def test_bytes_of_kafka_are_decoded_to_the_values_of_kafka_and_encoded_to_the_same_bytes() -> None:
    wrong = []
    for vector in read_vectors():
        message, end = decode(OURS[vector.name], vector.version, vector.data)
        wrong += differences(message, vector.version, vector.json)
        if end != len(vector.data) or encode_bytes(message, vector.version) != vector.data:
            wrong.append(f"{vector.name} v{vector.version}: {vector.data.hex()} reads as {message}")
    assert wrong == []
