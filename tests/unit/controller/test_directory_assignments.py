"""AssignReplicasToDirs, and failed directories."""

from __future__ import annotations

import pytest

from strandline.controller.directory_assignments import DirectoryAssignments
from strandline.controller.partition_changes import remove_from_isrs
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import DIRECTORY_LOST, DIRECTORY_UNASSIGNED, Uuid
from strandline.protocol.messages.brokers import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from strandline.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
)
from strandline.protocol.types import Message
from unit.controller.machine_cluster import MachineCluster, directory

FIRST, SECOND = Uuid.of(5, 1001), Uuid.of(5, 1002)


@pytest.fixture
def cluster() -> MachineCluster:
    """Broker 1 has two directories, 2 and 3 one each."""
    cluster = MachineCluster(3)
    epoch = cluster.image.end_offset
    cluster.write(
        RegisterBrokerRecord(broker_id=1, broker_epoch=epoch, rack=None, fenced=False, log_dirs=[FIRST, SECOND])
    )
    cluster.topic("t", [1, 2, 3], [1, 2, 3])
    return cluster


def assign(
    cluster: MachineCluster,
    where: Uuid,
    *indexes: int,
    broker: int = 1,
    topic_id: Uuid | None = None,
    epoch: int | None = None,
) -> list[ErrorCode]:
    topic = cluster.view.topic("t")
    assert topic is not None
    data = AssignReplicasToDirsRequestTopicData(
        topic_id=topic_id or topic.id,
        partitions=[AssignReplicasToDirsRequestPartitionData(partition_index=index) for index in indexes],
    )
    request = AssignReplicasToDirsRequest(
        broker_id=broker,
        broker_epoch=cluster.epoch(broker) if epoch is None else epoch,
        directories=[AssignReplicasToDirsRequestDirectoryData(id=where, topics=[data])],
    )
    response = cluster.decide(DirectoryAssignments(cluster.view, cluster.new_changes).assign(request))
    assert [each.id for each in response.directories] == [where]
    return [ErrorCode(each.error_code) for each in response.directories[0].topics[0].partitions]


def failed(cluster: MachineCluster, broker_id: int, *directories: Uuid) -> list[Message]:
    """The records after a heartbeat that reports failed directories."""
    broker = cluster.view.broker(broker_id)
    assert broker is not None
    records: list[Message] = []
    for _ in remove_from_isrs(cluster.view, cluster.rules, broker_id, records, directories=directories):
        pass
    online = [each for each in broker.directories if each not in directories]
    cluster.write(*records, BrokerRegistrationChangeRecord(broker_id, broker.epoch, log_dirs=online))
    return records


def test_a_broker_with_several_directories_reports_the_directory_of_each_replica(cluster: MachineCluster) -> None:
    assert cluster.partition("t").directories == (DIRECTORY_UNASSIGNED, directory(2), directory(3))
    assert assign(cluster, SECOND, 0, 1) == [ErrorCode.NONE, ErrorCode.NONE]
    found = cluster.partition("t", 1)
    assert found.directories == (SECOND, directory(2), directory(3))
    assert (found.leader, found.leader_epoch, found.partition_epoch) == (1, 0, 1)
    assert assign(cluster, SECOND, 1) == [ErrorCode.NONE]
    assert cluster.partition("t", 1).partition_epoch == 1, "reported again, nothing changes"


