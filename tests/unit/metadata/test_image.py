"""Replay, commit, revert, transactions and snapshots, for every record type."""

from __future__ import annotations

import random

import pytest

from strandline.metadata.image import Image
from strandline.metadata.values import PartitionInfo
from strandline.model.errors import NodeFault
from strandline.model.ids import DIRECTORY_MIGRATING, Uuid
from strandline.protocol.messages.control_records import SnapshotFooterRecord
from strandline.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from strandline.protocol.metadata_codec import record_types
from strandline.protocol.types import Message
from strandline.raft.disk.batches import encode_data_batch, read_batches

TOPIC = Uuid.of(1, 100)
OTHER = Uuid.of(1, 101)


def topic(name: str = "t", topic_id: Uuid = TOPIC, partitions: int = 2) -> list[Message]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[1, 2],
                isr=[1, 2],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
            )
            for index in range(partitions)
        ),
    ]


def committed_image(*batches: list[Message]) -> Image:
    image = Image()
    for batch in batches:
        image.replay_batch(image.end_offset, batch)
        image.commit(image.end_offset)
    return image


def contents(image: Image) -> list[str]:
    return sorted(map(repr, image.records(image.committed)))


def test_every_record_type_of_kafka_is_replayed() -> None:
    image = Image()
    assert set(record_types().values()) == set(image._replays)


def test_an_unknown_record_stops_the_node() -> None:
    with pytest.raises(NodeFault, match="SnapshotFooterRecord at offset 3"):
        Image().replay(SnapshotFooterRecord(), 3)


def test_the_latest_view_runs_ahead_of_the_committed_one() -> None:
    image = committed_image([FeatureLevelRecord(name="metadata.version", feature_level=30)])
    image.replay_batch(1, topic())
    assert image.latest.topic("t") is not None
    assert image.committed.topic("t") is None
    assert image.committed.topics() == []
    assert (image.latest.offset, image.committed.offset) == (4, 1)
    image.commit(4)
    assert [(t.name, t.partition_count) for t in image.committed.topics()] == [("t", 2)]
    assert image.committed.topic_by_id(TOPIC) == image.committed.topic("t")
    assert [p.leader for p in image.committed.partitions(TOPIC)] == [1, 1]


def test_losing_the_leadership_reverts_exactly_the_uncommitted_records() -> None:
    image = committed_image(topic("kept"))
    before = contents(image)
    image.replay_batch(3, [ConfigRecord(resource_type=2, resource_name="kept", name="k", value="v")])
    image.replay_batch(4, [RemoveTopicRecord(topic_id=TOPIC)])
    image.replay_batch(5, topic("new", OTHER))
    image.revert_to_committed(3)
    assert contents(image) == before
    assert sorted(map(repr, image.records(image.latest))) == before
    image.replay_batch(3, topic("other", OTHER))
    image.commit(6)
    assert [t.name for t in image.committed.topics()] == ["kept", "other"]


def test_deleting_a_topic_removes_its_partitions_and_configs_and_frees_its_name() -> None:
    image = committed_image(
        [*topic(), ConfigRecord(resource_type=2, resource_name="t", name="k", value="v")],
        [RemoveTopicRecord(topic_id=TOPIC)],
    )
    assert contents(image) == []
    assert image.committed.topic_configs("t") == {}
    assert image.committed.partition(TOPIC, 0) is None
    image.replay_batch(image.end_offset, topic("t", OTHER, 1))
    image.commit(image.end_offset)
    found = image.committed.topic("t")
    assert found is not None
    assert (found.id, found.partition_count) == (OTHER, 1)


def test_a_partition_change_raises_the_partition_epoch_and_one_with_a_leader_the_leader_epoch_too() -> None:
    image = committed_image(topic())
    image.replay_batch(3, [PartitionChangeRecord(topic_id=TOPIC, partition_id=0, isr=[1])])
    image.replay_batch(4, [PartitionChangeRecord(topic_id=TOPIC, partition_id=1, leader=1)])
    first, second = image.latest.partitions(TOPIC)
    assert (first.isr, first.leader_epoch, first.partition_epoch) == ((1,), 0, 1)
    assert (second.leader, second.leader_epoch, second.partition_epoch) == (1, 1, 1)


def test_reassigned_replicas_keep_their_directories_and_new_ones_have_none_yet() -> None:
    first, second = Uuid.of(5, 1001), Uuid.of(5, 1002)
    image = committed_image(
        [
            TopicRecord(name="t", topic_id=TOPIC),
            PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=[1, 2], isr=[1], directories=[first, second]),
        ],
        [PartitionChangeRecord(topic_id=TOPIC, partition_id=0, replicas=[2, 3], adding_replicas=[3])],
    )
    partition = image.committed.partition(TOPIC, 0)
    assert partition is not None
    assert partition.directories == (second, DIRECTORY_MIGRATING)
    assert partition.directory_of(2) == second
    assert partition.directory_of(9) is None
    assert partition.adding == (3,)


