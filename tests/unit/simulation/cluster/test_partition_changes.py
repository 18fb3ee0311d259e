"""Who takes over a partition, told record by record: the scribe, and the checkers that listen to it."""

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


def told(*records: Message) -> MetadataModel:
    """Of topic t with one partition: 1 leads, 2 is in sync, 3 is not."""
    scribe = MetadataModel()
    NoUncleanElections(scribe, {})
    ReassignmentsCompleteInSync(scribe)
    partition = kinds.PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=[1, 2, 3], isr=[1, 2], leader=1)
    scribe.replay(batch(kinds.TopicRecord(name="t", topic_id=TOPIC), partition, *records))
    return scribe


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


def test_one_that_is_in_sync_or_eligible_may_lead() -> None:
    scribe = told(change(leader=2, isr=[2], elr=[1]), change(leader=1, isr=[1], elr=[]))
    assert scribe.partitions[KEY].leader == 1


def test_one_that_was_not_in_sync_may_not() -> None:
    with pytest.raises(Violation, match=r"I-6.*neither in sync nor eligible"):
        told(change(leader=3, isr=[3]))


def test_unless_a_setting_allows_it() -> None:
    allowed = kinds.ConfigRecord(
        resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true"
    )
    assert told(allowed, change(leader=3, isr=[3])).partitions[KEY].leader == 3


def test_whoever_led_last_may_lead_again() -> None:
    scribe = told(change(leader=-1, isr=[], last_known_elr=[3]), change(leader=3, isr=[3], last_known_elr=[]))
    assert scribe.partitions[KEY].leader == 3


def test_two_changes_in_one_batch_are_two_changes() -> None:
    assert told(change(isr=[1, 2, 3]), change(leader=3, isr=[3])).partitions[KEY].leader == 3


def test_a_reassignment_that_ends_before_those_it_adds_are_in_sync() -> None:
    begins = change(replicas=[1, 2, 3, 4, 5], adding=[4, 5])
    with pytest.raises(Violation, match=r"I-6.*those it added \[4, 5\]"):
        told(begins, change(isr=[1, 2, 4], adding=[]))


def test_a_reassignment_that_is_taken_back_is_no_end() -> None:
    begins, cancels = change(replicas=[1, 2, 3, 4], adding=[4]), change(replicas=[1, 2, 3], adding=[])
    assert told(begins, cancels).partitions[KEY].replicas == (1, 2, 3)


def test_what_is_aborted_never_was() -> None:
    removed = kinds.RemoveTopicRecord(topic_id=TOPIC)
    scribe = told(kinds.BeginTransactionRecord(), removed)
    assert scribe.transaction_open and not scribe.topics
    scribe.replay(batch(kinds.AbortTransactionRecord()))
    assert scribe.topics == {TOPIC: "t"} and KEY in scribe.partitions


def test_who_is_eligible_can_be_forgotten() -> None:
    scribe = told(change(isr=[1], elr=[2]), kinds.ClearElrRecord(topic_name="t"))
    assert scribe.partitions[KEY].elr == ()


class Told(CommittedMetadata):
    """A ledger without files."""

    def commit(self, *records: Message) -> None:
        offset = self.image.end_offset
        self.image.replay_batch(offset, list(records))
        self.image.commit(offset + len(records))
        for tell in self._on_batch:
            tell(batch(*records, base_offset=offset))


def test_settings_that_no_committed_record_made_are_seen() -> None:
    ledger, scribe = Told(), MetadataModel()
    ledger.tell(scribe.replay)
    ImageMatchesRecords(ledger, scribe)
    setting = kinds.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1")
    ledger.commit(kinds.TopicRecord(name="t", topic_id=TOPIC), setting)
    ledger.commit(kinds.RemoveTopicRecord(topic_id=TOPIC))
    ledger.image.replay_batch(ledger.image.end_offset, [setting])
    with pytest.raises(Violation, match=r"I-4.*the settings are .*retention\.ms.* should be \{\}"):
        ledger.commit(kinds.NoOpRecord())


def test_a_block_of_producer_ids_is_given_out_once() -> None:
    ledger = Told()
    ProducerIdBlocksAreUnique(ledger)
    ledger.commit(kinds.ProducerIdsRecord(broker_id=1, next_producer_id=1000))
    ledger.commit(kinds.ProducerIdsRecord(broker_id=2, next_producer_id=2000))
    with pytest.raises(Violation, match=r"I-7.*below 2999"):
        ledger.commit(kinds.ProducerIdsRecord(broker_id=1, next_producer_id=2999))