def test_unknown_partitions_and_those_of_other_brokers_are_rejected(cluster: MachineCluster) -> None:
    assert assign(cluster, FIRST, 7) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert assign(cluster, FIRST, 0, topic_id=Uuid.of(8, 8888)) == [ErrorCode.UNKNOWN_TOPIC_ID]
    cluster.topic("u", [2])
    topic = cluster.view.topic("u")
    assert topic is not None
    assert assign(cluster, FIRST, 0, topic_id=topic.id) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_request_with_a_stale_broker_epoch_is_rejected(cluster: MachineCluster) -> None:
    with pytest.raises(KafkaError) as error:
        assign(cluster, FIRST, 0, epoch=cluster.epoch(1) - 1)
    assert error.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_directories_are_not_assigned_below_the_metadata_version_that_introduced_them(cluster: MachineCluster) -> None:
    cluster.write(FeatureLevelRecord(name="metadata.version", feature_level=16))
    with pytest.raises(KafkaError) as error:
        assign(cluster, FIRST, 0)
    assert error.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_only_the_leaders_in_a_failed_directory_move(cluster: MachineCluster) -> None:
    assign(cluster, FIRST, 0)
    assign(cluster, SECOND, 1)
    failed(cluster, 1, FIRST)
    moved, stayed = cluster.partition("t", 0), cluster.partition("t", 1)
    assert (moved.leader, moved.isr, moved.leader_epoch) == (2, (2, 3), 1)
    assert (stayed.leader, stayed.isr, stayed.leader_epoch) == (1, (1, 2, 3), 0)
    broker = cluster.view.broker(1)
    assert broker is not None
    assert broker.directories == (SECOND,)
    assert failed(cluster, 1, FIRST) == [], "reported in every heartbeat, recorded once"


def test_a_replica_assigned_to_a_failed_directory_leaves_the_isr(cluster: MachineCluster) -> None:
    for failed_directory in (DIRECTORY_LOST, Uuid.of(5, 1003)):
        cluster.topic(str(failed_directory), [1, 2, 3])
        topic = cluster.view.topic(str(failed_directory))
        assert topic is not None
        assert assign(cluster, failed_directory, 0, topic_id=topic.id) == [ErrorCode.NONE]
        found = cluster.partition(str(failed_directory))
        assert (found.leader, found.isr, found.directories[0], found.partition_epoch) == (
            2,
            (2, 3),
            failed_directory,
            1,
        )


def test_a_replica_in_a_failed_directory_does_not_lead_when_its_broker_is_unfenced(cluster: MachineCluster) -> None:
    assign(cluster, FIRST, 0)
    failed(cluster, 1, FIRST)
    cluster.fence(2)
    cluster.fence(3)
    cluster.fence(1)
    cluster.unfence(1)
    assert (cluster.partition("t", 0).leader, cluster.partition("t", 1).leader) == (-1, 1)
    cluster.unfence(3)
    assert cluster.partition("t", 0).leader == 3


def test_a_lost_replica_leaves_the_isr_and_the_elr(cluster: MachineCluster) -> None:
    cluster.topic("two", [1, 2], [1, 2])
    cluster.write(
        ConfigRecord(resource_type=2, resource_name="two", name="min.insync.replicas", value="2"),
        FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
    )
    topic = cluster.view.topic("two")
    assert topic is not None
    assign(cluster, FIRST, 0, topic_id=topic.id)
    assert assign(cluster, DIRECTORY_LOST, 0, topic_id=topic.id) == [ErrorCode.NONE]
    assert assign(cluster, FIRST, 0, topic_id=topic.id) == [ErrorCode.NONE]
    found = cluster.partition("two")
    assert (found.leader, found.isr, found.elr, found.directories[0]) == (2, (2,), (), FIRST)


@pytest.mark.parametrize("with_elr", [0, 1])
def test_a_lost_replica_leads_again_when_no_other_replica_can(cluster: MachineCluster, with_elr: int) -> None:
    cluster.topic("alone", [1])
    cluster.write(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=with_elr))
    topic = cluster.view.topic("alone")
    assert topic is not None
    assign(cluster, FIRST, 0, topic_id=topic.id)
    assign(cluster, DIRECTORY_LOST, 0, topic_id=topic.id)
    assert cluster.partition("alone").leader == -1
    assign(cluster, FIRST, 0, topic_id=topic.id)
    found = cluster.partition("alone")
    assert (found.leader, found.isr) == (1, (1,))
