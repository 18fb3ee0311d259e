"""Each transcript in `scenarios/` still says what the coordinator of a consumer group does.

    > topics t=6 u=2              topics are created, or get partitions
    > join a [topics=t,u] [regex=w.*] [instance=i] [assignor=range]
    > beat a [owned=no]           a heartbeat with the partitions that the member owns, or without a word about them
    > subscribe a topics=u
    > away a                      a static member leaves for now
    > leave a
    > commit a t-0 [epoch=1]      whether a commit of the partition would be accepted
    > wait 5s
    > failover
    > group

Output: the records that were written and the response. A member revokes and takes over partitions at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import transcripts
from strandline.coordinator.consumer.commits import check_commit
from strandline.coordinator.consumer.member import MemberState
from strandline.coordinator.records import CoordinatorRecord
from strandline.model.errors import KafkaError
from strandline.protocol.messages import group_records as records
from unit.coordinator.consumer.machine import Consumer, FakeTopics, Machine, with_settings

_SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


class Stage:
    def __init__(self) -> None:
        self.topics = FakeTopics()
        self.machine = Machine(self.topics, with_settings(assignment_interval_ms=1_000))
        self.consumers: dict[str, Consumer] = {}
        self._shown = 0

    def perform(self, line: str) -> list[str]:
        verb, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        try:
            told = getattr(self, f"_{verb}")(names, options)
        except KafkaError as error:
            told = [error.code.name]
        written = [f"log: {self._record(record)}" for record in self.machine.log[self._shown :]]
        self._shown = len(self.machine.log)
        return [*written, *(told or [])]

    def _topics(self, names: list[str], options: dict[str, str]) -> None:
        for name, count in options.items():
            self.topics.set(name, int(count))
        self.machine.machine.on_topics_changed(frozenset(options), self.topics.version)

    def _join(self, names: list[str], options: dict[str, str]) -> list[str]:
        fields: dict[str, Any] = {"subscribed_topic_names": options.get("topics", "").split(",")}
        if "regex" in options:
            fields = {"subscribed_topic_regex": options["regex"]}
        fields["instance_id"] = options.get("instance")
        fields["server_assignor"] = options.get("assignor")
        self.consumers[names[0]] = consumer = Consumer(self.machine, names[0], **fields)
        return [self._response(consumer.join())]

    def _beat(self, names: list[str], options: dict[str, str]) -> list[str]:
        return [self._response(self.consumers[names[0]].beat(report="owned" not in options))]

    def _subscribe(self, names: list[str], options: dict[str, str]) -> list[str]:
        topics = options["topics"].split(",")
        return [self._response(self.consumers[names[0]].send(subscribed_topic_names=topics))]

    def _away(self, names: list[str], options: dict[str, str]) -> list[str]:
        return [self._response(self.consumers[names[0]].leave(-2))]

    def _leave(self, names: list[str], options: dict[str, str]) -> list[str]:
        return [self._response(self.consumers[names[0]].leave())]

    def _commit(self, names: list[str], options: dict[str, str]) -> list[str]:
        consumer = self.consumers[names[0]]
        topic, _, partition = names[1].rpartition("-")
        found = self.topics.by_name(topic)
        assert found is not None
        epoch = int(options.get("epoch", consumer.epoch))
        check_commit(self.machine.group, consumer.name, epoch, [(topic, found.topic_id, int(partition))], 9)
        return ["accepted"]

    def _wait(self, names: list[str], options: dict[str, str]) -> None:
        self.machine.wait(int(names[0].removesuffix("s")) * 1000)

    def _failover(self, names: list[str], options: dict[str, str]) -> None:
        self.machine.fail_over()

    def _group(self, names: list[str], options: dict[str, str]) -> list[str]:
        group = self.machine.group
        line = f"{group.state_name()}, epoch {group.epoch()}, assignment epoch {group.assignment_epoch()}"
        return [line] + [
            f"{member.member_id}: epoch {member.member_epoch}, {member.state.name}, {self._partitions(member.assigned)}"
            for member in sorted(group.members.values(), key=lambda member: member.member_id)
        ]

    def _response(self, consumer: Consumer) -> str:
        response = consumer.response
        said = f"{consumer.name}: epoch {response.member_epoch}"
        if response.assignment is None:
            return said
        assigned = {topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions}
        return f"{said}, assigned {self._partitions(assigned)}"

    def _partitions(self, partitions: Mapping[Any, Any]) -> str:
        named = {}
        for topic_id, indexes in partitions.items():
            topic = self.topics.by_id(topic_id)
            named[str(topic_id) if topic is None else topic.name] = indexes
        parts = [f"{name}-{','.join(map(str, sorted(named[name])))}" for name in sorted(named)]
        return " ".join(parts) or "nothing"

    def _record(self, record: CoordinatorRecord) -> str:
        key, value = record.key, record.value
        member = getattr(key, "member_id", "")
        if isinstance(key, records.ConsumerGroupMetadataKey):
            return f"group epoch {getattr(value, 'epoch', 'deleted')}"
        if isinstance(key, records.ConsumerGroupTargetAssignmentMetadataKey):
            return f"assignment epoch {getattr(value, 'assignment_epoch', 'deleted')}"
        if isinstance(key, records.ConsumerGroupRegularExpressionKey):
            topics = getattr(value, "topics", ["deleted"])
            return f"expression {key.regular_expression}: {' '.join(topics) or 'nothing'}"
        if isinstance(value, records.ConsumerGroupTargetAssignmentMemberValue):
            target = self._partitions({each.topic_id: each.partitions for each in value.topic_partitions})
            return f"target {member}: {target}"
        if isinstance(value, records.ConsumerGroupCurrentMemberAssignmentValue):
            return self._current(member, value)
        if isinstance(value, records.ConsumerGroupMemberMetadataValue):
            subscribed = value.subscribed_topic_regex or ",".join(value.subscribed_topic_names)
            return f"member {member}: {subscribed or 'nothing'}"
        kind = type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
        return f"{kind} {member} deleted"

    def _current(self, member: str, value: records.ConsumerGroupCurrentMemberAssignmentValue) -> str:
        assigned = self._partitions({each.topic_id: each.partitions for each in value.assigned_partitions})
        pending = self._partitions({each.topic_id: each.partitions for each in value.partitions_pending_revocation})
        line = f"current {member}: epoch {value.member_epoch}, {MemberState(value.state).name}, {assigned}"
        return line if pending == "nothing" else f"{line}, to revoke {pending}"


@pytest.mark.parametrize("path", _SCENARIOS, ids=[path.stem for path in _SCENARIOS])
def test_a_transcript_says_what_happens(path: Path, rewrite: bool) -> None:
    transcripts.check(path, transcripts.replay(path.read_text(), Stage().perform), rewrite=rewrite)
