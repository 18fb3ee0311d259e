"""Subscriptions and assignments as the bytes that consumers exchange in classic groups: a 16-bit version and a message
of that version. A core.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.client.core.assignors import Subscriber
from strandline.model.ids import TopicPartition
from strandline.protocol.codec import decode, encode_bytes
from strandline.protocol.errors import MalformedMessage
from strandline.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from strandline.protocol.messages.consumer_protocol import TopicPartition as TopicPartitions

_VERSION_BYTES = 2


def encode_subscription(subscriber: Subscriber, rack: str | None = None) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=sorted(subscriber.topics),
        owned_partitions=_grouped(subscriber.owned),
        generation_id=subscriber.generation,
        rack_id=rack,
    )
    version = ConsumerProtocolSubscription.versions[1]
    return version.to_bytes(_VERSION_BYTES, "big") + encode_bytes(message, version)


def decode_subscription(payload: bytes, member_id: str, instance_id: str | None = None) -> Subscriber:
    """Raises MalformedMessage."""
    version = _version(payload, ConsumerProtocolSubscription.versions[1])
    message, _ = decode(ConsumerProtocolSubscription, version, payload, _VERSION_BYTES)
    return Subscriber(
        member_id, tuple(message.topics), _flat(message.owned_partitions), message.generation_id, instance_id
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    version = ConsumerProtocolAssignment.versions[1]
    message = ConsumerProtocolAssignment(assigned_partitions=_grouped(partitions))
    return version.to_bytes(_VERSION_BYTES, "big") + encode_bytes(message, version)


def decode_assignment(payload: bytes) -> tuple[TopicPartition, ...]:
    """An empty payload assigns nothing. Raises MalformedMessage."""
    if not payload:
        return ()
    version = _version(payload, ConsumerProtocolAssignment.versions[1])
    message, _ = decode(ConsumerProtocolAssignment, version, payload, _VERSION_BYTES)
    return _flat(message.assigned_partitions)


def _version(payload: bytes, newest: int) -> int:
    """Newer versions only add fields at the end, so they are read as the newest known version."""
    if len(payload) < _VERSION_BYTES:
        raise MalformedMessage("a consumer's payload begins with a version of two bytes")
    return min(int.from_bytes(payload[:_VERSION_BYTES], "big"), newest)


def _grouped(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    topics: dict[str, TopicPartitions] = {}
    for each in sorted(partitions):
        topics.setdefault(each.topic, TopicPartitions(topic=each.topic)).partitions.append(each.partition)
    return list(topics.values())


def _flat(topics: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)
