"""Internal topics get more replicas when brokers join, unless their replication factor is configured."""

from __future__ import annotations

from collections import Counter

import pytest

from strandline.controller.internal_topics import InternalTopics
from strandline.controller.isr import IsrChanges
from strandline.controller.settings import ControllerSettings
from strandline.protocol.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from unit.controller.machine_cluster import MachineCluster

OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"


def raise_replication(cluster: MachineCluster) -> int:
    """The number of records that were written."""
    decision = InternalTopics(cluster.view, cluster.settings, cluster.new_changes).raise_replication()
    cluster.write(*decision.records)
    return len(decision.records)


def catch_up(cluster: MachineCluster, topic: str) -> None:
    """Each leader proposes all replicas for the ISR."""
    known = cluster.view.topic(topic)
    assert known is not None
    for index, partition in enumerate(cluster.view.partitions(known.id)):
        data = AlterPartitionRequestPartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[BrokerState(replica, -1) for replica in partition.replicas],
        )
        request = AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=cluster.epoch(partition.leader),
            topics=[AlterPartitionRequestTopicData(topic_id=known.id, partitions=[data])],
        )
        cluster.decide(IsrChanges(cluster.view, cluster.new_changes).alter(request, 3))


def replicas(cluster: MachineCluster, topic: str) -> list[tuple[int, ...]]:
    known = cluster.view.topic(topic)
    assert known is not None
    return [partition.replicas for partition in cluster.view.partitions(known.id)]


def test_a_cluster_that_grows_to_three_brokers_gets_three_replicas() -> None:
    cluster = MachineCluster(1)
    cluster.topic(OFFSETS, *[[1]] * 6)
    assert raise_replication(cluster) == 0, "there is no other broker yet"
    cluster.register(2)
    raise_replication(cluster)
    catch_up(cluster, OFFSETS)
    assert all(sorted(each) == [1, 2] for each in replicas(cluster, OFFSETS))
    cluster.register(3)
    raise_replication(cluster)
    catch_up(cluster, OFFSETS)
    found = replicas(cluster, OFFSETS)
    assert all(sorted(each) == [1, 2, 3] for each in found)
    assert Counter(each[0] for each in found) == {1: 2, 2: 2, 3: 2}, "preferred leaders are spread"
    assert raise_replication(cluster) == 0


def test_a_fourth_broker_changes_nothing() -> None:
    cluster = MachineCluster(4)
    cluster.topic(OFFSETS, [1, 2, 3])
    assert raise_replication(cluster) == 0


def test_of_many_brokers_those_with_the_fewest_replicas_are_chosen() -> None:
    cluster = MachineCluster(7)
    cluster.topic(OFFSETS, *[[1]] * 9)
    raise_replication(cluster)
    counts = Counter(replica for each in replicas(cluster, OFFSETS) for replica in each)
    assert counts == {1: 9, 2: 3, 3: 3, 4: 3, 5: 3, 6: 3, 7: 3}


def test_replicas_are_added_in_other_racks_first() -> None:
    cluster = MachineCluster(0)
    for broker_id, rack in ((1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "c")):
        cluster.register(broker_id, rack=rack)
    cluster.topic(OFFSETS, [1])
    raise_replication(cluster)
    assert sorted(replicas(cluster, OFFSETS)[0]) == [1, 4, 5]


def test_a_fenced_broker_is_not_chosen() -> None:
    cluster = MachineCluster(3)
    cluster.topic(OFFSETS, [1])
    cluster.fence(2)
    raise_replication(cluster)
    assert sorted(replicas(cluster, OFFSETS)[0]) == [1, 3]


def test_a_partition_that_is_being_reassigned_is_left_alone() -> None:
    cluster = MachineCluster(3)
    cluster.topic(OFFSETS, [1])
    assert raise_replication(cluster) == 1
    assert raise_replication(cluster) == 0


@pytest.mark.parametrize("topic", [OFFSETS, TRANSACTIONS])
def test_a_configured_replication_factor_is_obeyed(topic: str) -> None:
    keys = {OFFSETS: "offsets.topic.replication.factor", TRANSACTIONS: "transaction.state.log.replication.factor"}
    settings = ControllerSettings(node_id=100, cluster_id="cluster", static={keys[topic]: "1"})
    cluster = MachineCluster(3, settings=settings)
    cluster.topic(topic, [1])
    assert raise_replication(cluster) == 0


def test_other_topics_keep_their_replicas() -> None:
    cluster = MachineCluster(3)
    cluster.topic("t", [1])
    assert raise_replication(cluster) == 0


def test_a_fitted_min_isr_is_raised_once_all_replicas_are_in_sync() -> None:
    cluster = MachineCluster(1)
    cluster.topic(TRANSACTIONS, [1], [1])
    cluster.configure(TRANSACTIONS, "min.insync.replicas", "1")
    cluster.register(2)
    cluster.register(3)
    raise_replication(cluster)
    assert raise_replication(cluster) == 0
    assert cluster.view.topic_configs(TRANSACTIONS)["min.insync.replicas"] == "1"
    catch_up(cluster, TRANSACTIONS)
    raise_replication(cluster)
    assert cluster.view.topic_configs(TRANSACTIONS)["min.insync.replicas"] == "2"
    assert raise_replication(cluster) == 0
