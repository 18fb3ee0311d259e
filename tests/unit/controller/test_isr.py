"""AlterPartition: only the current leader may change an ISR."""

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


def proposal(
    cluster: MachineCluster, isr: list[int], *, index: int = 0, epochs: dict[int, int] | None = None, **fields: Any
) -> AlterPartitionRequestPartitionData:
    """A valid request of the leader of `t`, with these changes."""
    known = cluster.partition("t", index)
    members = [BrokerState(member, (epochs or {}).get(member, -1)) for member in isr]
    given = {"leader_epoch": known.leader_epoch, "partition_epoch": known.partition_epoch, **fields}
    return AlterPartitionRequestPartitionData(partition_index=index, new_isr_with_epochs=members, **given)


def alter(
    cluster: MachineCluster,
    *partitions: AlterPartitionRequestPartitionData,
    sender: int = 1,
    topic_id: Uuid | None = None,
    version: int = 3,
) -> list[AlterPartitionResponsePartitionData]:
    topic = cluster.view.topic("t")
    assert topic is not None
    data = AlterPartitionRequestTopicData(topic_id=topic_id or topic.id, partitions=list(partitions))
    request = AlterPartitionRequest(broker_id=sender, broker_epoch=cluster.epoch(sender), topics=[data])
    response = cluster.decide(IsrChanges(cluster.view, cluster.new_changes).alter(request, version))
    return response.topics[0].partitions


def code(cluster: MachineCluster, *partitions: AlterPartitionRequestPartitionData, **options: Any) -> ErrorCode:
    (response,) = alter(cluster, *partitions, **options)
    return ErrorCode(response.error_code)


@pytest.fixture
def cluster() -> MachineCluster:
    cluster = MachineCluster(4)
    cluster.topic("t", [1, 2, 3])
    return cluster


def test_a_leader_shrinks_and_expands_its_isr_and_receives_the_new_state(cluster: MachineCluster) -> None:
    (shrunk,) = alter(cluster, proposal(cluster, [1, 2]))
    assert (shrunk.leader_id, shrunk.isr, shrunk.leader_epoch, shrunk.partition_epoch) == (1, [1, 2], 0, 1)
    assert cluster.partition("t").isr == (1, 2)
    (grown,) = alter(cluster, proposal(cluster, [1, 2, 3], epochs={3: cluster.epoch(3)}))
    assert (grown.isr, grown.leader_epoch, grown.partition_epoch) == ([1, 2, 3], 0, 2)


def test_an_unchanged_isr_succeeds_without_a_record(cluster: MachineCluster) -> None:
    (response,) = alter(cluster, proposal(cluster, [1, 2, 3]))
    assert (response.error_code, response.isr, response.partition_epoch) == (0, [1, 2, 3], 0)
    assert cluster.partition("t").partition_epoch == 0


def test_older_versions_contain_no_broker_epochs(cluster: MachineCluster) -> None:
    data = AlterPartitionRequestPartitionData(partition_index=0, new_isr=[1, 3])
    (response,) = alter(cluster, data, version=2)
    assert response.isr == [1, 3]


def test_a_request_with_a_stale_broker_epoch_is_rejected_as_a_whole(cluster: MachineCluster) -> None:
    request = AlterPartitionRequest(broker_id=1, broker_epoch=cluster.epoch(1) - 1, topics=[])
    with pytest.raises(KafkaError) as error:
        cluster.decide(IsrChanges(cluster.view, cluster.new_changes).alter(request, 3))
    assert error.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_an_unknown_topic_and_an_unknown_partition_have_different_error_codes(cluster: MachineCluster) -> None:
    assert code(cluster, proposal(cluster, [1]), topic_id=Uuid.of(8, 8888)) is ErrorCode.UNKNOWN_TOPIC_ID
    nowhere = AlterPartitionRequestPartitionData(partition_index=7)
    assert code(cluster, nowhere) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


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
def test_an_invalid_proposal_is_rejected_with_its_error_code(
    isr: list[int], fields: dict[str, Any], expected: ErrorCode
) -> None:
    cluster = MachineCluster(4)
    topic_id = cluster.topic("t", [1, 2, 3])
    cluster.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=1))
    assert code(cluster, proposal(cluster, isr, **fields)) is expected
    assert cluster.partition("t").isr == (1, 2, 3)


