"""A directory with a live consumer group is served by our node, by Apache Kafka, and by our node again.

Each coordinator loads the group that the other wrote: the same members, epochs and assignments. A heartbeat changes
nothing, since both compute the same hash of the subscribed topics.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.connection import Connection
from oracle.handover.handovers import OurServer
from oracle.kafka_server import KafkaServer, write_node_properties
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    DescribedGroup,
)
from strandline.protocol.messages.coordinators import FindCoordinatorRequest
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

pytestmark = pytest.mark.long

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.assignment.interval.ms": "0",
    "broker.rack": "shelf",
}
GROUP = "g"
_RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Client:
    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self.connection = Connection(host, int(port))

    def _until_served(self, request: Any, version: int, code: Any) -> Any:
        deadline = time.monotonic() + 60
        while True:
            response = self.connection.call(request, version)
            if code(response) not in _RETRIED:
                return response
            assert time.monotonic() < deadline, response
            time.sleep(0.1)

    def create_topics(self) -> None:
        topics = [CreatableTopic("t", 5, 1), CreatableTopic("web-1", 2, 1)]
        self.connection.call(CreateTopicsRequest(topics, 30_000), 7)
        request = FindCoordinatorRequest(coordinator_keys=[GROUP])
        self._until_served(request, 4, lambda response: response.coordinators[0].error_code)

    def heartbeat(self, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, **fields)
        response = self._until_served(request, 1, lambda response: response.error_code)
        assert response.error_code == 0, response
        return response

    def describe(self) -> DescribedGroup:
        request = ConsumerGroupDescribeRequest([GROUP])
        response = self._until_served(request, 1, lambda response: response.groups[0].error_code)
        group: DescribedGroup = response.groups[0]
        group.members.sort(key=lambda member: member.member_id)
        for member in group.members:
            for assignment in (member.assignment, member.target_assignment):
                assignment.topic_partitions.sort(key=lambda topic: topic.topic_name)
                for topic in assignment.topic_partitions:
                    topic.partitions.sort()
        return group


class Member:
    def __init__(self, name: str, **subscription: Any) -> None:
        self.name = name
        self.epoch = 0
        self.owned: list[ConsumerGroupHeartbeatRequestTopicPartitions] = []
        self.subscription = subscription

    def beat(self, client: Client) -> None:
        fields: dict[str, Any] = {"instance_id": self.subscription.get("instance_id")}
        if self.epoch == 0:
            fields = {**self.subscription, "rebalance_timeout_ms": 60_000}
        response = client.heartbeat(member_id=self.name, member_epoch=self.epoch, topic_partitions=self.owned, **fields)
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = response.assignment.topic_partitions


def settle(client: Client, members: list[Member]) -> DescribedGroup:
    deadline = time.monotonic() + 60
    while True:
        for member in members:
            member.beat(client)
        described = client.describe()
        if described.group_state == "Stable" and all(member.epoch > 1 for member in members):
            return described
        assert time.monotonic() < deadline, described
        time.sleep(0.2)


@contextmanager
def serving(server: OurServer | KafkaServer, bootstrap: str) -> Iterator[Client]:
    try:
        server.wait_until_ready()
        yield Client(bootstrap)
        server.stop()
    finally:
        server.kill()


def test_a_live_consumer_group_is_the_same_for_our_node_and_for_kafka(kafka_classpath: str, tmp_path: Path) -> None:
    properties = write_node_properties(tmp_path, SETTINGS)
    listeners = next(line for line in properties.read_text().splitlines() if line.startswith("listeners="))
    bootstrap = listeners.split("PLAINTEXT://")[1].split(",")[0].replace("\\:", ":")
    members = [
        Member("a", subscribed_topic_names=["t"], instance_id="i", rack_id="shelf"),
        Member("b", subscribed_topic_names=["t"], server_assignor="range"),
        Member("c", subscribed_topic_regex="web-.*"),
    ]
    with serving(OurServer(properties, bootstrap), bootstrap) as client:
        client.create_topics()
        ours = settle(client, members)
        assert [len(member.owned) for member in members] == [1, 1, 1]
    with serving(KafkaServer(kafka_classpath, properties), bootstrap) as client:
        assert client.describe() == ours
        assert settle(client, members) == ours, "nothing has changed for Kafka"
        members.append(Member("d", subscribed_topic_names=["t"]))
        kafkas = settle(client, members)
        assert kafkas.group_epoch == ours.group_epoch + 1
    with serving(OurServer(properties, bootstrap), bootstrap) as client:
        assert client.describe() == kafkas
        assert settle(client, members) == kafkas, "nothing has changed for our node"
