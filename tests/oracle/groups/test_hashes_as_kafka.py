"""The hash of the subscribed topics in a group's record is the one that Kafka computes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from random import Random

import pytest

from strandline.coordinator.consumer.metadata_hash import metadata_hash
from strandline.coordinator.consumer.topics import Racks, SubscribedTopic
from strandline.model.ids import Uuid, random_uuid

GROUPS = 300


class GivenTopics:
    version = 1

    def __init__(self, topics: dict[SubscribedTopic, Racks]) -> None:
        self._racks = topics

    def by_name(self, name: str) -> SubscribedTopic | None:
        return next((topic for topic in self._racks if topic.name == name), None)

    def by_id(self, topic_id: Uuid) -> SubscribedTopic | None:
        return next((topic for topic in self._racks if topic.topic_id == topic_id), None)

    def names(self) -> Sequence[str]:
        return [topic.name for topic in self._racks]

    def racks(self, topic: SubscribedTopic) -> Racks:
        return self._racks[topic]


def given_topics(random: Random) -> GivenTopics:
    """So many and so large that every branch of the hash is taken."""
    topics: dict[SubscribedTopic, Racks] = {}
    with_racks = random.random() < 0.5
    for number in range(random.choice([1, 2, 3, 10, 17, 33, 200])):
        name = f"topic-{number}" + "x" * random.randint(0, 60)
        count = random.choice([1, 2, 3, 10, 30, 200, 1000])
        racks = tuple(tuple(random.choices(["a", "rack-b", "c" * 20], k=3)) for _ in range(count))
        topics[SubscribedTopic(name, random_uuid(random), count)] = racks if with_racks else ()
    return GivenTopics(topics)


@pytest.mark.slow
def test_our_hashes_of_topics_are_kafkas(oracle_programs: str) -> None:
    random = Random(3)
    groups = [given_topics(random) for _ in range(GROUPS)]
    lines = []
    for group in groups:
        topics = [group.by_name(name) for name in group.names()]
        known = [topic for topic in topics if topic is not None]
        fields = [
            {
                "name": each.name,
                "id": str(each.topic_id),
                "partitions": each.partition_count,
                "racks": group.racks(each),
            }
            for each in known
        ]
        lines.append(json.dumps(fields) + "\n")
    command = ["java", "-cp", oracle_programs, "KafkaTopicHashes"]
    done = subprocess.run(command, input="".join(lines), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [metadata_hash(group, group.names()) for group in groups] == [int(line) for line in done.stdout.split()]
