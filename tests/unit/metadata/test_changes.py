"""What a commit changes for broker 1."""

from __future__ import annotations

from strandline.metadata.changes import Changes, PartitionDelta, changes_in_steps, changes_of, initial_changes, portions
from strandline.metadata.image import Image
from strandline.metadata.values import ConfigResource
from strandline.model.ids import Uuid
from strandline.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from strandline.protocol.types import Message

ME = 1
TOPIC, OTHER = Uuid.of(1, 100), Uuid.of(1, 101)


def topic(name: str, topic_id: Uuid, *replicas: list[int]) -> list[Message]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=those,
                isr=those,
                leader=those[0],
                leader_epoch=0,
                partition_epoch=0,
            )
            for index, those in enumerate(replicas)
        ),
    ]


def step(image: Image, *records: Message) -> Changes:
    image.replay_batch(image.end_offset, records)
    return changes_of(image, image.commit(image.end_offset), ME)


def names(steps: tuple[PartitionDelta, ...]) -> list[tuple[str, int]]:
    return [(step.topic, step.partition) for step in steps]


def with_topic() -> Image:
    image = Image()
    step(image, *topic("t", TOPIC, [1, 2], [2, 3], [2, 1]))
    return image


def test_a_new_topic_is_hosted_where_this_broker_has_a_replica() -> None:
    changes = step(Image(), *topic("t", TOPIC, [1, 2], [2, 3], [2, 1]))
    assert names(changes.hosted) == [("t", 0), ("t", 2)]
    assert changes.hosted[0].new is not None
    assert changes.hosted[0].new.leader == 1
    assert [created.partition_count for created in changes.topics_created] == [3]
    assert changes.topics == ("t",)
    assert not changes.is_initial


def test_a_new_leader_epoch_is_leadership_and_a_new_isr_alone_is_membership() -> None:
    image = with_topic()
    changes = step(
        image,
        PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=2),
        PartitionChangeRecord(topic_id=TOPIC, partition_id=1, leader=3),
        PartitionChangeRecord(topic_id=TOPIC, partition_id=2, isr=[2]),
    )
    assert names(changes.leadership) == [("t", 0)]
    assert names(changes.membership) == [("t", 2)]
    assert changes.hosted == changes.dropped == ()
    assert changes.topics == ("t",)
    assert changes.topics_created == ()


def test_several_records_of_a_partition_are_one_change_from_its_first_state_to_its_last() -> None:
    image = with_topic()
    changes = step(
        image,
        PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=2),
        PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=1),
    )
    assert [(s.old.leader_epoch, s.new.leader_epoch) for s in changes.leadership if s.old and s.new] == [(0, 2)]


def test_a_removed_replica_is_dropped_and_an_added_one_is_hosted() -> None:
    image = with_topic()
    changes = step(
        image,
        PartitionChangeRecord(topic_id=TOPIC, partition_id=0, replicas=[2, 3], isr=[2, 3], leader=2),
        PartitionChangeRecord(topic_id=TOPIC, partition_id=1, replicas=[1, 3]),
    )
    assert names(changes.dropped) == [("t", 0)]
    assert changes.dropped[0].new is not None
    assert names(changes.hosted) == [("t", 1)]


def test_a_deleted_topic_is_reported_with_its_id_and_its_replicas_are_dropped() -> None:
    image = with_topic()
    changes = step(image, RemoveTopicRecord(topic_id=TOPIC))
    assert names(changes.dropped) == [("t", 0), ("t", 2)]
    assert all(dropped.new is None and dropped.topic_id == TOPIC for dropped in changes.dropped)
    assert [(topic.name, topic.id) for topic in changes.topics_deleted] == [("t", TOPIC)]
    assert changes.topics == ()


def test_a_topic_deleted_and_created_again_in_one_commit_is_two_topics() -> None:
    image = with_topic()
    changes = step(image, RemoveTopicRecord(topic_id=TOPIC), *topic("t", OTHER, [1]))
    assert [topic.id for topic in changes.topics_deleted] == [TOPIC]
    assert [made.id for made in changes.topics_created] == [OTHER]
    assert [s.topic_id for s in changes.hosted] == [OTHER]
    assert {s.topic_id for s in changes.dropped} == {TOPIC}


def test_a_topic_created_and_deleted_in_one_commit_is_not_reported() -> None:
    changes = step(Image(), *topic("t", TOPIC, [1]), RemoveTopicRecord(topic_id=TOPIC))
    assert changes == Changes(offset=3)