def test_eligible_leaders_are_cleared_for_one_topic_or_for_all() -> None:
    def with_elr(topic_id: Uuid) -> list[Message]:
        return [
            PartitionChangeRecord(
                topic_id=topic_id, partition_id=0, isr=[], eligible_leader_replicas=[1, 2], last_known_elr=[1]
            )
        ]

    image = committed_image(
        topic(), topic("u", OTHER), with_elr(TOPIC), with_elr(OTHER), [ClearElrRecord(topic_name="t")]
    )

    def elr(topic_id: Uuid) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        partition = image.latest.partition(topic_id, 0)
        assert isinstance(partition, PartitionInfo)
        return partition.elr, partition.last_known_elr, partition.partition_epoch

    assert (elr(TOPIC), elr(OTHER)) == (((), (), 2), ((1, 2), (1,), 1))
    image.replay_batch(image.end_offset, [ClearElrRecord(topic_name="")])
    assert (elr(TOPIC), elr(OTHER)) == (((), (), 2), ((), (), 2)), "the epoch rises only where the ELR was not empty"


def registered(epoch: int = 7) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id=1, broker_epoch=epoch, incarnation_id=Uuid.of(2, epoch), rack=None)


def test_a_broker_is_fenced_unfenced_and_unregistered_by_old_and_new_records() -> None:
    image = committed_image([registered()])

    def state() -> tuple[bool, bool]:
        broker = image.latest.broker(1)
        assert broker is not None
        return broker.fenced, broker.in_controlled_shutdown

    assert state() == (True, False)
    image.replay_batch(1, [UnfenceBrokerRecord(id=1, epoch=7)])
    assert state() == (False, False)
    image.replay_batch(2, [FenceBrokerRecord(id=1, epoch=7)])
    assert state() == (True, False)
    image.replay_batch(3, [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1)])
    assert state() == (False, False)
    image.replay_batch(4, [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1)])
    assert state() == (False, True)
    image.replay_batch(5, [registered(epoch=9)])
    assert state() == (True, False)
    image.replay_batch(6, [UnregisterBrokerRecord(broker_id=1, broker_epoch=9)])
    assert image.latest.broker(1) is None


@pytest.mark.parametrize(
    "record",
    [
        UnfenceBrokerRecord(id=1, epoch=6),
        UnregisterBrokerRecord(broker_id=2, broker_epoch=7),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=8, fenced=1),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=3),
        PartitionRecord(topic_id=OTHER, partition_id=0),
        PartitionChangeRecord(topic_id=TOPIC, partition_id=9),
        RemoveTopicRecord(topic_id=OTHER),
        TopicRecord(name="t", topic_id=OTHER),
        EndTransactionRecord(),
        AbortTransactionRecord(),
        ClearElrRecord(topic_name="nowhere"),
    ],
)
def test_a_record_that_contradicts_the_image_stops_the_node(record: Message) -> None:
    image = committed_image([registered()], topic())
    with pytest.raises(NodeFault):
        image.replay(record, image.end_offset)


def test_records_of_a_transaction_are_hidden_until_its_end_is_committed() -> None:
    image = committed_image(topic("before"))
    image.replay_batch(3, [BeginTransactionRecord(), *topic("inside", OTHER)])
    assert image.commit(7) == []
    assert image.transaction_open
    assert image.latest.topic("inside") is not None
    assert image.committed.topic("inside") is None
    assert image.committed.offset == 3
    image.replay_batch(7, [ConfigRecord(resource_type=2, resource_name="inside", name="k", value="v")])
    image.replay_batch(8, [EndTransactionRecord(), NoOpRecord()])
    image.commit(8)
    assert image.committed.topic("inside") is None
    touched = image.commit(10)
    assert image.committed.topic("inside") is not None
    assert image.committed.offset == 10
    assert any(entry.key == "inside" for entry in touched)


def test_a_transaction_may_begin_in_the_middle_of_a_batch() -> None:
    image = committed_image()
    image.replay_batch(0, [*topic("before"), BeginTransactionRecord(), *topic("inside", OTHER)])
    image.commit(7)
    assert [t.name for t in image.committed.topics()] == ["before"]
    assert image.committed.offset == 3


def test_an_aborted_transaction_is_reverted() -> None:
    image = committed_image([*topic("old"), ConfigRecord(resource_type=2, resource_name="old", name="k", value="1")])
    before = contents(image)
    image.replay_batch(
        4,
        [
            BeginTransactionRecord(),
            ConfigRecord(resource_type=2, resource_name="old", name="k", value="2"),
            RemoveTopicRecord(topic_id=TOPIC),
            *topic("new", OTHER),
        ],
    )
    image.commit(10)
    image.replay_batch(10, [AbortTransactionRecord(reason="no")])
    assert sorted(map(repr, image.records(image.latest))) == before
    assert contents(image) == before
    image.commit(11)
    assert contents(image) == before
    assert not image.transaction_open


