"""AlterPartition: an ISR is taken from the leader of now, and from nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.controller.isr import IsrChanges
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid
from strandline.protocol.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from strandline.protocol.messages.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from unit.controller.machine_cluster import MachineCluster


def told(
    scene: MachineCluster, isr: list[int], *, index: int = 0, epochs: dict[int, int] | None = None, **fields: Any
) -> AlterPartitionRequestPartitionData:
    """What a leader of `t` that knows everything would say, except for these."""
    known = scene.partition("t", index)
    members = [BrokerState(member, (epochs or {}).get(member, -1)) for member in isr]
    given = {"leader_epoch": known.leader_epoch, "partition_epoch": known.partition_epoch, **fields}
    return AlterPartitionRequestPartitionData(partition_index=index, new_isr_with_epochs=members, **given)


def alter(
    scene: MachineCluster,
    *partitions: AlterPartitionRequestPartitionData,
    sender: int = 1,
    topic_id: Uuid | None = None,
    version: int = 3,
) -> list[AlterPartitionResponsePartitionData]:
    topic = scene.view.topic("t")
    assert topic is not None
    data = AlterPartitionRequestTopicData(topic_id=topic_id or topic.id, partitions=list(partitions))
    request = AlterPartitionRequest(broker_id=sender, broker_epoch=scene.epoch(sender), topics=[data])
    answer = scene.decide(IsrChanges(scene.view, scene.settings).alter(request, version))
    return answer.topics[0].partitions


def code(scene: MachineCluster, *partitions: AlterPartitionRequestPartitionData, **options: Any) -> ErrorCode:
    (answer,) = alter(scene, *partitions, **options)
    return ErrorCode(answer.error_code)


@pytest.fixture
def scene() -> MachineCluster:
    scene = MachineCluster(4)
    scene.topic("t", [1, 2, 3])
    return scene


def test_a_leader_shrinks_and_expands_its_isr_and_hears_what_became_of_it(scene: MachineCluster) -> None:
    (shrunk,) = alter(scene, told(scene, [1, 2]))
    assert (shrunk.leader_id, shrunk.isr, shrunk.leader_epoch, shrunk.partition_epoch) == (1, [1, 2], 0, 1)
    assert scene.partition("t").isr == (1, 2)
    (grown,) = alter(scene, told(scene, [1, 2, 3], epochs={3: scene.epoch(3)}))
    assert (grown.isr, grown.leader_epoch, grown.partition_epoch) == ([1, 2, 3], 0, 2)


def test_what_is_as_it_was_is_answered_and_not_written(scene: MachineCluster) -> None:
    (answer,) = alter(scene, told(scene, [1, 2, 3]))
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, [1, 2, 3], 0)
    assert scene.partition("t").partition_epoch == 0


def test_older_brokers_name_members_without_epochs(scene: MachineCluster) -> None:
    data = AlterPartitionRequestPartitionData(partition_index=0, new_isr=[1, 3])
    (answer,) = alter(scene, data, version=2)
    assert answer.isr == [1, 3]


def test_a_ghost_is_refused_as_a_whole(scene: MachineCluster) -> None:
    request = AlterPartitionRequest(broker_id=1, broker_epoch=scene.epoch(1) - 1, topics=[])
    with pytest.raises(KafkaError) as refusal:
        scene.decide(IsrChanges(scene.view, scene.settings).alter(request, 3))
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_an_unknown_topic_or_partition_is_told_apart(scene: MachineCluster) -> None:
    assert code(scene, told(scene, [1]), topic_id=Uuid.of(8, 8888)) is ErrorCode.UNKNOWN_TOPIC_ID
    nowhere = AlterPartitionRequestPartitionData(partition_index=7)
    assert code(scene, nowhere) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("isr", "fields", "expected"),
    [
        ([1, 2], {"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ([1, 4], {}, ErrorCode.INVALID_REQUEST),
        ([1, 1], {}, ErrorCode.INVALID_REQUEST),
        ([2, 3], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_proposal_that_does_not_fit_is_refused_by_its_own_code(
    isr: list[int], fields: dict[str, Any], expected: ErrorCode
) -> None:
    scene = MachineCluster(4)
    topic_id = scene.topic("t", [1, 2, 3])
    scene.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=1))
    assert code(scene, told(scene, isr, **fields)) is expected
    assert scene.partition("t").isr == (1, 2, 3)


def test_only_the_leader_proposes(scene: MachineCluster) -> None:
    assert code(scene, told(scene, [1, 2]), sender=2) is ErrorCode.INVALID_REQUEST


def test_who_is_fenced_leaving_unknown_or_another_incarnation_does_not_enter(scene: MachineCluster) -> None:
    alter(scene, told(scene, [1]))
    assert code(scene, told(scene, [1, 2], epochs={2: scene.epoch(2) + 1})) is ErrorCode.INELIGIBLE_REPLICA
    leaving = BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=scene.epoch(3), in_controlled_shutdown=1)
    scene.write(leaving)
    assert code(scene, told(scene, [1, 3])) is ErrorCode.INELIGIBLE_REPLICA
    scene.fence(2)
    assert code(scene, told(scene, [1, 2])) is ErrorCode.INELIGIBLE_REPLICA
    assert scene.partition("t").isr == (1,)


def test_a_leader_tells_that_it_has_recovered_before_others_may_enter(scene: MachineCluster) -> None:
    topic_id = scene.topic("u", [1])
    scene.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=1, leader_recovery_state=1))
    known = scene.partition("u")
    data = AlterPartitionRequestPartitionData(
        partition_index=0,
        leader_epoch=known.leader_epoch,
        partition_epoch=known.partition_epoch,
        new_isr_with_epochs=[BrokerState(1, -1)],
        leader_recovery_state=1,
    )
    assert code(scene, data, topic_id=topic_id) is ErrorCode.NONE
    data.leader_recovery_state = 0
    (answer,) = alter(scene, data, topic_id=topic_id)
    assert (answer.leader_recovery_state, answer.partition_epoch) == (0, known.partition_epoch + 1)


def test_a_partition_named_twice_is_decided_on_what_the_first_made_of_it(scene: MachineCluster) -> None:
    first, second = alter(scene, told(scene, [1, 2]), told(scene, [1, 3]))
    assert first.isr == [1, 2]
    assert second.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert scene.partition("t").isr == (1, 2)


def test_the_isr_that_ends_a_reassignment_away_from_the_leader_elects_another(scene: MachineCluster) -> None:
    topic = scene.view.topic("t")
    assert topic is not None
    scene.write(
        PartitionChangeRecord(
            topic_id=topic.id, partition_id=0, replicas=[4, 2, 1, 3], adding_replicas=[4], removing_replicas=[1, 3]
        )
    )
    assert code(scene, told(scene, [1, 2, 3, 4])) is ErrorCode.NEW_LEADER_ELECTED
    found = scene.partition("t")
    assert (found.replicas, found.isr, found.leader, found.leader_epoch) == ((4, 2), (2, 4), 4, 1)


def test_many_partitions_are_altered_in_many_short_steps() -> None:
    scene = MachineCluster(3)
    scene.topic("t", *([[1, 2, 3]] * 1000))
    topic = scene.view.topic("t")
    assert topic is not None
    data = AlterPartitionRequestTopicData(
        topic_id=topic.id, partitions=[told(scene, [1, 2], index=index) for index in range(1000)]
    )
    request = AlterPartitionRequest(broker_id=1, broker_epoch=scene.epoch(1), topics=[data])
    assert sum(1 for _ in IsrChanges(scene.view, scene.settings).alter(request, 3)) == 5