def test_configs_are_reported_by_the_resource_they_belong_to() -> None:
    image = with_topic()
    changes = step(
        image,
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),
        ConfigRecord(resource_type=4, resource_name="1", name="log.retention.ms", value="1"),
        ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="1"),
        ConfigRecord(resource_type=4, resource_name="2", name="log.retention.ms", value="1"),
        ConfigRecord(resource_type=32, resource_name="g", name="consumer.session.timeout.ms", value="1"),
    )
    assert changes.topic_configs == ("t",)
    assert changes.broker_config
    assert changes.default_broker_config
    assert changes.other_configs == (ConfigResource(4, "2"), ConfigResource(32, "g"))
    assert not (changes.hosted or changes.leadership or changes.membership or changes.dropped)


def test_brokers_controllers_features_and_acls_are_reported() -> None:
    image = Image()
    changes = step(
        image,
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        RegisterBrokerRecord(broker_id=2, broker_epoch=1, rack=None),
        AccessControlEntryRecord(id=OTHER),
    )
    assert changes.features == ("metadata.version",)
    assert changes.brokers == (2,)
    assert changes.acls
    assert not (changes.quotas or changes.scram or changes.tokens)
    changes = step(image, BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=1, fenced=-1))
    assert changes.brokers == (2,)


def test_a_no_op_changes_only_the_offset() -> None:
    image = with_topic()
    assert step(image, NoOpRecord()) == Changes(offset=5)


def test_the_initial_changes_contain_the_whole_image() -> None:
    image = with_topic()
    step(image, ConfigRecord(resource_type=2, resource_name="t", name="k", value="1"))
    image.replay_batch(image.end_offset, topic("uncommitted", OTHER, [1]))
    changes = initial_changes(image, ME)
    assert changes.is_initial
    assert names(changes.hosted) == [("t", 0), ("t", 2)]
    assert changes.topics == ("t",)
    assert changes.topic_configs == ("t",)


def test_a_loaded_snapshot_is_reported_as_its_difference() -> None:
    image, other = with_topic(), Image()
    step(other, *topic("u", OTHER, [1]))
    touched = image.load(other.records(other.committed), 50)
    changes = changes_of(image, touched, ME)
    assert names(changes.hosted) == [("u", 0)]
    assert names(changes.dropped) == [("t", 0), ("t", 2)]
    assert changes.offset == 50


def test_a_large_commit_yields_and_a_small_one_does_not() -> None:
    image = Image()
    image.replay_batch(0, topic("large", TOPIC, *[[1, 2]] * 3000))
    yields, touched = 0, image.commit(image.end_offset)
    steps = changes_in_steps(image, touched, ME)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            assert end.value == changes_of(image, touched, ME)
            break
        yields += 1
    assert yields >= 10
    image.replay_batch(image.end_offset, topic("small", OTHER, [1, 2]))
    assert list(changes_in_steps(image, image.commit(image.end_offset), ME)) == []


def test_large_changes_are_split_completely_with_dropped_partitions_first() -> None:
    image = Image()
    step(image, *topic("t", TOPIC, *[[1, 2]] * 1000))
    again = topic("t", OTHER, *[[1, 3]] * 700)
    default = ConfigRecord(resource_type=4, resource_name="", name="n", value="v")
    changes = step(image, RemoveTopicRecord(topic_id=TOPIC), *again, default)
    parts = list(portions(changes))
    assert all(len(part.dropped) + len(part.hosted) <= 200 for part in parts)
    assert sum((part.dropped for part in parts), ()) == changes.dropped and len(changes.dropped) == 1000
    assert sum((part.hosted for part in parts), ()) == changes.hosted and len(changes.hosted) == 700
    assert [bool(part.dropped) for part in parts] == sorted([bool(part.dropped) for part in parts], reverse=True)
    assert [part.default_broker_config for part in parts] == [True] + [False] * (len(parts) - 1)
    assert sum((part.topics_created for part in parts), ()) == changes.topics_created != ()
    assert sum((part.topics_deleted for part in parts), ()) == changes.topics_deleted != ()
    assert {part.offset for part in parts} == {changes.offset}


def test_small_changes_are_one_portion() -> None:
    changes = step(Image(), *topic("t", TOPIC, [1, 2]))
    assert list(portions(changes)) == [changes]
