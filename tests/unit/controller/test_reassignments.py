"""Reassignments: started, overridden, completed, cancelled, listed."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.controller.isr import IsrChanges
from strandline.controller.reassignments import Reassignments
from strandline.metadata.values import PartitionInfo
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from strandline.protocol.messages.metadata_records import PartitionChangeRecord
from strandline.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from unit.controller.machine_cluster import MachineCluster, directory

Lists = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def reassign(
    cluster: MachineCluster, replicas: list[int] | None, *, topic: str = "t", index: int = 0, **more: Any
) -> ErrorCode:
    requested = ReassignableTopic(
        name=topic, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)]
    )
    request = AlterPartitionReassignmentsRequest(topics=[requested], **more)
    response = cluster.decide(Reassignments(cluster.view, cluster.new_changes).alter(request))
    return ErrorCode(response.responses[0].partitions[0].error_code)


def in_sync(cluster: MachineCluster, *isr: int, index: int = 0) -> ErrorCode:
    """The leader proposes this ISR."""
    topic, known = cluster.view.topic("t"), cluster.partition("t", index)
    assert topic is not None
    data = AlterPartitionRequestPartitionData(
        partition_index=index,
        leader_epoch=known.leader_epoch,
        partition_epoch=known.partition_epoch,
        new_isr_with_epochs=[BrokerState(member, -1) for member in isr],
    )
    request = AlterPartitionRequest(
        broker_id=known.leader,
        broker_epoch=cluster.epoch(known.leader),
        topics=[AlterPartitionRequestTopicData(topic_id=topic.id, partitions=[data])],
    )
    response = cluster.decide(IsrChanges(cluster.view, cluster.new_changes).alter(request, 3))
    return ErrorCode(response.topics[0].partitions[0].error_code)


def lists(partition: PartitionInfo) -> Lists:
    return partition.replicas, partition.adding, partition.removing


@pytest.fixture
def cluster() -> MachineCluster:
    cluster = MachineCluster(6)
    cluster.topic("t", [1, 2])
    return cluster


def test_a_reassignment_from_start_to_end(cluster: MachineCluster) -> None:
    assert reassign(cluster, [3, 4]) is ErrorCode.NONE
    started = cluster.partition("t")
    assert lists(started) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert (started.leader, started.isr, started.leader_epoch) == (1, (1, 2), 0)
    assert started.directories == tuple(directory(each) for each in (3, 4, 1, 2))
    assert in_sync(cluster, 1, 2, 4) is ErrorCode.NONE
    assert lists(cluster.partition("t")) == lists(started)
    assert in_sync(cluster, 1, 2, 4, 3) is ErrorCode.NEW_LEADER_ELECTED
    done = cluster.partition("t")
    assert lists(done) == ((3, 4), (), ())
    assert (done.leader, done.isr, done.leader_epoch) == (3, (4, 3), 1)
    assert done.directories == (directory(3), directory(4))


def test_a_new_order_of_the_same_replicas_takes_effect_at_once(cluster: MachineCluster) -> None:
    assert reassign(cluster, [2, 1]) is ErrorCode.NONE
    found = cluster.partition("t")
    assert lists(found) == ((2, 1), (), ())
    assert (found.leader, found.leader_epoch, found.directories) == (1, 0, (directory(2), directory(1)))


def test_fewer_replicas_that_are_in_sync_take_effect_at_once(cluster: MachineCluster) -> None:
    assert reassign(cluster, [2]) is ErrorCode.NONE
    found = cluster.partition("t")
    assert lists(found) == ((2,), (), ())
    assert (found.leader, found.isr, found.leader_epoch) == (2, (2,), 1)


def test_the_current_replicas_as_target_are_no_change(cluster: MachineCluster) -> None:
    assert reassign(cluster, [1, 2]) is ErrorCode.NONE
    assert cluster.partition("t").partition_epoch == 0


def test_a_cancelled_reassignment_restores_the_original_replicas(cluster: MachineCluster) -> None:
    reassign(cluster, [3, 4])
    in_sync(cluster, 1, 2, 3)
    assert reassign(cluster, None) is ErrorCode.NONE
    found = cluster.partition("t")
    assert lists(found) == ((1, 2), (), ())
    assert (found.leader, found.isr, found.leader_epoch) == (1, (1, 2), 1)
    assert reassign(cluster, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def lost_originals(cluster: MachineCluster) -> None:
    """Only broker 3, which is being added, is in sync and leads."""
    reassign(cluster, [3, 4])
    in_sync(cluster, 1, 2, 3)
    cluster.fence(1)
    cluster.fence(2)
    assert cluster.partition("t").isr == (3,)


def test_a_cancellation_that_would_lose_records_is_rejected_unless_the_topic_allows_it(
    cluster: MachineCluster,
) -> None:
    lost_originals(cluster)
    cluster.unfence(1)
    assert reassign(cluster, None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert lists(cluster.partition("t")) == ((3, 4, 1, 2), (3, 4), (1, 2))
    cluster.configure("t", "unclean.leader.election.enable", "true")
    assert reassign(cluster, None) is ErrorCode.NONE
    found = cluster.partition("t")
    assert lists(found) == ((1, 2), (), ())
    assert (found.leader, found.isr, found.leader_recovery_state) == (1, (1,), 1)


def test_a_cancellation_that_leaves_no_possible_leader_is_rejected(cluster: MachineCluster) -> None:
    lost_originals(cluster)
    cluster.configure("t", "unclean.leader.election.enable", "true")
    assert reassign(cluster, None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.partition("t").leader == 3


def test_a_cancellation_to_replicas_that_are_still_eligible_is_clean(cluster: MachineCluster) -> None:
    cluster.configure("t", "min.insync.replicas", "3")
    lost_originals(cluster)
    assert cluster.partition("t").elr == (1, 2)
    cluster.unfence(2)
    assert reassign(cluster, None) is ErrorCode.NONE
    found = cluster.partition("t")
    assert (found.leader, found.isr, found.elr, found.leader_recovery_state) == (2, (2,), (1,), 0)


def test_a_new_target_overrides_the_ongoing_one(cluster: MachineCluster) -> None:
    reassign(cluster, [3, 4])
    in_sync(cluster, 1, 2, 3)
    assert reassign(cluster, [3, 5]) is ErrorCode.NONE
    assert lists(cluster.partition("t")) == ((3, 5, 1, 2, 4), (3, 5), (1, 2, 4))
    in_sync(cluster, 1, 2, 3, 5)
    assert lists(cluster.partition("t")) == ((3, 5), (), ())


def test_a_replica_in_both_targets_must_be_in_sync(cluster: MachineCluster) -> None:
    reassign(cluster, [3, 1, 2])
    assert reassign(cluster, [3, 5, 1]) is ErrorCode.NONE
    in_sync(cluster, 1, 2, 5)
    assert lists(cluster.partition("t")) == ((3, 5, 1, 2), (3, 5), (2,))
    in_sync(cluster, 1, 2, 5, 3)
    assert lists(cluster.partition("t")) == ((3, 5, 1), (), ())


def test_the_original_replicas_as_a_new_target_end_the_reassignment(cluster: MachineCluster) -> None:
    reassign(cluster, [3, 4])
    assert reassign(cluster, [1, 2]) is ErrorCode.NONE
    found = cluster.partition("t")
    assert lists(found) == ((1, 2), (), ())
    assert found.leader == 1


@pytest.mark.parametrize(
    ("replicas", "options", "code"),
    [
        ([], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([3, 4], {"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([3, 4], {"index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, {}, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ([1, 2, 3], {"allow_replication_factor_change": False}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([3, 4], {"allow_replication_factor_change": False}, ErrorCode.NONE),
    ],
)
def test_an_invalid_reassignment_is_rejected_with_its_error_code(
    cluster: MachineCluster, replicas: list[int] | None, options: dict[str, Any], code: ErrorCode
) -> None:
    assert reassign(cluster, replicas, **options) is code
    assert (cluster.partition("t").partition_epoch == 0) is (code is not ErrorCode.NONE)


def test_the_replication_factor_is_compared_with_that_after_the_ongoing_reassignment(cluster: MachineCluster) -> None:
    reassign(cluster, [3, 4, 5])
    assert reassign(cluster, [1, 6], allow_replication_factor_change=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(cluster, [1, 4, 6], allow_replication_factor_change=False) is ErrorCode.NONE


def test_a_reassignment_may_complete_when_a_broker_is_fenced() -> None:
    cluster = MachineCluster(3)
    topic_id = cluster.topic("t", [1, 2, 3])
    cluster.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, removing_replicas=[3]))
    cluster.fence(3)
    assert lists(cluster.partition("t")) == ((1, 2), (), ())


def test_too_many_reassignments_at_once_are_rejected_and_none_starts() -> None:
    cluster = MachineCluster(2)
    cluster.topic("t", *([[1]] * 10_000))
    cluster.topic("u", [1])
    wishes = [
        ReassignableTopic(name=topic, partitions=[ReassignablePartition(index, [2]) for index in range(count)])
        for topic, count in (("t", 10_000), ("u", 1))
    ]
    request = AlterPartitionReassignmentsRequest(topics=wishes)
    with pytest.raises(KafkaError) as error:
        cluster.decide(Reassignments(cluster.view, cluster.new_changes).alter(request))
    assert error.value.code is ErrorCode.POLICY_VIOLATION


def listed(cluster: MachineCluster, *requested: tuple[str, list[int]]) -> dict[tuple[str, int], list[list[int]]]:
    topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in requested]
    request = ListPartitionReassignmentsRequest(topics=topics or None)
    response = cluster.decide(Reassignments(cluster.view, cluster.new_changes).list_ongoing(request))
    return {
        (topic.name, each.partition_index): [each.replicas, each.adding_replicas, each.removing_replicas]
        for topic in response.topics
        for each in topic.partitions
    }


def test_only_ongoing_reassignments_are_listed(cluster: MachineCluster) -> None:
    cluster.topic("a", [1], [2], [3])
    assert listed(cluster) == {}
    for index, target in ((2, [4]), (0, [5])):
        reassign(cluster, target, topic="a", index=index)
    reassign(cluster, [3, 4])
    moving = {
        ("a", 0): [[5, 1], [5], [1]],
        ("a", 2): [[4, 3], [4], [3]],
        ("t", 0): [[3, 4, 1, 2], [3, 4], [1, 2]],
    }
    assert listed(cluster) == moving
    assert list(listed(cluster)) == list(moving)
    assert listed(cluster, ("a", [1, 2, 7]), ("nowhere", [0])) == {("a", 2): [[4, 3], [4], [3]]}
    assert listed(cluster, ("a", [1])) == {}
