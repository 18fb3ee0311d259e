"""A commit is published to the parts of the broker: completely, and in portions if it is large."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

from strandline.metadata.changes import Changes
from strandline.metadata.image import Image
from strandline.metadata.values import PartitionInfo
from strandline.model.ids import TopicPartition, Uuid
from strandline.node.publisher import MetadataPublisher
from strandline.protocol.messages.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from strandline.protocol.types import Message

TOPIC, AGAIN = Uuid.of(1, 100), Uuid.of(1, 101)


class Parts:
    """The partition table, logs, replication and dynamic configs of a broker; records the calls."""

    def __init__(self) -> None:
        self.led: dict[int, int] = {}
        self.dropped: list[tuple[Uuid, int]] = []
        self.logs: dict[TopicPartition, Uuid] = {}
        self.calls = 0

    def get(self, name: str) -> int:
        return 0

    def drop(self, topic_id: Uuid, partition: int) -> None:
        self.dropped.append((topic_id, partition))

    def on_metadata(self, *what: Any) -> None:
        self.calls += 1
        if isinstance(what[0], Changes):
            for step in what[0].hosted:
                self.logs[TopicPartition(step.topic, step.partition)] = step.topic_id
        else:
            _, partition, info = cast(tuple[Uuid, int, PartitionInfo], what)
            self.led[partition] = info.leader

    def delete_soon(self, topic_partition: TopicPartition, delay_ms: int) -> None:
        self.logs.pop(topic_partition, None)


class Scene:
    def __init__(self) -> None:
        self.image = Image()
        self.parts = Parts()
        parts: Any = self.parts
        self.publisher = MetadataPublisher(
            1, self.image, parts, parts, parts, parts, lambda changes: None, lambda: None
        )

    def publish(self, *records: Message) -> list[int]:
        """The number of calls before each yield, and at the end."""
        self.image.replay_batch(self.image.end_offset, records)
        calls = []
        for _ in self.publisher.on_commit(self.image.commit(self.image.end_offset)):
            calls.append(self.parts.calls)
        return [*calls, self.parts.calls]


def topic(topic_id: Uuid, partitions: int) -> list[Message]:
    return [
        TopicRecord(name="t", topic_id=topic_id),
        *(
            PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[1, 2], isr=[1, 2], leader=1)
            for index in range(partitions)
        ),
    ]


def test_a_small_commit_is_published_in_one_portion() -> None:
    assert len(Scene().publish(*topic(TOPIC, 3))) == 1


def test_ten_thousand_new_leaders_are_published_in_portions() -> None:
    scene = Scene()
    scene.publish(*topic(TOPIC, 10_000))
    assert len(scene.parts.logs) == 10_000
    changes = [PartitionChangeRecord(topic_id=TOPIC, partition_id=index, leader=2) for index in range(10_000)]
    calls = scene.publish(*changes)
    assert len(calls) > 50
    assert max(after - before for before, after in pairwise(calls)) <= 201
    assert scene.parts.led == dict.fromkeys(range(10_000), 2)


def test_a_recreated_topic_is_published_in_one_portion_so_that_no_deletion_hits_its_new_log() -> None:
    scene = Scene()
    scene.publish(*topic(TOPIC, 1_000))
    assert len(scene.publish(RemoveTopicRecord(topic_id=TOPIC), *topic(AGAIN, 1_000))) == 1
    assert scene.parts.dropped == [(TOPIC, index) for index in range(1_000)]
    assert set(scene.parts.logs.values()) == {AGAIN}
    assert len(scene.parts.logs) == 1_000