def test_an_uncommitted_abort_is_itself_reverted() -> None:
    image = committed_image(topic("old"))
    image.replay_batch(3, [BeginTransactionRecord(), *topic("new", OTHER)])
    image.commit(7)
    image.replay_batch(7, [AbortTransactionRecord()])
    image.revert_to_committed(7)
    assert image.transaction_open
    assert image.latest.topic("new") is not None
    image.replay_batch(7, [EndTransactionRecord()])
    image.commit(8)
    assert image.committed.topic("new") is not None


def test_a_pinned_view_does_not_change_with_later_commits() -> None:
    image = committed_image(topic("a"))
    view = image.pin()
    reading = image.records(view)
    first = next(reading)
    image.replay_batch(3, [RemoveTopicRecord(topic_id=TOPIC)])
    image.commit(4)
    image.replay_batch(4, topic("b", OTHER))
    image.commit(7)
    rest = list(reading)
    assert sorted(map(repr, [first, *rest])) == sorted(map(repr, committed_image(topic("a")).records(view)))
    assert [t.name for t in view.topics()] == ["a"]
    image.unpin(view)
    assert [t.name for t in image.committed.topics()] == ["b"]


def busy_image(seed: int) -> Image:
    """A few hundred random but legal batches."""
    draw = random.Random(seed)
    image = Image()
    image.replay_batch(0, [FeatureLevelRecord(name="metadata.version", feature_level=30), registered()])
    names = [f"topic.{n}" for n in range(8)]
    for _ in range(200):
        name = draw.choice(names)
        known = image.latest.topic(name)
        batch: list[Message]
        if known is None:
            batch = topic(name, Uuid.of(draw.getrandbits(60), draw.getrandbits(60)), draw.randrange(1, 4))
        elif draw.random() < 0.2:
            batch = [RemoveTopicRecord(topic_id=known.id)]
        elif draw.random() < 0.5:
            value = draw.choice(["1", "2", None])
            batch = [ConfigRecord(resource_type=2, resource_name=name, name=draw.choice("xyz"), value=value)]
        else:
            index = draw.randrange(known.partition_count)
            batch = [PartitionChangeRecord(topic_id=known.id, partition_id=index, leader=draw.choice([1, 2, -1]))]
        image.replay_batch(image.end_offset, batch)
        if draw.random() < 0.5:
            image.commit(image.end_offset)
    image.commit(image.end_offset)
    return image


@pytest.mark.parametrize("seed", range(5))
def test_a_snapshot_rebuilds_the_image_it_was_taken_from(seed: int) -> None:
    image = busy_image(seed)
    again = Image()
    again.load(image.records(image.committed), image.end_offset)
    assert contents(again) == contents(image)
    assert again.committed.offset == image.committed.offset == again.end_offset


@pytest.mark.parametrize("seed", range(5))
def test_a_loaded_snapshot_replaces_the_image_and_returns_what_changed(seed: int) -> None:
    image, other = busy_image(seed), busy_image(seed + 100)
    before = {t.name: t for t in image.committed.topics()}
    target = max(image.end_offset, other.end_offset) + 10
    touched = image.load(other.records(other.committed), target)
    assert contents(image) == contents(other)
    assert image.committed.offset == target
    topics = {entry.key for entry in touched if entry.map is image.topics.topics}
    after = {t.name: t for t in image.committed.topics()}
    changed = [*(before.items() ^ after.items())]
    assert topics == {value.id for _, value in changed}


def test_an_older_snapshot_is_rejected() -> None:
    image = committed_image(topic())
    with pytest.raises(NodeFault, match="older than the committed offset"):
        image.load(iter([]), 2)


def test_topics_whose_names_collide_in_metrics_are_found() -> None:
    image = committed_image(topic("a.b"), topic("plain", OTHER))
    assert image.latest.topics_looking_like("a_b") == ("a.b",)
    assert image.latest.topics_looking_like("plain") == ()
    image.replay_batch(image.end_offset, [RemoveTopicRecord(topic_id=TOPIC)])
    assert image.latest.topics_looking_like("a_b") == ()


def test_sorted_lists_are_cached_until_an_entry_changes() -> None:
    image = committed_image(topic("b"), topic("a", OTHER))
    first = image.committed.topics()
    image.replay_batch(image.end_offset, [NoOpRecord()])
    image.commit(image.end_offset)
    assert image.committed.topics() is first
    image.replay_batch(image.end_offset, [RemoveTopicRecord(topic_id=TOPIC)])
    assert [t.name for t in image.committed.topics()] == ["a", "b"]
    image.commit(image.end_offset)
    assert [t.name for t in image.committed.topics()] == ["a"]


@pytest.mark.parametrize("level", [7, 17, 23, 30])
def test_a_snapshot_can_be_written_at_every_metadata_version(level: int) -> None:
    image = committed_image([FeatureLevelRecord(name="metadata.version", feature_level=level), registered()], topic())
    records = list(image.records(image.committed))
    batch = encode_data_batch(records, base_offset=0, epoch=1, timestamp=1, metadata_version=level)
    (read,) = read_batches(batch, "here")
    again = Image()
    again.load(iter(read.records), image.end_offset)
    assert contents(again) == contents(image)
