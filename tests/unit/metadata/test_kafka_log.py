"""A metadata log that Apache Kafka 4.3.1 wrote: formatted, started, driven with an admin client, stopped.

It contains topics created, extended and deleted, configs of every resource type, quotas, ACLs, SCRAM credentials,
producer ids, eligible leader replicas, and a controlled shutdown. Its snapshots are Kafka's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from strandline.metadata.image import Image
from strandline.model.errors import NodeFault
from strandline.protocol.messages.metadata_records import RegisterBrokerRecord, RegisterControllerRecord
from strandline.protocol.types import Message
from strandline.raft.disk.batches import MetadataBatch, encode_control_batch, encode_data_batch, read_batches
from strandline.raft.disk.quorum_state import read_quorum_state
from strandline.raft.disk.snapshots import read_bootstrap_checkpoint, read_snapshot
from strandline.raft.machine.values import QuorumState
from strandline.runtime.disk import SystemDisk

FIXTURE = os.path.join(os.path.dirname(__file__), "fixtures", "kafka-4.3.1")
LOG = "00000000000000000000.log"


def kafka_batches() -> Iterator[MetadataBatch]:
    return read_batches(SystemDisk().read(f"{FIXTURE}/{LOG}"), LOG)


def replayed(until: int = 1 << 62) -> Image:
    image = Image()
    for batch in kafka_batches():
        if batch.base_offset >= until:
            break
        if batch.is_control:
            image.skip_to(batch.next_offset)
        else:
            image.replay_batch(batch.base_offset, batch.records)
        image.commit(batch.next_offset)
    return image


def comparable(records: Iterator[Message]) -> list[str]:
    """Without order: Kafka writes maps in hash order."""
    ordered = [
        replace(record, features=sorted(record.features, key=lambda feature: feature.name))
        if isinstance(record, RegisterBrokerRecord | RegisterControllerRecord)
        else record
        for record in records
    ]
    return sorted(map(repr, ordered))


@pytest.mark.parametrize("name", ["00000000000000000042-0000000001", "00000000000000000203-0000000001"])
def test_replaying_kafkas_log_equals_kafkas_own_snapshot(name: str) -> None:
    snapshot = read_snapshot(SystemDisk(), f"{FIXTURE}/{name}.checkpoint")
    image = replayed(until=int(name[:20]))
    assert comparable(image.records(image.committed)) == comparable(iter(snapshot.records()))
    assert image.committed.offset == int(name[:20])


def test_kafkas_snapshot_and_ours_have_the_same_order_of_record_types() -> None:
    snapshot = read_snapshot(SystemDisk(), f"{FIXTURE}/00000000000000000203-0000000001.checkpoint")
    image = Image()
    image.load(snapshot.records(), 203)

    def kinds(records: Iterator[Message]) -> list[str]:
        seen: dict[str, None] = {}
        for record in records:
            seen[type(record).__name__] = None
        return list(seen)

    assert kinds(image.records(image.committed)) == kinds(iter(snapshot.records()))


def test_records_decoded_from_kafkas_log_encode_to_the_same_bytes() -> None:
    again = bytearray()
    for batch in kafka_batches():
        where = {"base_offset": batch.base_offset, "epoch": batch.epoch, "timestamp": batch.timestamp}
        if batch.is_control:
            again += encode_control_batch(batch.records, **where)  # type: ignore[arg-type]
        else:
            again += encode_data_batch(batch.records, metadata_version=30, **where)
    assert bytes(again) == SystemDisk().read(f"{FIXTURE}/{LOG}")


def test_the_replayed_log_equals_the_final_state_of_kafkas_admin_client() -> None:
    view = replayed().committed
    assert [topic.name for topic in view.topics()] == [
        "__transaction_state",
        "alpha",
        "beta",
        "late-0",
        "late-1",
        "late-2",
        "manual",
    ]
    beta = view.topic("beta")
    assert beta is not None
    assert beta.partition_count == 4
    assert view.topic_configs("alpha") == {"cleanup.policy": "compact,delete"}
    assert view.broker_configs(1) == {"log.retention.ms": "5000"}
    assert view.broker_configs(None) == {"log.segment.bytes": "1048576000", "min.insync.replicas": "1"}
    assert view.quotas() == {
        (("client-id", "c"), ("user", "alice")): {"producer_byte_rate": 1000.0},
        (("user", None),): {"request_percentage": 50.0},
    }
    assert [acl.principal for acl in view.acls()] == ["User:alice"]
    assert [(scram.name, scram.iterations) for scram in view.scram_credentials()] == [("alice", 4096)]
    assert view.next_producer_id == 1000
    assert view.metadata_version == 30
    broker = view.broker(1)
    assert broker is not None
    assert (broker.fenced, broker.in_controlled_shutdown, broker.rack) == (True, True, "r1")
    partition = view.partitions(beta.id)[3]
    assert (partition.isr, partition.elr, partition.leader, partition.leader_epoch) == ((), (1,), -1, 1)


def test_kafkas_bootstrap_checkpoint_and_quorum_state_are_read() -> None:
    records = read_bootstrap_checkpoint(SystemDisk(), FIXTURE)
    assert records is not None
    assert [getattr(record, "name", "") for record in records] == [
        "metadata.version",
        "eligible.leader.replicas.version",
        "group.version",
        "share.version",
        "streams.version",
        "transaction.version",
    ]
    assert read_quorum_state(SystemDisk(), FIXTURE) == QuorumState(epoch=1, leader_id=1)


def test_kafkas_first_voters_are_read() -> None:
    snapshot = read_snapshot(SystemDisk(), f"{FIXTURE}/00000000000000000000-0000000000.checkpoint")
    assert snapshot.kraft_version == 1
    assert snapshot.voters is not None
    assert [(voter.id, voter.listeners[0][0]) for voter in snapshot.voters.voters] == [(1, "CONTROLLER")]
    assert list(snapshot.records()) == []


def test_a_flipped_bit_in_the_log_is_detected() -> None:
    data = bytearray(SystemDisk().read(f"{FIXTURE}/{LOG}"))
    data[700] ^= 1
    with pytest.raises(NodeFault, match="checksum"):
        list(read_batches(data, LOG))