def test_only_the_leader_may_propose_an_isr(cluster: MachineCluster) -> None:
    assert code(cluster, proposal(cluster, [1, 2]), sender=2) is ErrorCode.INVALID_REQUEST


def test_a_broker_that_is_fenced_shutting_down_unknown_or_restarted_does_not_enter_the_isr(
    cluster: MachineCluster,
) -> None:
    alter(cluster, proposal(cluster, [1]))
    assert code(cluster, proposal(cluster, [1, 2], epochs={2: cluster.epoch(2) + 1})) is ErrorCode.INELIGIBLE_REPLICA
    leaving = BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=cluster.epoch(3), in_controlled_shutdown=1)
    cluster.write(leaving)
    assert code(cluster, proposal(cluster, [1, 3])) is ErrorCode.INELIGIBLE_REPLICA
    cluster.fence(2)
    assert code(cluster, proposal(cluster, [1, 2])) is ErrorCode.INELIGIBLE_REPLICA
    assert cluster.partition("t").isr == (1,)


def test_a_leader_must_have_recovered_before_followers_enter_the_isr(cluster: MachineCluster) -> None:
    topic_id = cluster.topic("u", [1])
    cluster.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=1, leader_recovery_state=1))
    known = cluster.partition("u")
    data = AlterPartitionRequestPartitionData(
        partition_index=0,
        leader_epoch=known.leader_epoch,
        partition_epoch=known.partition_epoch,
        new_isr_with_epochs=[BrokerState(1, -1)],
        leader_recovery_state=1,
    )
    assert code(cluster, data, topic_id=topic_id) is ErrorCode.NONE
    data.leader_recovery_state = 0
    (response,) = alter(cluster, data, topic_id=topic_id)
    assert (response.leader_recovery_state, response.partition_epoch) == (0, known.partition_epoch + 1)


def test_a_partition_given_twice_is_decided_on_the_state_after_the_first(cluster: MachineCluster) -> None:
    first, second = alter(cluster, proposal(cluster, [1, 2]), proposal(cluster, [1, 3]))
    assert first.isr == [1, 2]
    assert second.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.partition("t").isr == (1, 2)


def test_an_isr_that_completes_a_reassignment_away_from_the_leader_elects_another_leader(
    cluster: MachineCluster,
) -> None:
    topic = cluster.view.topic("t")
    assert topic is not None
    cluster.write(
        PartitionChangeRecord(
            topic_id=topic.id, partition_id=0, replicas=[4, 2, 1, 3], adding_replicas=[4], removing_replicas=[1, 3]
        )
    )
    assert code(cluster, proposal(cluster, [1, 2, 3, 4])) is ErrorCode.NEW_LEADER_ELECTED
    found = cluster.partition("t")
    assert (found.replicas, found.isr, found.leader, found.leader_epoch) == ((4, 2), (2, 4), 4, 1)


def test_altering_many_partitions_yields_many_times() -> None:
    cluster = MachineCluster(3)
    cluster.topic("t", *([[1, 2, 3]] * 1000))
    topic = cluster.view.topic("t")
    assert topic is not None
    data = AlterPartitionRequestTopicData(
        topic_id=topic.id, partitions=[proposal(cluster, [1, 2], index=index) for index in range(1000)]
    )
    request = AlterPartitionRequest(broker_id=1, broker_epoch=cluster.epoch(1), topics=[data])
    assert sum(1 for _ in IsrChanges(cluster.view, cluster.new_changes).alter(request, 3)) == 5
