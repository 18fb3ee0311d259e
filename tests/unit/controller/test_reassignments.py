"""Partitions that move: started, overridden, completed, cancelled, listed."""

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
    scene: MachineCluster, replicas: list[int] | None, *, topic: str = "t", index: int = 0, **more: Any
) -> ErrorCode:
    wish = ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)])
    request = AlterPartitionReassignmentsRequest(topics=[wish], **more)
    answer = scene.decide(Reassignments(scene.view, scene.settings).alter(request))
    return ErrorCode(answer.responses[0].partitions[0].error_code)


def in_sync(scene: MachineCluster, *isr: int, index: int = 0) -> ErrorCode:
    """The leader says so."""
    topic, known = scene.view.topic("t"), scene.partition("t", index)
    assert topic is not None
    data = AlterPartitionRequestPartitionData(
        partition_index=index,
        leader_epoch=known.leader_epoch,
        partition_epoch=known.partition_epoch,
        new_isr_with_epochs=[BrokerState(member, -1) for member in isr],
    )
    request = AlterPartitionRequest(
        broker_id=known.leader,
        broker_epoch=scene.epoch(known.leader),
        topics=[AlterPartitionRequestTopicData(topic_id=topic.id, partitions=[data])],
    )
    answer = scene.decide(IsrChanges(scene.view, scene.settings).alter(request, 3))
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def lists(partition: PartitionInfo) -> Lists:
    return partition.replicas, partition.adding, partition.removing


@pytest.fixture
def scene() -> MachineCluster:
    scene = MachineCluster(6)
    scene.topic("t", [1, 2])
    return scene


def test_a_reassignment_from_start_to_end(scene: MachineCluster) -> None:
    assert reassign(scene, [3, 4]) is ErrorCode.NONE
    started = scene.partition("t")
    assert lists(started) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert (started.leader, started.isr, started.leader_epoch) == (1, (1, 2), 0)
    assert started.directories == tuple(directory(each) for each in (3, 4, 1, 2))
    assert in_sync(scene, 1, 2, 4) is ErrorCode.NONE
    assert lists(scene.partition("t")) == lists(started)
    assert in_sync(scene, 1, 2, 4, 3) is ErrorCode.NEW_LEADER_ELECTED
    done = scene.partition("t")
    assert lists(done) == ((3, 4), (), ())
    assert (done.leader, done.isr, done.leader_epoch) == (3, (4, 3), 1)
    assert done.directories == (directory(3), directory(4))


def test_another_order_is_taken_at_once(scene: MachineCluster) -> None:
    assert reassign(scene, [2, 1]) is ErrorCode.NONE
    found = scene.partition("t")
    assert lists(found) == ((2, 1), (), ())
    assert (found.leader, found.leader_epoch, found.directories) == (1, 0, (directory(2), directory(1)))


def test_fewer_replicas_that_are_in_sync_are_taken_at_once(scene: MachineCluster) -> None:
    assert reassign(scene, [2]) is ErrorCode.NONE
    found = scene.partition("t")
    assert lists(found) == ((2,), (), ())
    assert (found.leader, found.isr, found.leader_epoch) == (2, (2,), 1)


def test_what_is_so_already_is_no_change(scene: MachineCluster) -> None:
    assert reassign(scene, [1, 2]) is ErrorCode.NONE
    assert scene.partition("t").partition_epoch == 0


