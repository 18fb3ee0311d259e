"""librdkafka (confluent-kafka): producer, consumer and admin client with one node."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

TIMEOUT_S = 60.0


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def create(admin: AdminClient, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(TIMEOUT_S)


def consume(bootstrap: str, topic: str, partition: int, count: int, **extra: object) -> list[tuple[int, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, **extra})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[tuple[int, bytes | None]] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            found.append((message.offset(), message.value()))
    consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec_are_consumed_in_order(
    bootstrap: str, admin: AdminClient, topic: str, codec: str
) -> None:
    create(admin, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
    for number in range(1000):
        producer.produce(topic, f"value {number} ".encode() * 10, key=str(number))
    assert producer.flush(TIMEOUT_S) == 0
    expected = [(number, f"value {number} ".encode() * 10) for number in range(1000)]
    assert consume(bootstrap, topic, 0, 1000) == expected


def test_an_idempotent_producer_gets_offsets_without_gaps(bootstrap: str, admin: AdminClient, topic: str) -> None:
    create(admin, topic)
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for number in range(500):
        producer.produce(topic, str(number), on_delivery=lambda error, message: offsets.append(message.offset()))
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert offsets == list(range(500))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_setting_delivers(bootstrap: str, admin: AdminClient, topic: str, acks: str) -> None:
    create(admin, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks})
    for number in range(100):
        producer.produce(topic, str(number))
    assert producer.flush(TIMEOUT_S) == 0
    assert [value for _, value in consume(bootstrap, topic, 0, 100)] == [str(number).encode() for number in range(100)]


def test_headers_keys_and_tombstones_survive(bootstrap: str, admin: AdminClient, topic: str) -> None:
    create(admin, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None)]
    producer.produce(topic, None, key=b"k", headers=headers, timestamp=1_700_000_000_000)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert message is not None
    assert (message.key(), message.value(), message.headers()) == (b"k", None, headers)
    assert message.timestamp()[1] == 1_700_000_000_000


def test_a_topic_is_created_on_first_use(bootstrap: str, admin: AdminClient, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x")
    assert producer.flush(TIMEOUT_S) == 0
    assert len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == 3


def test_offsets_are_found_by_time(bootstrap: str, admin: AdminClient, topic: str) -> None:
    create(admin, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    now = int(time.time() * 1000)
    for number in range(10):
        producer.produce(topic, str(number), timestamp=now - 10_000 + number * 1000)
        producer.flush(TIMEOUT_S)
    partition = TopicPartition(topic, 0)
    specs = {
        "earliest": (OffsetSpec.earliest(), 0),
        "latest": (OffsetSpec.latest(), 10),
        "time": (OffsetSpec.for_timestamp(now - 5_500), 5),
        "max": (OffsetSpec.max_timestamp(), 9),
    }
    for spec, expected in specs.values():
        assert admin.list_offsets({partition: spec})[partition].result(TIMEOUT_S).offset == expected


def test_configs_are_described_set_and_deleted(admin: AdminClient, topic: str) -> None:
    create(admin, topic, retention_ms="60000")
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert described["retention.ms"].value == "60000" and not described["retention.ms"].is_default
    assert described["cleanup.policy"].value == "delete" and described["cleanup.policy"].is_default
    change = ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
    admin.incremental_alter_configs([ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])])[
        resource
    ].result(TIMEOUT_S)
    assert admin.describe_configs([resource])[resource].result(TIMEOUT_S)["retention.ms"].value == "604800000"


def test_partitions_are_added_and_topics_deleted_and_created_again(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create(admin, topic)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(TIMEOUT_S)
    assert len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == 4
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics
    create(admin, topic, 2)
    assert len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == 2
    assert consume_nothing(bootstrap, topic)


def consume_nothing(bootstrap: str, topic: str) -> bool:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
    consumer.close()
    return low == high == 0


def test_records_before_a_deleted_offset_are_not_consumed(bootstrap: str, admin: AdminClient, topic: str) -> None:
    create(admin, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, str(number))
    producer.flush(TIMEOUT_S)
    partition = TopicPartition(topic, 0, 6)
    assert admin.delete_records([partition])[partition].result(TIMEOUT_S).low_watermark == 6
    assert [offset for offset, _ in consume(bootstrap, topic, 0, 4)] == [6, 7, 8, 9]


def test_invalid_requests_get_kafkas_error_codes(admin: AdminClient, topic: str) -> None:
    cases = [
        (NewTopic("bad name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic(topic, 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic(topic, 1, 1, config={"no.such.key": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic(topic, 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
    ]
    for new, expected in cases:
        with pytest.raises(KafkaException) as raised:
            admin.create_topics([new])[new.topic].result(TIMEOUT_S)
        assert raised.value.args[0].code() == expected


def test_only_the_record_that_is_too_large_is_rejected(bootstrap: str, admin: AdminClient, topic: str) -> None:
    create(admin, topic, max_message_bytes="1000")
    errors: dict[str, object] = {}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

    def delivered(error: KafkaError | None, message: object) -> None:
        errors[message.key().decode()] = error and error.code()  # type: ignore[attr-defined]

    producer.produce(topic, b"x" * 5000, key="large", on_delivery=delivered)
    producer.flush(TIMEOUT_S)
    producer.produce(topic, b"x" * 50, key="small", on_delivery=delivered)
    producer.flush(TIMEOUT_S)
    assert errors == {"large": KafkaError.MSG_SIZE_TOO_LARGE, "small": None}


def test_the_cluster_is_described(bootstrap: str, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [bootstrap]
    assert cluster.cluster_id
