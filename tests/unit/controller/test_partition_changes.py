"""Changes of many partitions when a broker is fenced or unfenced."""

from __future__ import annotations

from strandline.controller.partition_changes import (
    elect_leaderless,
    keep_leaderless_elr,
    leads_any,
    partitions_where,
    remove_from_isrs,
)
from strandline.protocol.messages.metadata_records import (
    ClearElrRecord,
    ConfigRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from strandline.protocol.types import Message
from unit.controller.machine_cluster import MachineCluster


def test_a_broker_that_is_fenced_leaves_every_isr_and_leads_nothing() -> None:
    cluster = MachineCluster(4)
    cluster.topic("t", [1, 2, 3], [2, 1, 3], [2, 3, 4])
    records: list[Message] = []
    assert list(remove_from_isrs(cluster.view, cluster.rules, 1, records)) == []
    assert [record.partition_id for record in records if isinstance(record, PartitionChangeRecord)] == [0, 1]
    cluster.write(*records)
    assert [cluster.partition("t", index).isr for index in range(3)] == [(2, 3), (2, 3), (2, 3, 4)]
    assert [cluster.partition("t", index).leader_epoch for index in range(3)] == [1, 0, 0]
    assert list(leads_any(cluster.view, 1)) == []


def test_records_of_partitions_that_the_broker_led_come_first() -> None:
    cluster = MachineCluster(3)
    cluster.topic("t", [2, 1], [1, 2], [3, 1], [1, 3])
    records: list[Message] = []
    list(remove_from_isrs(cluster.view, cluster.rules, 1, records))
    assert [record.partition_id for record in records if isinstance(record, PartitionChangeRecord)] == [1, 3, 0, 2]


def test_an_unfenced_broker_may_lead_partitions_without_a_leader() -> None:
    cluster = MachineCluster(3)
    cluster.topic("t", [1], [2])
    cluster.topic("u", [1, 2])
    cluster.fence(1)
    cluster.fence(2)
    cluster.register(4, fenced=True)
    records: list[Message] = []
    list(elect_leaderless(cluster.view, cluster.rules, 4, records))
    assert records == []
    cluster.unfence(2)
    assert [cluster.partition("t", index).leader for index in range(2)] == [-1, 2]
    assert cluster.partition("u").leader == 2


def test_a_long_walk_yields_whether_it_finds_partitions_or_not() -> None:
    cluster = MachineCluster(2)
    cluster.topic("t", *([[1, 2]] * 9000))
    records: list[Message] = []
    assert len(list(remove_from_isrs(cluster.view, cluster.rules, 9, records))) == 2
    assert records == []
    assert len(list(remove_from_isrs(cluster.view, cluster.rules, 1, records))) == 47
    assert len(records) == 9000
    assert sum(found is None for found in partitions_where(cluster.view, lambda partition: False)) == 2


def test_the_elr_of_a_partition_without_a_leader_survives_a_min_insync_replicas_change() -> None:
    cluster = MachineCluster(3)
    for topic in ("t", "u"):
        cluster.topic(topic, [1, 2], [2, 3])
        cluster.configure(topic, "min.insync.replicas", "2")
    cluster.fence(2)
    cluster.fence(1)
    before = cluster.partition("t", 0)
    assert (before.elr, before.last_known_elr) == ((1, 2), (1,))
    assert cluster.partition("t", 1).elr == (2,)
    records: list[Message] = [
        ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="1"),
        ClearElrRecord(topic_name="t"),
    ]
    list(keep_leaderless_elr(cluster.view, records))
    cluster.write(*records)
    kept = cluster.partition("t", 0)
    assert (kept.elr, kept.last_known_elr) == ((1, 2), (1,))
    assert cluster.partition("t", 1).elr == (), "it has a leader that may commit alone now"
    assert cluster.partition("u", 1).elr == (2,)
    cluster.unfence(2)
    assert (cluster.partition("t", 0).leader, cluster.partition("t", 0).leader_recovery_state) == (2, 0)


def test_the_elr_of_partitions_without_a_leader_survives_a_cluster_wide_change() -> None:
    cluster = MachineCluster(1)
    cluster.topic("t", [1])
    cluster.topic("u", [1])
    cluster.fence(1)
    records: list[Message] = [ClearElrRecord(topic_name="")]
    list(keep_leaderless_elr(cluster.view, records))
    assert len(records) == 3
    untouched: list[Message] = [RegisterBrokerRecord(rack=None)]
    list(keep_leaderless_elr(cluster.view, untouched))
    assert len(untouched) == 1
