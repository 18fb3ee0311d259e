"""Acknowledged changes of topics, compared with the committed metadata."""

from __future__ import annotations

import pytest

from strandline.model.ids import Uuid
from strandline.protocol.messages.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.topic_history import TopicHistory, TopicState
from strandline.simulation.cluster.violation import Violation

ID, OTHER = Uuid.of(1, 1), Uuid.of(2, 2)


class Cluster:
    """Committed metadata that is given records directly."""

    def __init__(self) -> None:
        self.metadata = CommittedMetadata()
        self.history = TopicHistory(self.metadata)
        self._offset = 0

    def commit(self, *records: TopicRecord | PartitionRecord | ConfigRecord | RemoveTopicRecord) -> None:
        self.metadata.image.replay_batch(self._offset, records)
        self._offset += len(records)
        self.metadata.image.commit(self._offset)

    def topic(self, name: str = "a", topic_id: Uuid = ID) -> None:
        partition = PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1)
        self.commit(TopicRecord(name=name, topic_id=topic_id), partition)


def test_an_acknowledged_change_must_be_committed() -> None:
    cluster = Cluster()
    cluster.history.requested("a", TopicState(1))
    with pytest.raises(
        Violation, match=r"history: topic a is acknowledged: expected 1 partitions.*committed is nothing"
    ):
        cluster.history.acked("a", TopicState(1, id=ID))
    cluster.topic()
    cluster.history.acked("a", TopicState(1, id=ID))
    cluster.history.check()


def test_a_topic_of_another_id_is_another_topic() -> None:
    cluster = Cluster()
    cluster.topic(topic_id=OTHER)
    cluster.history.requested("a", TopicState(1))
    with pytest.raises(Violation):
        cluster.history.acked("a", TopicState(1, id=ID))


def test_a_change_of_unknown_outcome_allows_two_states() -> None:
    cluster = Cluster()
    cluster.history.requested("a", TopicState(1))
    cluster.history.check()
    cluster.topic()
    cluster.history.check()
    cluster.commit(ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="1"))
    with pytest.raises(Violation, match="at the end"):
        cluster.history.check()


def test_a_rejected_change_must_not_happen() -> None:
    cluster = Cluster()
    cluster.history.requested("a", TopicState(1))
    cluster.history.rejected("a", None)
    cluster.topic()
    with pytest.raises(Violation):
        cluster.history.check()


def test_a_deleted_topic_must_not_reappear() -> None:
    cluster = Cluster()
    cluster.topic()
    cluster.history.requested("a", None)
    with pytest.raises(Violation):
        cluster.history.acked("a", None)
    cluster.commit(RemoveTopicRecord(topic_id=ID))
    cluster.history.acked("a", None)
    cluster.topic(topic_id=OTHER)
    with pytest.raises(Violation):
        cluster.history.check()


def test_a_topic_that_was_never_requested_must_not_exist() -> None:
    cluster = Cluster()
    cluster.topic("surprise")
    with pytest.raises(Violation, match="was never requested"):
        cluster.history.check()


def test_a_producer_id_is_allocated_once() -> None:
    history = Cluster().history
    history.producer_id(7)
    history.producer_id(8)
    with pytest.raises(Violation, match="twice"):
        history.producer_id(7)
