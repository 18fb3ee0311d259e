"""The metadata model, and the checkers that are notified of its partition changes."""

from __future__ import annotations

import pytest

from strandline.model.ids import Uuid
from strandline.protocol.messages import metadata_records as kinds
from strandline.protocol.types import Message
from strandline.raft.disk.batches import MetadataBatch
from strandline.simulation.cluster.checkers.image_replay import ImageMatchesRecords
from strandline.simulation.cluster.checkers.partition_changes import NoUncleanElections, ReassignmentsCompleteInSync
from strandline.simulation.cluster.checkers.producer_ids import ProducerIdBlocksAreUnique
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.metadata_model import MetadataModel
from strandline.simulation.cluster.violation import Violation

TOPIC = Uuid.of(1, 1)
KEY = (TOPIC, 0)


def batch(*records: Message, base_offset: int = 0) -> MetadataBatch:
    return MetadataBatch(base_offset, base_offset + len(records), 1, 0, 0, False, records)


def replayed(*records: Message) -> MetadataModel:
    """The records of topic t with one partition (leader 1, ISR 1 and 2, replica 3 out of sync), then `records`."""
    model = MetadataModel()
    NoUncleanElections(model, {})
    ReassignmentsCompleteInSync(model)
    partition = kinds.PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=[1, 2, 3], isr=[1, 2], leader=1)
    model.replay(batch(kinds.TopicRecord(name="t", topic_id=TOPIC), partition, *records))
    return model


def change(
    *,
    leader: int = -2,
    isr: list[int] | None = None,
    replicas: list[int] | None = None,
    adding: list[int] | None = None,
    elr: list[int] | None = None,
    last_known_elr: list[int] | None = None,
) -> kinds.PartitionChangeRecord:
    return kinds.PartitionChangeRecord(
        partition_id=0,
        topic_id=TOPIC,
        leader=leader,
        isr=isr,
        replicas=replicas,
        adding_replicas=adding,
        eligible_leader_replicas=elr,
        last_known_elr=last_known_elr,
    )


def test_a_member_of_isr_or_elr_may_be_elected() -> None:
    model = replayed(change(leader=2, isr=[2], elr=[1]), change(leader=1, isr=[1], elr=[]))
    assert model.partitions[KEY].leader == 1


def test_a_replica_outside_isr_and_elr_may_not_be_elected() -> None:
    with pytest.raises(Violation, match=r"I-6.*neither in the ISR nor in the ELR"):
        replayed(change(leader=3, isr=[3]))


def test_a_config_may_allow_unclean_elections() -> None:
    allowed = kinds.ConfigRecord(
        resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true"
    )
    assert replayed(allowed, change(leader=3, isr=[3])).partitions[KEY].leader == 3


def test_the_last_known_leader_may_be_elected() -> None:
    model = replayed(change(leader=-1, isr=[], last_known_elr=[3]), change(leader=3, isr=[3], last_known_elr=[]))
    assert model.partitions[KEY].leader == 3


def test_two_changes_of_a_partition_in_one_batch_are_checked_one_by_one() -> None:
    assert replayed(change(isr=[1, 2, 3]), change(leader=3, isr=[3])).partitions[KEY].leader == 3


def test_a_reassignment_must_not_complete_before_its_added_replicas_are_in_sync() -> None:
    start = change(replicas=[1, 2, 3, 4, 5], adding=[4, 5])
    with pytest.raises(Violation, match=r"I-6.*added replicas \[4, 5\]"):
        replayed(start, change(isr=[1, 2, 4], adding=[]))


def test_a_reassignment_may_be_cancelled() -> None:
    start, cancel = change(replicas=[1, 2, 3, 4], adding=[4]), change(replicas=[1, 2, 3], adding=[])
    assert replayed(start, cancel).partitions[KEY].replicas == (1, 2, 3)


def test_an_aborted_transaction_is_reverted() -> None:
    removed = kinds.RemoveTopicRecord(topic_id=TOPIC)
    model = replayed(kinds.BeginTransactionRecord(), removed)
    assert model.transaction_open and not model.topics
    model.replay(batch(kinds.AbortTransactionRecord()))
    assert model.topics == {TOPIC: "t"} and KEY in model.partitions


def test_a_clear_elr_record_empties_the_elr() -> None:
    model = replayed(change(isr=[1], elr=[2]), kinds.ClearElrRecord(topic_name="t"))
    assert model.partitions[KEY].elr == ()


class MetadataWithoutFiles(CommittedMetadata):
    def commit(self, *records: Message) -> None:
        offset = self.image.end_offset
        self.image.replay_batch(offset, list(records))
        self.image.commit(offset + len(records))
        self.notify(batch(*records, base_offset=offset))


def test_configs_that_differ_from_the_committed_records_are_found() -> None:
    metadata, model = MetadataWithoutFiles(), MetadataModel()
    metadata.subscribe(model.replay)
    ImageMatchesRecords(metadata, model)
    config = kinds.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1")
    metadata.commit(kinds.TopicRecord(name="t", topic_id=TOPIC), config)
    metadata.commit(kinds.RemoveTopicRecord(topic_id=TOPIC))
    metadata.image.replay_batch(metadata.image.end_offset, [config])
    with pytest.raises(Violation, match=r"I-4.*the configs are .*retention\.ms.* should be \{\}"):
        metadata.commit(kinds.NoOpRecord())


def test_overlapping_blocks_of_producer_ids_are_found() -> None:
    metadata = MetadataWithoutFiles()
    ProducerIdBlocksAreUnique(metadata)
    metadata.commit(kinds.ProducerIdsRecord(broker_id=1, next_producer_id=1000))
    metadata.commit(kinds.ProducerIdsRecord(broker_id=2, next_producer_id=2000))
    with pytest.raises(Violation, match=r"I-7.*below 2999"):
        metadata.commit(kinds.ProducerIdsRecord(broker_id=1, next_producer_id=2999))
