"""A cluster in memory for tests of the controller's machines: decisions are replayed and committed at once."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from strandline.controller.decisions import Decision, Steps, finish
from strandline.controller.leader_eligibility import TopicElectionRules
from strandline.controller.partition_changes import PartitionChanges, elect_leaderless, remove_from_isrs
from strandline.controller.settings import ControllerSettings
from strandline.controller.topics import Topics
from strandline.metadata.features import SUPPORTED_FEATURES
from strandline.metadata.image import Image
from strandline.metadata.values import PartitionInfo
from strandline.metadata.views import View
from strandline.model.ids import Uuid
from strandline.protocol.messages.metadata_records import (
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
)
from strandline.protocol.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from strandline.protocol.types import Message

A = TypeVar("A")


def directory(broker_id: int) -> Uuid:
    return Uuid.of(77, 1000 + broker_id)


class MachineCluster:
    def __init__(self, brokers: int = 3, *, elr: bool = True, settings: ControllerSettings | None = None) -> None:
        self.image = Image()
        self.settings = settings or ControllerSettings(node_id=100, cluster_id="cluster", default_replication_factor=1)
        self.random = Random(1)
        features = [FeatureLevelRecord(name="metadata.version", feature_level=30)]
        if elr:
            features.append(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
        self.write(*features)
        for broker_id in range(1, brokers + 1):
            self.register(broker_id)

    @property
    def view(self) -> View:
        return self.image.latest

    def write(self, *records: Message) -> None:
        if records:
            self.image.replay_batch(self.image.end_offset, records)
            self.image.commit(self.image.end_offset)

    def new_changes(self) -> PartitionChanges:
        return PartitionChanges(self.view, self.settings)

    def decide(self, decided: Decision[A] | Steps[A]) -> A:
        """Returns the response; replays and commits the records."""
        decision = decided if isinstance(decided, Decision) else finish(decided)
        self.write(*decision.records)
        if decision.on_appended is not None:
            decision.on_appended(self.image.end_offset - 1)
        return decision.response

    def register(self, broker_id: int, *, rack: str | None = None, fenced: bool = False) -> None:
        self.write(
            RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=self.image.end_offset,
                incarnation_id=Uuid.of(9, broker_id),
                rack=rack,
                fenced=fenced,
                log_dirs=[directory(broker_id)],
                features=[
                    BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in SUPPORTED_FEATURES.items()
                ],
            )
        )

    def epoch(self, broker_id: int) -> int:
        broker = self.view.broker(broker_id)
        assert broker is not None
        return broker.epoch

    @property
    def rules(self) -> TopicElectionRules:
        return TopicElectionRules(self.view, self.settings)

    def fence(self, broker_id: int) -> None:
        """Changes its partitions first, then the broker."""
        records: list[Message] = []
        for _ in remove_from_isrs(self.view, self.rules, broker_id, records):
            pass
        self.write(*records, self._change(broker_id, fenced=1))

    def unfence(self, broker_id: int) -> None:
        records: list[Message] = [self._change(broker_id, fenced=-1)]
        for _ in elect_leaderless(self.view, self.rules, broker_id, records):
            pass
        self.write(*records)

    def _change(self, broker_id: int, *, fenced: int) -> BrokerRegistrationChangeRecord:
        return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=self.epoch(broker_id), fenced=fenced)

    def configure(self, topic: str, key: str, value: str | None) -> None:
        self.write(ConfigRecord(resource_type=2, resource_name=topic, name=key, value=value))

    @property
    def topics(self) -> Topics:
        return Topics(self.view, self.settings, self.random)

    def topic(self, name: str, *assignment: Sequence[int]) -> Uuid:
        """Creates a topic with these replicas."""
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in enumerate(assignment)
        ]
        response = self.decide(
            self.topics.create(
                CreateTopicsRequest(
                    topics=[
                        CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
                    ]
                )
            )
        )
        assert response.topics[0].error_code == 0, response.topics[0].error_message
        return response.topics[0].topic_id

    def partition(self, topic: str, index: int = 0) -> PartitionInfo:
        known = self.view.topic(topic)
        assert known is not None
        return self.view.partitions(known.id)[index]
