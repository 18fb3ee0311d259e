"""A group machine with topics, and members of one consumer group that send it heartbeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from strandline.coordinator.consumer.group import ConsumerGroup
from strandline.coordinator.consumer.settings import ConsumerSettings
from strandline.coordinator.consumer.topics import Racks, SubscribedTopic
from strandline.coordinator.decision import Decision, Now, Token
from strandline.coordinator.groups import Caller, GroupMachine
from strandline.coordinator.records import GROUP_RECORDS, CoordinatorRecord, decode_record, encode_record
from strandline.coordinator.settings import GroupSettings
from strandline.model.ids import Uuid
from strandline.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)

GROUP = "g"


class FakeTopics:
    def __init__(self, **counts: int) -> None:
        self.version = 1
        self._topics: dict[str, SubscribedTopic] = {}
        for name, count in counts.items():
            self.set(name, count)

    def set(self, name: str, partition_count: int) -> None:
        known = self._topics.get(name)
        topic_id = Uuid.of(1, 100 + len(self._topics)) if known is None else known.topic_id
        self._topics[name] = SubscribedTopic(name, topic_id, partition_count)
        self.version += 1

    def delete(self, name: str) -> None:
        del self._topics[name]
        self.version += 1

    def by_name(self, name: str) -> SubscribedTopic | None:
        return self._topics.get(name)

    def by_id(self, topic_id: Uuid) -> SubscribedTopic | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def names(self) -> Sequence[str]:
        return list(self._topics)

    def racks(self, topic: SubscribedTopic) -> Racks:
        return ()


class Machine:
    """Decisions are applied at once: every record is encoded, decoded and replayed."""

    def __init__(self, topics: FakeTopics, settings: ConsumerSettings | None = None) -> None:
        self.topics = topics
        self.settings = settings or ConsumerSettings(assignment_interval_ms=0)
        self.log: list[CoordinatorRecord] = []
        self.now_ms = 1_000
        self.machine = self._new_machine()

    def _new_machine(self) -> GroupMachine:
        return GroupMachine(
            lambda: GroupSettings(),
            Random(1),
            topics=lambda: self.topics,
            consumer_settings=lambda group_id: self.settings,
        )

    @property
    def now(self) -> Now:
        return Now(self.now_ms, 1_700_000_000_000 + self.now_ms)

    @property
    def group(self) -> ConsumerGroup:
        return self.machine.consumer_group(GROUP)

    def apply(self, decision: Decision[Any]) -> Any:
        for record in decision.records:
            self.machine.timeline.mark(len(self.log))
            encoded = encode_record(record, 0)
            decoded = decode_record(GROUP_RECORDS, encoded.key, encoded.value)
            assert decoded is not None
            self.log.append(decoded)
            if not decision.is_applied:
                self.machine.replay(decoded, None)
        self.machine.timeline.commit(len(self.log))
        return decision.response

    def mark(self) -> None:
        self.machine.timeline.mark(len(self.log))

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> ConsumerGroupHeartbeatResponse:
        self.mark()
        response = self.apply(self.machine.consumer_heartbeat(request, Caller("client", "/host", version), self.now))
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def join_classic(self, request: Any, version: int = 9, token: int = 1) -> Any:
        self.mark()
        return self.apply(self.machine.join(request, Caller("client", "/host", version), Token(token), self.now))

    def wait(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while (next_ms := self.machine.timers.next_deadline_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            key = self.machine.timers.pop_expired(self.now_ms)
            assert key is not None
            self.mark()
            self.apply(self.machine.on_timer(key, self.now))
        self.now_ms = end_ms

    def fail_over(self) -> None:
        """Another coordinator loads the records."""
        self.machine = self._new_machine()
        for offset, record in enumerate(self.log):
            self.machine.timeline.mark(offset)
            self.machine.replay(record, None)
        self.machine.timeline.commit(len(self.log))
        self.machine.on_loaded(self.now)


class Consumer:
    """A member that does what it is told: it revokes what is no longer assigned and reports what it owns."""

    def __init__(self, machine: Machine, name: str, **fields: Any) -> None:
        self.machine = machine
        self.name = name
        self.epoch = 0
        self.owned: dict[str, frozenset[int]] = {}
        self.fields = fields
        self.response = ConsumerGroupHeartbeatResponse()

    def join(self) -> Consumer:
        self.epoch, self.owned = 0, {}
        fields = {"subscribed_topic_names": [], **self.fields}
        if "subscribed_topic_regex" in fields:
            fields.pop("subscribed_topic_names")
        return self.send(rebalance_timeout_ms=60_000, topic_partitions=[], **fields)

    def beat(self, *, report: bool = True) -> Consumer:
        owned = None
        if report:
            owned = [
                ConsumerGroupHeartbeatRequestTopicPartitions(self._id(name), sorted(partitions))
                for name, partitions in self.owned.items()
            ]
        return self.send(topic_partitions=owned, instance_id=self.fields.get("instance_id"))

    def leave(self, epoch: int = -1) -> Consumer:
        return self.send(member_epoch=epoch, instance_id=self.fields.get("instance_id"))

    def send(self, **fields: Any) -> Consumer:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.name, **{"member_epoch": self.epoch, **fields}
        )
        self.response = self.machine.heartbeat(request)
        self.epoch = self.response.member_epoch
        if self.response.assignment is not None:
            self.owned = {
                self._name(topic.topic_id): frozenset(topic.partitions)
                for topic in self.response.assignment.topic_partitions
            }
        return self

    @property
    def partitions(self) -> int:
        return sum(map(len, self.owned.values()))

    def _id(self, name: str) -> Uuid:
        topic = self.machine.topics.by_name(name)
        assert topic is not None
        return topic.topic_id

    def _name(self, topic_id: Uuid) -> str:
        topic = self.machine.topics.by_id(topic_id)
        return str(topic_id) if topic is None else topic.name


def settle(*consumers: Consumer) -> None:
    for _ in range(3):
        for consumer in consumers:
            consumer.beat()


def with_settings(**values: Any) -> ConsumerSettings:
    return msgspec.structs.replace(ConsumerSettings(assignment_interval_ms=0), **values)


def owners(consumers: Mapping[str, Consumer] | Sequence[Consumer]) -> dict[tuple[str, int], str]:
    """The owner of every partition; fails when one has two."""
    found: dict[tuple[str, int], str] = {}
    for consumer in consumers.values() if isinstance(consumers, Mapping) else consumers:
        for topic, partitions in consumer.owned.items():
            for partition in partitions:
                assert (topic, partition) not in found, f"{topic}-{partition} has two owners"
                found[topic, partition] = consumer.name
    return found