def test_a_cancelled_reassignment_leads_back_to_the_original_replicas(scene: MachineCluster) -> None:
    reassign(scene, [3, 4])
    in_sync(scene, 1, 2, 3)
    assert reassign(scene, None) is ErrorCode.NONE
    found = scene.partition("t")
    assert lists(found) == ((1, 2), (), ())
    assert (found.leader, found.isr, found.leader_epoch) == (1, (1, 2), 1)
    assert reassign(scene, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def lost_originals(scene: MachineCluster) -> None:
    """Only broker 3, which is being added, is in sync and leads."""
    reassign(scene, [3, 4])
    in_sync(scene, 1, 2, 3)
    scene.fence(1)
    scene.fence(2)
    assert scene.partition("t").isr == (3,)


def test_a_cancellation_that_would_lose_records_is_refused_unless_the_topic_allows_it(scene: MachineCluster) -> None:
    lost_originals(scene)
    scene.unfence(1)
    assert reassign(scene, None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert lists(scene.partition("t")) == ((3, 4, 1, 2), (3, 4), (1, 2))
    scene.configure("t", "unclean.leader.election.enable", "true")
    assert reassign(scene, None) is ErrorCode.NONE
    found = scene.partition("t")
    assert lists(found) == ((1, 2), (), ())
    assert (found.leader, found.isr, found.leader_recovery_state) == (1, (1,), 1)


def test_a_cancellation_never_leaves_the_partition_to_brokers_that_cannot_lead(scene: MachineCluster) -> None:
    lost_originals(scene)
    scene.configure("t", "unclean.leader.election.enable", "true")
    assert reassign(scene, None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert scene.partition("t").leader == 3


def test_a_cancellation_to_replicas_that_are_still_eligible_is_clean(scene: MachineCluster) -> None:
    scene.configure("t", "min.insync.replicas", "3")
    lost_originals(scene)
    assert scene.partition("t").elr == (1, 2)
    scene.unfence(2)
    assert reassign(scene, None) is ErrorCode.NONE
    found = scene.partition("t")
    assert (found.leader, found.isr, found.elr, found.leader_recovery_state) == (2, (2,), (1,), 0)


def test_a_new_target_overrides_the_one_under_way(scene: MachineCluster) -> None:
    reassign(scene, [3, 4])
    in_sync(scene, 1, 2, 3)
    assert reassign(scene, [3, 5]) is ErrorCode.NONE
    assert lists(scene.partition("t")) == ((3, 5, 1, 2, 4), (3, 5), (1, 2, 4))
    in_sync(scene, 1, 2, 3, 5)
    assert lists(scene.partition("t")) == ((3, 5), (), ())


def test_a_target_that_wants_what_is_being_added_waits_for_it(scene: MachineCluster) -> None:
    reassign(scene, [3, 1, 2])
    assert reassign(scene, [3, 5, 1]) is ErrorCode.NONE
    in_sync(scene, 1, 2, 5)
    assert lists(scene.partition("t")) == ((3, 5, 1, 2), (3, 5), (2,))
    in_sync(scene, 1, 2, 5, 3)
    assert lists(scene.partition("t")) == ((3, 5, 1), (), ())


def test_the_original_replicas_as_a_new_target_end_what_is_under_way(scene: MachineCluster) -> None:
    reassign(scene, [3, 4])
    assert reassign(scene, [1, 2]) is ErrorCode.NONE
    found = scene.partition("t")
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
def test_what_cannot_be_is_refused_by_its_own_code(
    scene: MachineCluster, replicas: list[int] | None, options: dict[str, Any], code: ErrorCode
) -> None:
    assert reassign(scene, replicas, **options) is code
    assert (scene.partition("t").partition_epoch == 0) is (code is not ErrorCode.NONE)


def test_the_factor_that_must_not_change_is_the_one_that_the_reassignment_leads_to(scene: MachineCluster) -> None:
    reassign(scene, [3, 4, 5])
    assert reassign(scene, [1, 6], allow_replication_factor_change=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(scene, [1, 4, 6], allow_replication_factor_change=False) is ErrorCode.NONE


def test_a_reassignment_may_end_when_a_broker_leaves() -> None:
    scene = MachineCluster(3)
    topic_id = scene.topic("t", [1, 2, 3])
    scene.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, removing_replicas=[3]))
    scene.fence(3)
    assert lists(scene.partition("t")) == ((1, 2), (), ())


def test_too_many_at_once_are_refused_and_nothing_starts() -> None:
    scene = MachineCluster(2)
    scene.topic("t", *([[1]] * 10_000))
    scene.topic("u", [1])
    wishes = [
        ReassignableTopic(name=topic, partitions=[ReassignablePartition(index, [2]) for index in range(count)])
        for topic, count in (("t", 10_000), ("u", 1))
    ]
    request = AlterPartitionReassignmentsRequest(topics=wishes)
    with pytest.raises(KafkaError) as refusal:
        scene.decide(Reassignments(scene.view, scene.settings).alter(request))
    assert refusal.value.code is ErrorCode.POLICY_VIOLATION


def listed(scene: MachineCluster, *asked: tuple[str, list[int]]) -> dict[tuple[str, int], list[list[int]]]:
    topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in asked]
    request = ListPartitionReassignmentsRequest(topics=topics or None)
    answer = scene.decide(Reassignments(scene.view, scene.settings).list_ongoing(request))
    return {
        (topic.name, each.partition_index): [each.replicas, each.adding_replicas, each.removing_replicas]
        for topic in answer.topics
        for each in topic.partitions
    }


def test_what_moves_is_listed_and_the_rest_is_not_mentioned(scene: MachineCluster) -> None:
    scene.topic("a", [1], [2], [3])
    assert listed(scene) == {}
    for index, target in ((2, [4]), (0, [5])):
        reassign(scene, target, topic="a", index=index)
    reassign(scene, [3, 4])
    moving = {
        ("a", 0): [[5, 1], [5], [1]],
        ("a", 2): [[4, 3], [4], [3]],
        ("t", 0): [[3, 4, 1, 2], [3, 4], [1, 2]],
    }
    assert listed(scene) == moving
    assert list(listed(scene)) == list(moving)
    assert listed(scene, ("a", [1, 2, 7]), ("nowhere", [0])) == {("a", 2): [[4, 3], [4], [3]]}
    assert listed(scene, ("a", [1])) == {}
