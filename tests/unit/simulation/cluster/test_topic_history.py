"""What clients were told, against what is committed."""

from __future__ import annotations

import pytest

from strandline.model.ids import Uuid
from strandline.protocol.messages.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.topic_history import History, TopicState
from strandline.simulation.cluster.violation import Violation

ID, OTHER = Uuid.of(1, 1), Uuid.of(2, 2)


class Cluster:
    """A ledger that is told records one by one."""

    def __init__(self) -> None:
        self.ledger = CommittedMetadata()
        self.history = History(self.ledger)
        self._offset = 0

    def commit(self, *records: TopicRecord | PartitionRecord | ConfigRecord | RemoveTopicRecord) -> None:
        self.ledger.image.replay_batch(self._offset, records)
        self._offset += len(records)
        self.ledger.image.commit(self._offset)

    def topic(self, name: str = "a", topic_id: Uuid = ID) -> None:
        partition = PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1)
        self.commit(TopicRecord(name=name, topic_id=topic_id), partition)


def test_what_is_acknowledged_must_be_committed_at_that_moment() -> None:
    cluster = Cluster()
    cluster.history.began("a", TopicState(1))
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
    cluster.history.began("a", TopicState(1))
    with pytest.raises(Violation):
        cluster.history.acked("a", TopicState(1, id=ID))


def test_without_an_answer_both_ends_are_possible_and_no_third() -> None:
    cluster = Cluster()
    cluster.history.began("a", TopicState(1))
    cluster.history.check()
    cluster.topic()
    cluster.history.check()
    cluster.commit(ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="1"))
    with pytest.raises(Violation, match="at the end"):
        cluster.history.check()


def test_what_was_refused_is_as_before() -> None:
    cluster = Cluster()
    cluster.history.began("a", TopicState(1))
    cluster.history.refused("a", None)
    cluster.topic()
    with pytest.raises(Violation):
        cluster.history.check()


def test_what_was_deleted_stays_away() -> None:
    cluster = Cluster()
    cluster.topic()
    cluster.history.began("a", None)
    with pytest.raises(Violation):
        cluster.history.acked("a", None)
    cluster.commit(RemoveTopicRecord(topic_id=ID))
    cluster.history.acked("a", None)
    cluster.topic(topic_id=OTHER)
    with pytest.raises(Violation):
        cluster.history.check()


def test_what_nobody_asked_for_is_not_there() -> None:
    cluster = Cluster()
    cluster.topic("surprise")
    with pytest.raises(Violation, match="nobody created it"):
        cluster.history.check()


def test_a_producer_id_is_given_once() -> None:
    history = Cluster().history
    history.producer_id(7)
    history.producer_id(8)
    with pytest.raises(Violation, match="twice"):
        history.producer_id(7)
